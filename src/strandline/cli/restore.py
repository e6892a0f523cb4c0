"""``restore``: tables of a collection as a backup has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, Copies, MaxRate, NoWait, command
from strandline.cli.session import Cli
from strandline.sql.tokens import quote


def register(app: typer.Typer) -> None:
    command(app, "restore", BACK_UP_AND_RESTORE, quiet=True)(restore)


def restore(
    cli: Cli,
    collection: CollectionArgument,
    *,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="BACKUP|TIME", help="A backup's name, or a time such as 2026-01-31T12:00:00Z."
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="TABLE[=NEW]",
            help="Only this table, or under another name. May be repeated.",
        ),
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="DIRECTORY", help="Restore below this directory.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read everything again and compare before it becomes visible.")
    ] = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the files and check each copy, instead of sharing them.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Take the places of tables that are there. The old ones are kept in /.replaced."
        ),
    ] = False,
    changefeeds: Annotated[
        bool, typer.Option("--changefeeds", help="Begin the changefeeds of the tables anew.")
    ] = False,
    deadline: Annotated[
        int | None,
        typer.Option("--deadline", metavar="SECONDS", min=1, help="Give up and undo after this time."),
    ] = None,
    max_rate: MaxRate = None,
    copies: Copies = None,
    explain: Annotated[bool, typer.Option("--explain", help="Only say what would be done.")] = False,
    nowait: NoWait = False,
) -> None:
    """Restore the tables of a collection with their indexes: the last backup, or one of your choice. Existing
    tables are not touched, unless they are to be replaced."""
    from strandline.cli.statements import limits, run_text, start_operation

    settings = [
        *(["VERIFY = 'data'"] if verify else []),
        *(["MODE = 'copy'"] if copy else []),
        *(["REPLACE = 'true'"] if replace else []),
        *([f"DEADLINE = {deadline}"] if deadline else []),
        *(["CHANGEFEEDS = 'true'"] if changefeeds else []),
        *limits(max_rate, copies),
    ]
    text = _statement(collection, at, tables or [], into, settings)
    if explain:
        with cli.database() as db:
            run_text(cli, db, f"EXPLAIN {text}")
        return
    start_operation(cli, text, nowait=nowait)


def _statement(
    collection: str, at: str | None, tables: Sequence[str], into: str | None, settings: Sequence[str]
) -> str:
    from strandline.cli.statements import with_settings
    from strandline.sql.constants import constant

    words = [f"RESTORE {quote(collection)}"]
    if at is not None:
        words.append(f"AT {'TIMESTAMP ' if _is_time(at) else ''}{constant(at)}")
    if tables:
        words.append(", ".join(_table_clause(table) for table in tables))
    if into is not None:
        words.append(f"INTO {quote(into)}")
    return " ".join(words) + with_settings(settings)


def _table_clause(table: str) -> str:
    name, equals, new = table.partition("=")
    return f"TABLE {quote(name)}" + (f" AS {quote(new)}" if equals else "")


def _is_time(text: str) -> bool:
    return re.match(r"\d{4}-\d{2}-\d{2}", text) is not None
