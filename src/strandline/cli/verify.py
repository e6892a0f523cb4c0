"""``verify``: check whether the backups of a collection can still be restored."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, command
from strandline.cli.session import Cli
from strandline.cli.values import moment, size
from strandline.errors import Corrupted
from strandline.names import count

if TYPE_CHECKING:
    from strandline.backups.verify.verify import VerifyReport


def register(app: typer.Typer) -> None:
    command(
        app,
        "verify",
        BACK_UP_AND_RESTORE,
        example="strandline verify nightly --level checksums --sample 10",
        quiet=True,
    )(verify)


def verify(
    cli: Cli,
    collection: CollectionArgument,
    *,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="BACKUP", help="Only this backup and the backups that it builds on."),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            "--level",
            metavar="LEVEL",
            help="chain (records and manifests), files (existence and size of objects), checksums (every "
            "byte) or restore (a trial restore of the end of each chain).",
        ),
    ] = "checksums",
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="PERCENT",
            min=1,
            max=100,
            help="Check this percentage of objects, least recently checked first.",
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also check what was verified before.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Replace damaged objects, as the command repair does.")
    ] = False,
) -> None:
    """Verify the backups of a collection, and show whether each can still be restored.

    By default, only what is new since the last verification is checked. Exit code 11 if problems are
    found."""
    if cli.service is not None:
        from strandline.cli.remote import verify_at_service

        verify_at_service(cli, collection, at=at, level=level, sample=sample, again=again)
        return
    with cli.database() as db:
        report = db.verify(collection, at=at, level=level, sample=sample, again=again, repair=repair)
    tell_report(cli, collection, report)


def tell_report(cli: Cli, collection: str, report: VerifyReport) -> None:
    """Print a report; raise CORRUPTED if it has problems."""
    cli.output.result(_plain(report), lambda: _tell(cli, report))
    if report:
        newest = report.newest_restorable
        raise Corrupted(
            f"{count(len(report), 'problem')} found in the backups of {collection}",
            f"The newest backup that can still be restored is {newest}."
            if newest
            else "No backup of it is known to be restorable. Repair them "
            f"(strandline repair {shlex.quote(collection)}), or take a full backup.",
        )


def _plain(report: VerifyReport) -> dict[str, Any]:
    found = report.to_dict()
    for backup in found["backups"]:
        backup["verified_at"] = moment(backup["verified_at"])
    return found


def _tell(cli: Cli, report: VerifyReport) -> None:
    columns = ("backup", "objects", "bytes", "problems", "restorable", "verified since")
    rows = [
        (
            b.backup,
            b.objects,
            size(b.bytes),
            b.problems,
            "yes" if b.restorable else "no",
            moment(b.verified_at) or "",
        )
        for b in report.backups
    ]
    cli.output.table(columns, rows, count=False)
    for b in report.backups:
        if not b.restorable:
            cli.output.line(f"{b.backup} cannot be restored: {b.because}")
    if report.unnamed_objects:
        cli.output.line(f"{count(report.unnamed_objects, 'object')} of the repository belong to no backup")
    for each in report.repaired:
        healed = f"repaired from {each.healed_from}" if each.healed_from else f"not repaired: {each.problem}"
        cli.output.line(f"{each.object} of {each.backup}: {healed}")
    for problem in report:
        cli.output.line(f"{problem.kind} in {problem.path}: {problem.message}")
