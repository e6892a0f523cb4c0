"""``compact-backups``: turn an increment into a full backup, or merge neighbouring increments."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import (
    BACK_UP_AND_RESTORE,
    CollectionArgument,
    Copies,
    MaxRate,
    NoWait,
    command,
)
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(
        app, "compact-backups", BACK_UP_AND_RESTORE, example="strandline compact-backups nightly", quiet=True
    )(compact_backups)


def compact_backups(
    cli: Cli,
    collection: CollectionArgument,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="BACKUP", help="The backup to turn into a full one (default: the last)."
        ),
    ] = None,
    increments: Annotated[
        bool, typer.Option("--increments", help="Only merge neighbouring increments into one.")
    ] = False,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="BACKUP", help="With --increments: the first increment to merge."),
    ] = None,
    max_rate: MaxRate = None,
    copies: Copies = None,
    nowait: NoWait = False,
) -> None:
    """Merge a full backup and the increments after it into one full backup.

    Reads only the backups, not the tables."""
    from strandline.cli.statements import settings_of, start_operation
    from strandline.sql.statements import CompactBackups

    if first is not None and not increments:
        raise typer.BadParameter("it goes with --increments only", param_hint="--from")
    settings = settings_of(max_rate, copies)
    start_operation(cli, CompactBackups(collection, to, nowait, increments, first, settings=settings))
