"""``compact-backups``: an increment becomes a full backup, so that what comes before it may go."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, NoWait, command
from strandline.cli.session import Cli
from strandline.sql.constants import constant
from strandline.sql.tokens import quote


def register(app: typer.Typer) -> None:
    command(app, "compact-backups", BACK_UP_AND_RESTORE)(compact_backups)


def compact_backups(
    cli: Cli,
    collection: CollectionArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="BACKUP", help="The backup; without it, the last one.")
    ] = None,
    nowait: NoWait = False,
) -> None:
    """Fold a full backup and the increments after it into one full backup, without reading the tables."""
    from strandline.cli.statements import start_operation

    at = "" if to is None else f" TO {constant(to)}"
    start_operation(cli, f"COMPACT {quote(collection)}{at}", nowait=nowait)
