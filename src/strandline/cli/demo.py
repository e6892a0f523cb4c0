"""``demo``: run the demonstration of :mod:`strandline.demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import START_HERE, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(app, "demo", START_HERE, example="strandline demo --keep shop")(demo)


def demo(
    cli: Cli,
    rows: Annotated[
        int, typer.Option("--rows", min=1000, help="Number of orders in the shop at the start.")
    ] = 200_000,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="FOLDER", help="Keep the warehouse in this folder."),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option("--picture", metavar="FILE", help="Also write the output to an SVG file."),
    ] = None,
) -> None:
    """Show backup and restore of a sample shop, in about a minute.

    Creates indexed tables, backs them up, destroys them, restores them and compares the result."""
    from strandline.demo import run

    report = run(folder=keep, catalog=cli.catalog_url(), rows=rows, quiet=cli.output.as_json, picture=picture)
    cli.output.result(report, lambda: None)
