"""``bin``: what was dropped and can be brought back."""

from __future__ import annotations

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.session import Cli
from strandline.cli.values import size


def register(app: typer.Typer) -> None:
    command(app, "bin", BACK_UP_AND_RESTORE)(bin_)


def bin_(cli: Cli) -> None:
    """List what was dropped and can be brought back with undrop: until when, and how many bytes it holds."""
    with cli.database() as db:
        found = db.sql("SHOW BIN")
        rows = found.rows()
    answer = [dict(zip(found.columns, row, strict=True)) for row in rows]
    shown = [(*row[:-1], size(row[-1])) for row in rows]
    cli.output.result(answer, lambda: cli.output.table((*found.columns[:-1], "size"), shown))
