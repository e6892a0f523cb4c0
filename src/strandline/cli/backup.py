"""``backup``: take a full or an incremental backup of a collection."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, Copies, MaxRate, NoWait, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(
        app, "backup", BACK_UP_AND_RESTORE, example="strandline backup nightly --incremental", quiet=True
    )(backup)


def backup(
    cli: Cli,
    collection: CollectionArgument,
    *,
    incremental: Annotated[
        bool, typer.Option("--incremental", "-i", help="Copy only what changed since the last backup.")
    ] = False,
    full_if_needed: Annotated[
        bool,
        typer.Option(
            "--full-if-needed",
            help="Take an incremental backup, or a full one if that is not possible or could not be "
            "restored. The result says why.",
        ),
    ] = False,
    max_rate: MaxRate = None,
    copies: Copies = None,
    nowait: NoWait = False,
) -> None:
    """Back up the tables of a collection with their indexes.

    The backup is consistent: all tables are copied as of the same step. Without options it is a full one."""
    from strandline.cli.statements import settings_of, start_operation
    from strandline.sql.statements import Backup

    start_operation(
        cli,
        Backup(
            collection,
            incremental=incremental or full_if_needed,
            or_full=full_if_needed,
            settings=settings_of(max_rate, copies),
            nowait=nowait,
        ),
    )
