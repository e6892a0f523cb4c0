"""Find the problems of a warehouse that need attention.

``db.status()`` lists these problems, and alarms are raised for them. So the two never disagree.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count

from sqlalchemy import Connection

from strandline import names, records
from strandline.alarms.problem import GRADES, Attention, Grade, ProblemKind
from strandline.backups.collection import CLUSTER, CollectionRecord
from strandline.backups.health import Protection, Standing, Unprotected, find_unprotected, standings
from strandline.backups.verify.verify_kind import VerifyBackups
from strandline.catalog import alarms, monitoring, owners, schedules
from strandline.catalog.alarms import ChannelRow
from strandline.catalog.monitoring import Failed, Lag, Unfinished
from strandline.catalog.operations import Failure
from strandline.catalog.schedules import FAILED, SKIPPED, RunRow
from strandline.schedules.schedule import WORK_OF, Due, Work
from strandline.schedules.scheduler import LATE_SECONDS, BackupScheduler, find_overdue
from strandline.sql.constants import constant
from strandline.sql.durations import hours
from strandline.sql.tokens import word

FAILURES = 3
"""Number of failed attempts after which the failure of a channel is a problem."""
LISTED = 5
"""Maximum number of tables that a message names."""

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Thresholds above which the status reports a problem, in seconds except ``chain_warning``."""

    backup_warning: float = 26 * HOUR
    """Warn when the last backup that can be restored from the collection's storage is older than this."""
    backup_critical: float = 50 * HOUR
    """As ``backup_warning``, for the level critical."""
    verified_warning: float = 8 * DAY
    """Age of the last verification of a collection, at any level."""
    chain_warning: float = 100
    """Number of backups that a restore of the last backup needs."""
    operation_warning: float = HOUR
    """Time without progress of an operation that has not ended."""
    stream_warning: float = DAY
    """Age of the oldest change that the reader of a changefeed has not committed."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A possible improvement. It does not change the level of the status."""

    about: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What one snapshot of the catalog says about backups, operations, schedules and changefeeds.

    Attributes:
        orphans: Ids of operations whose process has died.
        overdue: Tasks that were due and not started, with the names of their schedules.
        failed_runs: Last runs that failed and are not retried, or that were missed and skipped, with the
            names of schedule and collection.
    """

    standings: tuple[Standing, ...]
    unfinished: tuple[Unfinished, ...]
    orphans: frozenset[str]
    failed: tuple[Failed, ...]
    overdue: tuple[tuple[str, Due], ...]
    failed_runs: tuple[tuple[str, str | None, RunRow], ...]
    lags: tuple[Lag, ...]
    left_out: Unprotected
    channels: tuple[ChannelRow, ...]


def observe(conn: Connection, now: float, scratch_tables: str | None) -> Observed:
    """Read what the problems are derived from.

    The number of queries does not depend on the number of collections, schedules and operations.
    """
    found = tuple(standings(conn))
    return Observed(
        standings=found,
        unfinished=tuple(monitoring.list_unfinished(conn)),
        orphans=frozenset(owners.orphans(conn, now)),
        failed=tuple(monitoring.failed_operations(conn)),
        overdue=tuple(find_overdue(conn, now)),
        failed_runs=tuple(_failed_runs(conn)),
        lags=tuple(sorted(monitoring.lags(conn).values(), key=lambda lag: lag.stream)),
        left_out=find_unprotected(conn, [standing.collection for standing in found], scratch_tables),
        channels=tuple(alarms.list_channels(conn)),
    )


def _failed_runs(conn: Connection) -> Iterator[tuple[str, str | None, RunRow]]:
    by_id = {row.id: row for row in schedules.list_schedules(conn)}
    for run in schedules.list_last_runs(conn):
        if (run.state == FAILED and run.retry_at is None) or _is_missed(run):
            row = by_id[run.schedule_id]
            record = BackupScheduler.read(row)
            yield row.name, None if record is None else record.collection, run


def _is_missed(run: RunRow) -> bool:
    """Return whether a run was skipped because no scheduler ran when it was due."""
    return run.state == SKIPPED and run.ended is not None and run.ended - run.due > LATE_SECONDS


def find_problems(
    observed: Observed, protections: Mapping[str, Protection], thresholds: Thresholds, now: float
) -> list[Attention]:
    """Return the problems, the most severe first.

    Args:
        protections: How well each collection is protected, by its name.
    """
    # A failed upload is reported as the reason why backups are missing in the repository. Once all backups
    # are uploaded, the failed upload is not reported any more. The operation of a failed run is reported with
    # the run.
    sends = {each.collection: each for each in observed.failed if _brings_home(each)}
    there = {None, *protections}
    of_runs = {run.operation_id for _, _, run in observed.failed_runs}
    found = [
        *(
            a
            for standing in observed.standings
            for a in _of_collection(
                standing,
                protections[standing.collection.name],
                sends.get(standing.collection.name),
                thresholds,
                now,
            )
        ),
        *_of_tables(observed.left_out, observed.standings),
        *(a for each in observed.unfinished for a in _of_operation(each, observed.orphans, thresholds, now)),
        *(
            _of_failure(each)
            for each in observed.failed
            if each.collection in there and not _brings_home(each) and each.id not in of_runs
        ),
        *(a for lag in observed.lags for a in _of_stream(lag, thresholds, now)),
        *(_of_overdue(name, due, now) for name, due in observed.overdue),
        *(_of_run(*each) for each in observed.failed_runs),
        *(a for each in observed.channels for a in _of_channel(each, now)),
    ]
    return sorted(found, key=lambda a: -GRADES.index(a.level))


def _of_collection(
    standing: Standing,
    protection: Protection,
    failed_send: Failed | None,
    thresholds: Thresholds,
    now: float,
) -> Iterator[Attention]:
    name = standing.collection.name

    def say(level: Grade, kind: ProblemKind, message: str, hint: str) -> Attention:
        return _problem(level, kind, name, message, hint)

    if (why := protection.missed.get("rpo")) is not None:
        yield say("critical", "rpo_missed", why, f"Back it up: BACKUP {word(name)}{_how(standing)}.")
    if protection.away is not None:
        yield say(
            "warning",
            "repository_away",
            f"its repository {standing.storage} is away: {protection.away}. What is known of its backups is "
            "as of the last time that it could be reached",
            "Mount it, or start its server again. The next backup uploads the backups that wait.",
        )
    if standing.last is None:
        yield say("critical", "no_backup", "it has no backup", f"Take one: BACKUP {word(name)}.")
        return
    if (why := protection.missed.get("proved_within")) is not None:
        yield say("critical", "proof_missed", why, f"Verify it: strandline verify {shlex.quote(name)}.")
    if standing.restorable is None:
        yield say(
            "critical",
            "not_restorable",
            "none of its backups can be restored",
            f"Repair them: REPAIR {word(name)}; or take a new full one: BACKUP {word(name)}; then verify.",
        )
        return
    last = standing.last[1]
    if standing.restorable.name != last.name:
        yield say(
            "critical",
            "not_restorable",
            f"{last.name} cannot be restored, only {standing.restorable.name} and older backups",
            f"See why: strandline verify {shlex.quote(name)}. Repair it: REPAIR {word(name)}; or take a new "
            f"full one: BACKUP {word(name)}.",
        )
    if older := standing.broken_before(standing.restorable):
        others = f" and {len(older) - 1} more" if len(older) > 1 else ""
        yield say(
            "warning",
            "older_not_restorable",
            f"{older[-1].name}{others} cannot be restored",
            f"See why: strandline verify {shlex.quote(name)}. Repair it: REPAIR {word(name)}; or "
            "drop it with the backups that build on it: "
            f"DROP BACKUP {word(name)} {constant(older[-1].name)} CONFIRM.",
        )
    if standing.waiting:
        yield _of_unsent(standing, failed_send)
    # Another warehouse takes the backups of an attached collection, and reports when they are too old. The
    # objectives of a collection replace the general thresholds.
    if protection.rpo is None and not standing.collection.record(CollectionRecord).attached:
        yield from _of_age(standing, thresholds, now)
    if standing.chain_length > thresholds.chain_warning:
        yield say(
            "warning",
            "chain_long",
            f"a restore of its last backup needs {standing.chain_length} backups",
            f"Compact the chain: COMPACT {word(name)}.",
        )
    verified = max(standing.verified.values(), default=None)
    age = _age(standing.backups[0][1].time if verified is None else verified, now)
    if protection.proved_within is None and age > thresholds.verified_warning:
        never = "was never verified" if verified is None else f"was last verified {hours(age)} ago"
        hint = f"Verify it: strandline verify {shlex.quote(name)}."
        yield say("warning", "not_verified", f"it {never}", hint)


def _of_age(standing: Standing, thresholds: Thresholds, now: float) -> Iterator[Attention]:
    """Yield a problem if the last backup that can be restored from the collection's storage is too old."""
    name, kept = standing.collection.name, standing.kept
    where = "" if standing.storage == CLUSTER else " after losing this machine"
    age = _age(standing.backups[0][1].time if kept is None else kept.time, now)
    if age > thresholds.backup_warning:
        yield _problem(
            "critical" if age > thresholds.backup_critical else "warning",
            "backup_old",
            name,
            f"nothing can be restored{where} for {hours(age)}"
            if kept is None
            else f"its last backup that can be restored{where} is {hours(age)} old",
            f"Back it up: BACKUP {word(name)}{_how(standing)}.",
        )


