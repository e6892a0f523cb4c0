"""``undrop``: bring back a dropped table or backup collection."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline import names
from strandline.cli import completion
from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(app, "undrop", BACK_UP_AND_RESTORE, example="strandline undrop /orders")(undrop)


def undrop(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            help="A dropped table (/orders) or backup collection (nightly); see strandline bin.",
            autocompletion=completion.dropped,
        ),
    ],
    as_name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Another name for it, if its own is taken.")
    ] = None,
) -> None:
    """Bring back a dropped table, or a dropped backup collection with its backups.

    A name without a slash is a backup collection, or a table if no such collection was dropped. The next
    backup of the collection is a full one."""
    from strandline.api.execute import run_statement
    from strandline.sql.statements import ShowBin, UndropBackupCollection, UndropTable

    with cli.database() as db:
        path = names.normalize(name)
        dropped = {str(row[0]) for row in run_statement(db, ShowBin()).rows()}
        if "/" in name or (name not in dropped and path in dropped):
            to = None if as_name is None else names.normalize(as_name)
            step = run_statement(db, UndropTable(path, to)).step
            back = {"table": to or path, "step": step}
            cli.output.result(back, lambda: cli.output.line(f"the table {to or path} is back"))
            return
        result = run_statement(db, UndropBackupCollection(name, as_name))
    answer = dict(zip(result.columns, result.rows()[0], strict=True))

    def tell() -> None:
        backups = names.count(answer["backups"], "backup")
        cli.output.line(f"the backup collection {answer['collection']} is back with {backups}")
        cli.output.line(f"its next backup is {answer['next_backup']}")

    cli.output.result(answer, tell)
