"""``init``: create a warehouse."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import START_HERE, command
from strandline.cli.session import Cli
from strandline.names import MARKER


def register(app: typer.Typer) -> None:
    command(app, "init", START_HERE, example="strandline init shop")(init)


def init(
    cli: Cli,
    folder: Annotated[
        str | None,
        typer.Argument(
            help="The folder or URL (default: -w, then STRANDLINE_WAREHOUSE, then the current folder)."
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Connect the folder to its existing catalog, after the files were moved or copied here.",
        ),
    ] = False,
) -> None:
    """Create a warehouse. An existing warehouse is left unchanged."""
    from strandline.api.connector import place_of
    from strandline.storage.location import files_at

    cli.warehouse = folder or cli.warehouse or cli.configuration.text("warehouse") or "."
    where = place_of(cli.warehouse)
    there = files_at(where).exists(MARKER)
    with cli.database(create=True, adopt=adopt):
        pass
    made = "adopted the folder" if adopt else "created the warehouse"
    said = f"{where} is a warehouse already" if there else f"{made} {where}"
    cli.output.result({"warehouse": where, "created": not there}, lambda: cli.output.line(said))
