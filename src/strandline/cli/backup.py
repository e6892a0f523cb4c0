"""``backup``: the tables of a collection, in full or what changed."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, Copies, MaxRate, NoWait, command
from strandline.cli.session import Cli
from strandline.sql.tokens import quote


def register(app: typer.Typer) -> None:
    command(app, "backup", BACK_UP_AND_RESTORE, quiet=True)(backup)


def backup(
    cli: Cli,
    collection: CollectionArgument,
    *,
    incremental: Annotated[
        bool, typer.Option("--incremental", "-i", help="Only what changed since the last backup.")
    ] = False,
    full_if_needed: Annotated[
        bool,
        typer.Option(
            "--full-if-needed", help="Only what changed, or a full one where that is not possible, and why."
        ),
    ] = False,
    max_rate: MaxRate = None,
    copies: Copies = None,
    nowait: NoWait = False,
) -> None:
    """Back up the tables of a collection with their indexes, all at one step: in full, or what changed since
    the last backup."""
    from strandline.cli.statements import limits, start_operation, with_settings

    how = " INCREMENTAL OR FULL" if full_if_needed else " INCREMENTAL" if incremental else ""
    settings = with_settings(limits(max_rate, copies))
    start_operation(cli, f"BACKUP {quote(collection)}{how}{settings}", nowait=nowait)
