"""``restore``: restore the tables of a collection from a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline import names
from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, Copies, MaxRate, NoWait, command
from strandline.cli.session import Cli
from strandline.errors import InvalidArgument

if TYPE_CHECKING:
    from strandline.sql.statements import RestoreTable


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
            "--at",
            metavar="BACKUP|STEP|TIME",
            help="A backup's name, a step, or a time such as 2026-01-31T12:00:00Z.",
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
    from strandline.cli.statements import run_group, settings_of, start_operation
    from strandline.sql.at import parse_at
    from strandline.sql.statements import ExplainStatement, Restore

    moment = parse_at(at, "--at", or_backup=True)
    statement = Restore(
        collection,
        moment.backup,
        at_step=moment.step,
        at_timestamp=moment.time,
        tables=tuple(map(_table, tables or [])),
        into=None if into is None else names.normalize(into),
        settings=settings_of(
            max_rate,
            copies,
            VERIFY="data" if verify else None,
            MODE="copy" if copy else None,
            REPLACE=replace,
            DEADLINE=deadline,
            CHANGEFEEDS=changefeeds,
        ),
        nowait=nowait,
    )
    if explain:
        with cli.database() as db:
            run_group(cli, db, [ExplainStatement(statement)])
        return
    start_operation(cli, statement)


def _table(text: str) -> RestoreTable:
    """Parse ``TABLE`` or ``TABLE=NEW``."""
    from strandline.sql.statements import RestoreTable

    path, equals, new = text.partition("=")
    if not path or (equals and not new):
        raise InvalidArgument(f"--table cannot be {text!r}", "Write --table TABLE or --table TABLE=NEW.")
    return RestoreTable(names.normalize(path), names.normalize(new) if equals else None)
