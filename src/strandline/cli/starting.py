"""``init``, ``version`` and ``demo``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from strandline.cli.options import command
from strandline.cli.session import MARKER, Cli

PANEL = "Start here"


def register(app: typer.Typer) -> None:
    command(app, "init", PANEL)(init)
    command(app, "demo", PANEL)(demo)
    command(app, "version", PANEL)(version)


def init(
    cli: Cli,
    folder: Annotated[
        str | None,
        typer.Argument(help="The folder to be the warehouse (else -w, else STRANDLINE_WAREHOUSE)."),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Make this the folder of a catalog that exists: its files were brought here from another place.",
        ),
    ] = False,
) -> None:
    """Create a warehouse. A folder that is one already stays as it is."""
    from strandline.api.connector import folder_of

    cli.warehouse = folder or cli.warehouse or os.environ.get("STRANDLINE_WAREHOUSE") or "."
    where = str(folder_of(cli.warehouse))
    there = os.path.exists(os.path.join(where, MARKER))
    with cli.database(create=True, adopt=adopt):
        pass
    made = "adopted the folder" if adopt else "created the warehouse"
    said = f"{where} is a warehouse already" if there else f"{made} {where}"
    cli.output.result({"warehouse": where, "created": not there}, lambda: cli.output.line(said))


def version(cli: Cli) -> None:
    """Say which versions are at work. Looks at no warehouse and starts no JVM."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from strandline import __version__

    found = {"strandline": __version__, "python": platform.python_version()}
    for package in ("pyspark", "pyarrow", "sqlalchemy"):
        try:
            found[package] = installed(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    cli.output.result(found, lambda: cli.output.fields(found.items()))


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
