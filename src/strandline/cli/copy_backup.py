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
from strandline.sql.tokens import quote


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
    from strandline.cli.statements import limits, place, start_operation, with_settings
    from strandline.sql.constants import constant

    text = f"COPY BACKUP {constant(backup)} FROM {quote(collection)} TO {constant(place(to))}"
    settings = [] if encrypt is None else [f"ENCRYPTION = '{str(encrypt).lower()}'"]
    start_operation(cli, text + with_settings([*settings, *limits(max_rate, copies)]), nowait=nowait)
