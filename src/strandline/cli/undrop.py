"""``undrop``: bring back a dropped backup collection."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.session import Cli
from strandline.names import count


def register(app: typer.Typer) -> None:
    command(app, "undrop", BACK_UP_AND_RESTORE, example="strandline undrop nightly")(undrop)


def undrop(
    cli: Cli,
    collection: Annotated[
        str, typer.Argument(help="The dropped backup collection; strandline bin lists them.")
    ],
    as_name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Another name for it, if its own is taken.")
    ] = None,
) -> None:
    """Bring back a dropped backup collection with its backups. Its next backup is a full one."""
    from strandline.api.execute import run_statement
    from strandline.sql.statements import UndropBackupCollection

    with cli.database() as db:
        result = run_statement(db, UndropBackupCollection(collection, as_name))
    answer = dict(zip(result.columns, result.rows()[0], strict=True))

    def tell() -> None:
        backups = count(answer["backups"], "backup")
        cli.output.line(f"the backup collection {answer['collection']} is back with {backups}")
        cli.output.line(f"its next backup is {answer['next_backup']}")

    cli.output.result(answer, tell)
