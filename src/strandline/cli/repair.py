"""``repair``: replace damaged objects of backups."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, command
from strandline.cli.session import Cli
from strandline.cli.verify import tell_report


def register(app: typer.Typer) -> None:
    command(
        app, "repair", BACK_UP_AND_RESTORE, example="strandline repair nightly --from /mnt/copy", quiet=True
    )(repair)


def repair(
    cli: Cli,
    collection: CollectionArgument,
    *,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="A copy of the repository with intact objects."),
    ] = None,
) -> None:
    """Replace damaged objects of a collection's backups.

    Intact objects are copied from the warehouse, other collections or a copy of the repository. Exit code 11
    if objects stay damaged."""
    with cli.database() as db:
        report = db.repair(collection, source=source)
    tell_report(cli, collection, report)
