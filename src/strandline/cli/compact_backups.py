"""``compact-backups``: an increment becomes a full backup, so that what comes before it may go; or
neighbouring increments become one."""

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
    command(app, "compact-backups", BACK_UP_AND_RESTORE, quiet=True)(compact_backups)


def compact_backups(
    cli: Cli,
    collection: CollectionArgument,
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="BACKUP", help="The backup; without it, the last one.")
    ] = None,
    increments: Annotated[
        bool, typer.Option("--increments", help="Only let neighbouring increments become one.")
    ] = False,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="BACKUP", help="With --increments: leave those before it alone."),
    ] = None,
    max_rate: MaxRate = None,
    copies: Copies = None,
    nowait: NoWait = False,
) -> None:
    """Fold a full backup and the increments after it into one full backup, without reading the tables."""
    from strandline.cli.statements import limits, start_operation, with_settings

    if first is not None and not increments:
        raise typer.BadParameter("it goes with --increments only", param_hint="--from")
    what = " INCREMENTS" if increments else ""
    since = "" if first is None else f" FROM {constant(first)}"
    at = "" if to is None else f" TO {constant(to)}"
    settings = with_settings(limits(max_rate, copies))
    start_operation(cli, f"COMPACT {quote(collection)}{what}{since}{at}{settings}", nowait=nowait)
