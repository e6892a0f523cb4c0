"""``prune``: remove the backups that no retention rule keeps."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.drop_backup import run_removal
from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, Confirm, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(
        app,
        "prune",
        BACK_UP_AND_RESTORE,
        example="strandline prune nightly --keep-daily 7 --keep-weekly 4 --confirm",
        quiet=True,
    )(prune)


def _newest(rule: str, period: str) -> Any:
    told = f"Keep the newest backup of each of the last N {period} that have one."
    return typer.Option(f"--keep-{rule}", metavar="N", min=1, help=told)


def prune(
    cli: Cli,
    collection: CollectionArgument,
    *,
    last: Annotated[
        int | None,
        typer.Option(
            "--keep-last", metavar="N", min=1, help="Keep the last N full backups, with their increments."
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            "--keep-within", metavar="TIME", help="Keep backups younger than this: 90m, 12h, 30d or 2w."
        ),
    ] = None,
    daily: Annotated[int | None, _newest("daily", "days")] = None,
    weekly: Annotated[int | None, _newest("weekly", "weeks")] = None,
    monthly: Annotated[int | None, _newest("monthly", "months")] = None,
    yearly: Annotated[int | None, _newest("yearly", "years")] = None,
    confirm: Confirm = False,
) -> None:
    """Remove the backups that no retention rule keeps.

    Without --keep options, the RETENTION of the collection applies. Without --confirm it is a dry run: it
    shows for each backup whether it would be removed, and why."""
    from strandline.sql.retention_rules import Keep
    from strandline.sql.statements import Prune

    keep = Keep(last=last, within=within, daily=daily, weekly=weekly, monthly=monthly, yearly=yearly)
    run_removal(cli, Prune(collection, None if keep == Keep() else keep, confirm))
