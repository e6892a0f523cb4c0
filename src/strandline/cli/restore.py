"""``restore``: restore the tables of a collection from a backup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, Copies, MaxRate, NoWait, command
from strandline.cli.session import Cli
from strandline.sql.tokens import quote


def register(app: typer.Typer) -> None:
    command(
        app,
        "restore",
        BACK_UP_AND_RESTORE,
        example="strandline restore nightly --table orders=orders_before",
        quiet=True,
    )(restore)


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
            help="Restore only this table, with =NEW under another name. Repeatable.",
        ),
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="DIRECTORY", help="Restore below this directory.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare the restored rows with the recorded digests before they become visible."
        ),
    ] = False,
    copy: Annotated[
        bool,
        typer.Option(
            "--copy", help="Copy the files and check each copy. By default, files are shared with the backup."
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace existing tables. The old ones are kept in /.replaced."),
    ] = False,
    changefeeds: Annotated[
        bool, typer.Option("--changefeeds", help="Create the changefeeds of the tables again.")
    ] = False,
    deadline: Annotated[
        int | None,
        typer.Option(
            "--deadline", metavar="SECONDS", min=1, help="Cancel and undo the restore after this time."
        ),
    ] = None,
    max_rate: MaxRate = None,
    copies: Copies = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Dry run: only show what would be done.")
    ] = False,
    nowait: NoWait = False,
) -> None:
    """Restore the tables of a collection with their indexes.

    By default, the last backup is restored. Existing tables are changed only with --replace."""
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