def _how(standing: Standing) -> str:
    """Return the clause that the next BACKUP of a collection needs, or an empty text."""
    return " INCREMENTAL OR FULL" if standing.collection.record(CollectionRecord).settings.incremental else ""


def _of_unsent(standing: Standing, failed_send: Failed | None) -> Attention:
    """Build the problem that backups are not uploaded to the repository.

    The problem is critical if the repository has no backup that can be restored.
    """
    name, waiting = standing.collection.name, standing.waiting
    why = None if failed_send is None else _failure(failed_send)
    retry = f"BACKUP {word(name)}{_how(standing)}."
    message = (
        f"{names.count(len(waiting), 'backup')}, the last {waiting[-1].name}, would be lost with this "
        f"machine: not in the repository {standing.storage}"
    )
    if standing.restorable_elsewhere is None:
        message += ", which has no backup that can be restored"
    return _problem(
        "critical" if standing.restorable_elsewhere is None else "warning",
        "not_uploaded",
        name,
        message if why is None else f"{message} ({why.message})",
        f"Check that it can be reached. The next backup uploads them: {retry}"
        if why is None
        else f"{why.hint} The next backup uploads them: {retry}",
    )


def _of_tables(left_out: Unprotected, found: Sequence[Standing]) -> Iterator[Attention]:
    """Yield the problems of tables that are not backed up."""
    here = {standing.collection.name: standing for standing in found}
    for name, tables in left_out.attached.items():
        storage = here[name].storage
        yield _problem(
            "warning",
            "not_backed_up",
            name,
            f"no backup is taken of {_list_tables(tables)}: the repository {storage} belongs to "
            "another warehouse or collection",
            f"If that one is lost, take the repository over: ATTACH BACKUP COLLECTION {word(name)} FROM "
            f"{constant(storage)} WITH (TAKE_OVER = 'true'); BACKUP {word(name)}. Otherwise create a "
            "collection with its own repository.",
        )
    for name, tables in left_out.missing.items():
        drops = ", ".join(f"DROP TABLE {word(path.lstrip('/'))}" for path in tables[:LISTED])
        yield _problem(
            "warning",
            "tables_missing",
            name,
            f"it cannot be backed up, because members are missing: {_list_tables(tables)}",
            "Create or restore the missing tables, or remove them: ALTER BACKUP COLLECTION "
            f"{word(name)} {drops}.",
        )
    if not left_out.others:
        return
    named = ", ".join(f"TABLE {word(path.lstrip('/'))}" for path in left_out.others[:LISTED])
    own = next((s.collection.name for s in found if not s.collection.record(CollectionRecord).attached), None)
    new = next(name for name in map("nightly{}".format, chain([""], count(2))) if name not in here)
    remedy = (
        f"Create a collection: CREATE BACKUP COLLECTION {new} ({named}) WITH (STORAGE = "
        f"'s3://bucket/folder', INCREMENTAL_BACKUP_ENABLED = 'true'); BACKUP {new}."
        if own is None
        else f"Add them to a collection: ALTER BACKUP COLLECTION {word(own)} "
        + ", ".join(f"ADD TABLE {word(path.lstrip('/'))}" for path in left_out.others[:LISTED])
        + f"; BACKUP {word(own)}."
    )
    yield _problem(
        "warning",
        "tables_unprotected",
        "tables",
        f"no backup collection has {_list_tables(left_out.others)}",
        f"{remedy} Add tables that need no backup to the setting scratch_tables.",
    )


