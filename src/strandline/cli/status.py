"""``status``: show what can be restored and what needs attention; the exit code suits monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.options import LOOK_AROUND, command
from strandline.cli.output import Output
from strandline.cli.session import Cli
from strandline.cli.values import moment, size
from strandline.names import count
from strandline.sql.durations import hours, parse_period

if TYPE_CHECKING:
    from strandline.api.status import CollectionStatus, LastBackup, Status


THRESHOLDS = (
    "backup_warning",
    "backup_critical",
    "verified_warning",
    "chain_warning",
    "operation_warning",
    "stream_warning",
)
"""Arguments of commands that are thresholds of the status."""


def register(app: typer.Typer) -> None:
    command(app, "status", LOOK_AROUND, example="strandline status --backup-warning 26h", quiet=True)(status)


def _time(name: str, help_: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar="TIME", help=help_)
    return option


BackupWarning = Annotated[
    str | None, _time("--backup-warning", "Warn if the last good backup is older (default: 26h).")
]
BackupCritical = Annotated[
    str | None, _time("--backup-critical", "Critical if it is older than this (default: 50h).")
]
VerifiedWarning = Annotated[
    str | None, _time("--verified-warning", "Warn if the last verification is older (default: 8d).")
]
ChainWarning = Annotated[
    int | None,
    typer.Option(
        "--chain-warning",
        metavar="NUMBER",
        min=1,
        help="Warn if a restore needs more backups than this (default: 100).",
    ),
]
OperationWarning = Annotated[
    str | None,
    _time("--operation-warning", "Warn if an operation made no progress for this time (default: 1h)."),
]
StreamWarning = Annotated[
    str | None,
    _time("--stream-warning", "Warn if the reader of a changefeed is further behind (default: 1d)."),
]


def status(
    cli: Cli,
    *,
    backup_warning: BackupWarning = None,
    backup_critical: BackupCritical = None,
    verified_warning: VerifiedWarning = None,
    chain_warning: ChainWarning = None,
    operation_warning: OperationWarning = None,
    stream_warning: StreamWarning = None,
) -> int:
    """Show up to when each backup collection can be restored, and what needs attention.

    The first lines say up to when each collection can be restored from its storage, at which level that was
    proved, and whether its objectives are met. "Elsewhere" means even if this machine is lost; "here" means
    with its warehouse. Exit code 0: no problem,
    1: warning, 2: critical. Starts no JVM."""
    thresholds = read_thresholds(locals())
    with cli.database() as db:
        found = db.status(**thresholds)
    cli.output.result(found, lambda: _tell(cli.output, found))
    from strandline.api.status import GRADES

    return GRADES.index(found.level)


def read_thresholds(given: dict[str, Any]) -> dict[str, float]:
    """Return the thresholds among the arguments of a command."""
    found = {name: given[name] for name in THRESHOLDS if given[name] is not None}
    return {name: parse_period(v) if isinstance(v, str) else float(v) for name, v in found.items()}


def _tell(output: Output, status: Status) -> None:
    from strandline.cli.failures import hint_for_shell

    for collection in status.collections:
        output.line(_protection(collection))
    if status.collections:
        columns = (
            "collection",
            "restorable elsewhere until",
            "here until",
            "last full",
            "last increment",
            "chain",
            "verified",
        )
        output.table(columns, [_row(collection) for collection in status.collections], count=False)
    else:
        output.line("there are no backup collections")
    for operation in status.operations:
        does = "is being cancelled, and began" if operation.state == "cancelling" else "is running since"
        output.line(f"{operation.kind} {operation.id} {does} {moment(operation.created)}")
    for stream in status.streams:
        if stream.steps:
            output.line(f"{stream.path} is {count(stream.steps, 'step')} behind")
    writes = status.writes
    if writes.merged_bytes:
        output.line(
            f"commits have written {size(writes.committed_bytes)}, merges {size(writes.merged_bytes)}"
            + (f" ({writes.write_amplification:.1f}x)" if writes.write_amplification else "")
        )
    for attention in status.attention:
        output.line(f"{attention.level}: {attention.about}: {attention.message}")
        output.line(f"    {hint_for_shell(attention.hint)}")
    for suggestion in status.suggestions:
        output.line(f"suggestion: {suggestion.about}: {suggestion.message}")
        output.line(f"    {hint_for_shell(suggestion.hint)}")
    if not status.attention:
        output.line("all is fine")


def _protection(collection: CollectionStatus) -> str:
    """Return the line about a collection: restorable until when, proved when, and its objectives."""
    found = collection.protection
    until, proved = moment(found.restorable_until), moment(found.proved_at)
    said = [
        "no backup can be restored"
        if found.age is None
        else f"restorable until {until} ({hours(found.age)} ago)",
        "not proved yet" if proved is None else f"proved at level {found.proved_level} on {proved}",
    ]
    for name, seconds in (("rpo", found.rpo), ("proved_within", found.proved_within)):
        if seconds is not None:
            said.append(f"{name.upper()} {'missed' if name in found.missed else 'met'}")
    if found.away is not None:
        said.append("the repository is away: these are the last known values")
    return f"{collection.name}: {', '.join(said)}"


def _row(collection: CollectionStatus) -> tuple[str, ...]:
    verified = collection.verified
    return (
        collection.name,
        moment(collection.restorable_until) or "never",
        moment(collection.restorable_here_until) or "never",
        _ago(collection.last_full),
        _ago(collection.last_increment),
        str(collection.chain_length),
        "never" if verified is None else f"{hours(verified.age)} ago ({verified.level})",
    )


def _ago(backup: LastBackup | None) -> str:
    return "none" if backup is None else f"{hours(backup.age)} ago"
