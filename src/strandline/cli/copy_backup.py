"""``copy-backup``: copy a backup and its chain to another repository."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import (
    BACK_UP_AND_RESTORE,
    BackupArgument,
    CollectionArgument,
    Copies,
    MaxRate,
    NoWait,
    command,
)
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(
        app,
        "copy-backup",
        BACK_UP_AND_RESTORE,
        example="strandline copy-backup nightly BACKUP --to s3://bucket/folder",
        quiet=True,
    )(copy_backup)


def copy_backup(
    cli: Cli,
    collection: CollectionArgument,
    backup: BackupArgument,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="The target: a folder or a URL. It may be new.")
    ],
    encrypt: Annotated[
        bool | None,
        typer.Option(
            "--encrypt/--no-encrypt",
            help="Encrypt the copy, or not (default: like the repository of the collection).",
        ),
    ] = None,
    max_rate: MaxRate = None,
    copies: Copies = None,
    nowait: NoWait = False,
) -> None:
    """Copy a backup and the backups that it builds on to another repository.

    Files that the target has already are not copied again."""
    from strandline.cli.statements import place, settings_of, start_operation
    from strandline.sql.statements import CopyBackup

    settings = settings_of(max_rate, copies, ENCRYPTION=encrypt)
    start_operation(cli, CopyBackup(backup, collection, place(to), settings, nowait))
