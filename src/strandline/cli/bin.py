"""``bin``: list dropped tables and backup collections that ``undrop`` can bring back."""

from __future__ import annotations

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.session import Cli
from strandline.cli.values import size


def register(app: typer.Typer) -> None:
    command(app, "bin", BACK_UP_AND_RESTORE, example="strandline bin")(bin_)


def bin_(cli: Cli) -> None:
    """List dropped tables and backup collections that undrop can bring back.

    Shows until when each can be brought back, and its size."""
    from strandline.api.execute import run_statement
    from strandline.sql.statements import ShowBin

    with cli.database() as db:
        found = run_statement(db, ShowBin())
        rows = found.rows()
    answer = [dict(zip(found.columns, row, strict=True)) for row in rows]
    shown = [(*row[:-1], size(row[-1])) for row in rows]
    cli.output.result(answer, lambda: cli.output.table((*found.columns[:-1], "size"), shown))