def _list_tables(tables: Sequence[str]) -> str:
    shown, more = ", ".join(tables[:LISTED]), len(tables) - LISTED
    return f"{names.count(len(tables), 'table')}: {shown}" + (f" and {more} more" if more > 0 else "")


def find_suggestions(standing: Standing) -> Iterator[Suggestion]:
    collection, name = standing.collection.record(CollectionRecord), standing.collection.name
    if collection.attached:
        return
    if standing.storage == CLUSTER:
        yield Suggestion(
            about=name,
            message="its backups are stored in the warehouse, and would be lost with it",
            hint=f"Store them in a repository: ALTER BACKUP COLLECTION {word(name)} SET (STORAGE = "
            f"'s3://bucket/folder'); BACKUP {word(name)}. A folder on another machine works as well.",
        )
    if not collection.settings.incremental:
        yield Suggestion(
            about=name,
            message="each of its backups is a full one",
            hint="Allow incremental backups: ALTER BACKUP COLLECTION "
            f"{word(name)} SET (INCREMENTAL_BACKUP_ENABLED = 'true'); BACKUP {word(name)}.",
        )


def _of_operation(
    operation: Unfinished, orphans: frozenset[str], thresholds: Thresholds, now: float
) -> Iterator[Attention]:
    hint = f"Continue it with db.wait({operation.id!r}), or undo it with db.cancel({operation.id!r})."
    if operation.state == "cancelling":
        hint = f"It is being undone. Complete that with db.wait({operation.id!r})."
    silent = _age(operation.changed, now)
    if operation.id in orphans:
        message = f"the process of this {operation.kind} has died"
    elif silent > thresholds.operation_warning:
        message = f"this {operation.kind} has made no progress for {hours(silent)}"
    else:
        return
    yield _problem("warning", "operation_stuck", operation.id, message, hint)


