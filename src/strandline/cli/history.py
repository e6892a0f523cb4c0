"""``history``: show the commits of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline import names
from strandline.cli.options import LOOK_AROUND, PathArgument, command
from strandline.cli.session import Cli
from strandline.cli.values import moment


def register(app: typer.Typer) -> None:
    command(app, "history", LOOK_AROUND, example="strandline history /orders --limit 10")(history)


def history(
    cli: Cli,
    path: PathArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show the last commits only.")] = 20,
) -> None:
    """Show the last commits of a table: step, time, author, kind of statement, and numbers of rows.

    RESTORE TABLE brings back the rows of any step that is readable."""
    with cli.database() as db:
        found = db.table(names.normalize(path)).history(limit)
    answer = [{**event._asdict(), "time": moment(event.time)} for event in found]
    columns = ("step", "time", "author", "statement", "inserted", "updated", "deleted", "rows", "readable")
    rows = [[entry[name] for name in columns] for entry in answer]
    cli.output.result(answer, lambda: cli.output.table(columns, rows))
