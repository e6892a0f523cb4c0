"""``demo``: the whole story, told by :mod:`strandline.demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import START_HERE, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(app, "demo", START_HERE)(demo)


def demo(
    cli: Cli,
    rows: Annotated[
        int, typer.Option("--rows", min=1000, help="How many orders the shop starts with.")
    ] = 200_000,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="FOLDER", help="Keep the warehouse in this folder to look around."),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option("--picture", metavar="FILE", help="Also write what was shown to an SVG file."),
    ] = None,
) -> None:
    """Tell the whole story in about a minute: an indexed shop, backups, a disaster, a restore, and the
    proof."""
    from strandline.demo import run

    report = run(folder=keep, catalog=cli.catalog_url(), rows=rows, quiet=cli.output.as_json, picture=picture)
    cli.output.result(report, lambda: None)