def _brings_home(failed: Failed) -> bool:
    """Return whether a failed operation was an upload to the repository of its collection."""
    return failed.kind == "send backup" and failed.elsewhere is None


def _failure(failed: Failed) -> Failure | None:
    if failed.error is None:
        return None
    return records.from_text(Failure, failed.error, f"the error of operation {failed.id}")


def _of_failure(failed: Failed) -> Attention:
    why = _failure(failed)
    kind = _KINDS.get(failed.kind, "operation_failed")
    if kind == "verification_failed" and failed.level == "restore":
        kind = "drill_failed"
    return _problem(
        "warning",
        kind,
        failed.id,
        f"this {failed.kind} has failed{f': {why.message}' if why else ''}",
        f"Run it again, or dismiss this warning with db.forget({failed.id!r}).",
        subject=None if kind == "operation_failed" else failed.collection,
    )


_KINDS: Mapping[str, ProblemKind] = {
    "backup": "backup_failed",
    "incremental backup": "backup_failed",
    VerifyBackups.name: "verification_failed",
}
"""Kinds of operations whose failures are problems of their own kind."""


def _of_stream(lag: Lag, thresholds: Thresholds, now: float) -> Iterator[Attention]:
    age = lag.age(now)
    if age > thresholds.stream_warning:
        yield _problem(
            "warning",
            "stream_behind",
            lag.stream,
            f"its reader is {lag.steps} steps and {hours(age)} behind",
            "Check that the reader runs, or drop it: ALTER TABLE ... DROP CHANGEFEED.",
        )


def _of_overdue(name: str, due: Due, now: float) -> Attention:
    return _problem(
        "critical",
        _MISSED[WORK_OF[due.task]],
        name,
        f"its {due.task} run was due {hours(now - due.time)} ago and was not started",
        "Start a process that runs the schedules: strandline schedules run.",
    )


def _of_run(name: str, collection: str | None, run: RunRow) -> Attention:
    if run.state == SKIPPED:
        return _problem(
            "warning",
            _MISSED[WORK_OF[run.task]],
            name,
            f"its last {run.task} run was skipped: {run.note}",
            "Keep a process running that starts the schedules: strandline schedules run.",
        )
    return _problem(
        "warning",
        _FAILED[WORK_OF[run.task]],
        name,
        f"its last {run.task} run has failed: {run.note}",
        f"See its runs: strandline schedules runs {shlex.quote(name)}.",
        subject=collection,
    )


def _of_channel(channel: ChannelRow, now: float) -> Iterator[Attention]:
    # A channel without a recent attempt is not used any more.
    is_used = channel.retry_at is not None and now - channel.retry_at < DAY
    if channel.failures >= FAILURES and is_used and channel.failed_since is not None:
        yield _problem(
            "warning",
            "channel_failed",
            channel.name,
            f"no alarm could be sent on this channel for {hours(_age(channel.failed_since, now))}: "
            f"{channel.note}",
            f"Correct the receiver or the settings, and try it: strandline alarms test {channel.name}.",
        )


_MISSED: Mapping[Work, ProblemKind] = {
    "backup": "backup_missed",
    "verification": "verification_missed",
    "drill": "drill_missed",
}
_FAILED: Mapping[Work, ProblemKind] = {
    "backup": "backup_failed",
    "verification": "verification_failed",
    "drill": "drill_failed",
}


def _problem(
    level: Grade, kind: ProblemKind, about: str, message: str, hint: str, *, subject: str | None = None
) -> Attention:
    return Attention(
        level=level, kind=kind, about=about, subject=subject or about, message=message, hint=hint
    )


def _age(time: float, now: float) -> float:
    return max(0.0, now - time)
