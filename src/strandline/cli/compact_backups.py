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
from strandline.sql.constants import constant
from strandline.sql.tokens import quote


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
    from strandline.cli.statements import limits, start_operation, with_settings

    if first is not None and not increments:
        raise typer.BadParameter("--from needs --increments", param_hint="--from")
    what = " INCREMENTS" if increments else ""
    since = "" if first is None else f" FROM {constant(first)}"
    at = "" if to is None else f" TO {constant(to)}"
    settings = with_settings(limits(max_rate, copies))
    start_operation(cli, f"COMPACT {quote(collection)}{what}{since}{at}{settings}", nowait=nowait)
