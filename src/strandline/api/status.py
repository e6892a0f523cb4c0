"""The status of a warehouse: what can be restored, up to when, and what needs attention.

The status is computed from one snapshot of the catalog, without a JVM.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, count
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from strandline import names, records
from strandline.backups.collection import CLUSTER, CollectionRecord
from strandline.backups.health import Standing, Unprotected, find_unprotected, standings
from strandline.backups.record import BackupHead
from strandline.backups.verify.verification_history import LEVELS
from strandline.catalog import monitoring, owners, schedules
from strandline.catalog.monitoring import Failed, Lag, Unfinished
from strandline.catalog.operations import Failure
from strandline.catalog.schedules import FAILED, RunRow
from strandline.errors import InvalidArgument
from strandline.runtime import Runtime
from strandline.schedules.schedule import Due
from strandline.schedules.scheduler import find_overdue
from strandline.sql.constants import constant
from strandline.sql.tokens import word

Grade: TypeAlias = Literal["fine", "warning", "critical"]
GRADES: tuple[Grade, ...] = ("fine", "warning", "critical")

HOUR = 3600.0
DAY = 24 * HOUR

LISTED = 5
"""Maximum number of tables that a message names."""


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


def read_thresholds(given: Mapping[str, float]) -> Thresholds:
    """Check the arguments of ``db.status``."""
    known = [field.name for field in fields(Thresholds)]
    for name, value in given.items():
        if name not in known:
            raise InvalidArgument(
                f"unknown threshold {name!r}",
                names.did_you_mean(name, known) or f"Known thresholds: {', '.join(known)}.",
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise InvalidArgument(f"the threshold {name} cannot be {value!r}", "Give a number of at least 0.")
    return Thresholds(**given)


@dataclass(frozen=True, kw_only=True)
class LastBackup:
    """A backup and its age in seconds."""

    name: str
    time: float
    age: float


@dataclass(frozen=True, kw_only=True)
class LastVerification:
    """The last verification of a collection.

    Attributes:
        level: The level of the verification, such as ``checksums``.
        time: When it ended, in seconds since the epoch.
        age: Time since its end, in seconds.
        broken: Number of backups that verifications at ``level`` found not restorable.
    """

    level: str
    time: float
    age: float
    broken: int


@dataclass(frozen=True, kw_only=True)
class CollectionStatus:
    """The status of a backup collection.

    Attributes:
        restorable_until: Time of the last backup that, as far as known, can be restored even if this machine
            is lost, because its whole chain is in the repository. None: there is no such backup, or the
            storage is ``cluster``.
        restorable: True if any backup can be restored.
        restorable_here_until: Time of the last backup that can be restored in this warehouse.
        storage: Location of the backups.
        unsent: Number of backups that are not uploaded to the repository yet.
        unsent_since: Time of the oldest backup that is not uploaded yet.
        chain_length: Number of backups that a restore of the last backup needs.
    """

    name: str
    restorable_until: float | None
    restorable_here_until: float | None
    restorable: bool
    storage: str
    unsent: int
    unsent_since: float | None
    backups: int
    last_full: LastBackup | None
    last_increment: LastBackup | None
    chain_length: int
    verified: LastVerification | None


@dataclass(frozen=True, kw_only=True)
class OperationStatus:
    """An operation that has not ended.

    Attributes:
        state: ``running`` or ``cancelling``.
        changed: Time of its last progress.
        orphan: True if its process is dead.
    """

    id: str
    kind: str
    state: str
    created: float
    changed: float
    orphan: bool


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """The lag of the reader of a changefeed.

    Attributes:
        path: Path of the changefeed.
        steps: Number of steps between the table and the reader.
        age: Age of the oldest change that the reader has not committed, in seconds.
    """

    path: str
    steps: int
    age: float


@dataclass(frozen=True, kw_only=True)
class Attention:
    """A problem that needs attention.

    Attributes:
        about: A collection, an operation, a stream, a schedule, or the word ``tables``.
    """

    level: Grade
    about: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A possible improvement. It does not change the level of the status."""

    about: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """The status of a warehouse.

    Attributes:
        level: The worst level in ``attention``.
        unprotected_tables: Tables in no backup collection, except those in the setting ``scratch_tables``.
    """

    level: Grade
    time: float
    collections: tuple[CollectionStatus, ...]
    operations: tuple[OperationStatus, ...]
    streams: tuple[StreamStatus, ...]
    unprotected_tables: tuple[str, ...]
    attention: tuple[Attention, ...]
    suggestions: tuple[Suggestion, ...]


def look(runtime: Runtime, thresholds: Thresholds) -> Status:
    """Compute the status of the warehouse."""
    now = runtime.clock.now()
    with runtime.catalog.read() as conn:
        found = list(standings(conn))
        unfinished, orphans = monitoring.list_unfinished(conn), set(owners.orphans(conn, now))
        failed = monitoring.failed_operations(conn)
        overdue, last_runs = find_overdue(conn, now), _last_runs(conn)
        lags = sorted(monitoring.lags(conn).values(), key=lambda lag: lag.stream)
        left_out = find_unprotected(
            conn, [standing.collection for standing in found], runtime.settings.scratch_tables
        )
    # A failed upload is reported as the reason why backups are missing in the repository. Once all backups
    # are uploaded, the failed upload is not reported any more.
    sends = {each.collection: each for each in failed if _brings_home(each)}
    there = {None, *(standing.collection.name for standing in found)}
    attention = [
        *(
            a
            for standing in found
            for a in _of_collection(standing, sends.get(standing.collection.name), thresholds, now)
        ),
        *_of_tables(left_out, found),
        *(a for operation in unfinished for a in _of_operation(operation, orphans, thresholds, now)),
        *(_of_failure(each) for each in failed if each.collection in there and not _brings_home(each)),
        *(a for lag in lags for a in _of_stream(lag, thresholds, now)),
        *(_of_overdue(name, due, now) for name, due in overdue),
        *(_of_run(name, run) for name, run in last_runs if run.state == FAILED and run.retry_at is None),
    ]
    attention.sort(key=lambda a: -GRADES.index(a.level))
    return Status(
        level=attention[0].level if attention else "fine",
        time=now,
        collections=tuple(_collection(standing, now) for standing in found),
        operations=tuple(
            OperationStatus(
                id=o.id,
                kind=o.kind,
                state=o.state,
                created=o.created,
                changed=o.changed,
                orphan=o.id in orphans,
            )
            for o in unfinished
        ),
        streams=tuple(StreamStatus(path=lag.stream, steps=lag.steps, age=lag.age(now)) for lag in lags),
        unprotected_tables=left_out.tables,
        attention=tuple(attention),
        suggestions=tuple(suggestion for standing in found for suggestion in _suggestions(standing)),
    )


def _age(time: float, now: float) -> float:
    return max(0.0, now - time)


def _last(head: BackupHead | None, now: float) -> LastBackup | None:
    return None if head is None else LastBackup(name=head.name, time=head.time, age=_age(head.time, now))


def _verification(standing: Standing, now: float) -> LastVerification | None:
    """Return the last verification. If two ended at the same time, return the one with the higher level."""
    if not standing.verified:
        return None
    level = max(standing.verified, key=lambda level: (standing.verified[level], LEVELS.index(level)))
    time = standing.verified[level]
    return LastVerification(level=level, time=time, age=_age(time, now), broken=standing.broken[level])


def _time(head: BackupHead | None) -> float | None:
    return None if head is None else head.time


def _collection(standing: Standing, now: float) -> CollectionStatus:
    unsent = standing.unsent
    return CollectionStatus(
        name=standing.collection.name,
        restorable_until=_time(standing.restorable_elsewhere),
        restorable_here_until=_time(standing.restorable),
        restorable=standing.restorable is not None,
        storage=standing.storage,
        unsent=len(unsent),
        unsent_since=unsent[0].time if unsent else None,
        backups=len(standing.backups),
        last_full=_last(standing.last_of("full"), now),
        last_increment=_last(standing.last_of("incremental"), now),
        chain_length=standing.chain_length,
        verified=_verification(standing, now),
    )


def _of_collection(
    standing: Standing, failed_send: Failed | None, thresholds: Thresholds, now: float
) -> Iterator[Attention]:
    name = standing.collection.name

    def say(level: Grade, message: str, hint: str) -> Attention:
        return Attention(level=level, about=name, message=message, hint=hint)

    if standing.last is None:
        yield say("critical", "it has no backup", f"Take one: BACKUP {word(name)}.")
        return
    if standing.restorable is None:
        yield say(
            "critical",
            "none of its backups can be restored",
            f"Repair them: REPAIR {word(name)}; or take a new full one: BACKUP {word(name)}; then verify.",
        )
        return
    last = standing.last[1]
    if standing.restorable.name != last.name:
        yield say(
            "critical",
            f"{last.name} cannot be restored, only {standing.restorable.name} and older backups",
            f"See why: strandline verify {shlex.quote(name)}. Repair it: REPAIR {word(name)}; or take a new "
            f"full one: BACKUP {word(name)}.",
        )
    if older := standing.broken_before(standing.restorable):
        others = f" and {len(older) - 1} more" if len(older) > 1 else ""
        yield say(
            "warning",
            f"{older[-1].name}{others} cannot be restored",
            f"See why: strandline verify {shlex.quote(name)}. Repair it: REPAIR {word(name)}; or "
            "drop it with the backups that build on it: "
            f"DROP BACKUP {word(name)} {constant(older[-1].name)} CONFIRM.",
        )
    if standing.waiting:
        yield _of_unsent(standing, failed_send)
    # Another warehouse takes the backups of an attached collection, and reports when they are too old.
    if not standing.collection.record(CollectionRecord).attached:
        yield from _of_age(standing, thresholds, now)
    if standing.chain_length > thresholds.chain_warning:
        yield say(
            "warning",
            f"a restore of its last backup needs {standing.chain_length} backups",
            f"Compact the chain: COMPACT {word(name)}.",
        )
    verified = _verification(standing, now)
    since = standing.backups[0][1].time if verified is None else verified.time
    if _age(since, now) > thresholds.verified_warning:
        never = "was never verified" if verified is None else f"was last verified {hours(verified.age)} ago"
        yield say("warning", f"it {never}", f"Verify it: strandline verify {shlex.quote(name)}.")


def _of_age(standing: Standing, thresholds: Thresholds, now: float) -> Iterator[Attention]:
    """Yield a problem if the last backup that can be restored from the collection's storage is too old."""
    name, is_here = standing.collection.name, standing.storage == CLUSTER
    kept = standing.restorable if is_here else standing.restorable_elsewhere
    where = "" if is_here else " after losing this machine"
    age = _age(standing.backups[0][1].time if kept is None else kept.time, now)
    if age > thresholds.backup_warning:
        yield Attention(
            level="critical" if age > thresholds.backup_critical else "warning",
            about=name,
            message=f"nothing can be restored{where} for {hours(age)}"
            if kept is None
            else f"its last backup that can be restored{where} is {hours(age)} old",
            hint=f"Back it up: BACKUP {word(name)}{_how(standing)}.",
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
    return Attention(
        level="critical" if standing.restorable_elsewhere is None else "warning",
        about=name,
        message=message if why is None else f"{message} ({why.message})",
        hint=f"Check that it can be reached. The next backup uploads them: {retry}"
        if why is None
        else f"{why.hint} The next backup uploads them: {retry}",
    )


def _of_tables(left_out: Unprotected, found: Sequence[Standing]) -> Iterator[Attention]:
    """Yield the problems of tables that are not backed up."""
    here = {standing.collection.name: standing for standing in found}
    for name, tables in left_out.attached.items():
        storage = here[name].storage
        yield Attention(
            level="warning",
            about=name,
            message=f"no backup is taken of {_list_tables(tables)}: the repository {storage} belongs to "
            "another warehouse or collection",
            hint=f"If that one is lost, take the repository over: ATTACH BACKUP COLLECTION {word(name)} FROM "
            f"{constant(storage)} WITH (TAKE_OVER = 'true'); BACKUP {word(name)}. Otherwise create a "
            "collection with its own repository.",
        )
    for name, tables in left_out.missing.items():
        drops = ", ".join(f"DROP TABLE {word(path.lstrip('/'))}" for path in tables[:LISTED])
        yield Attention(
            level="warning",
            about=name,
            message=f"it cannot be backed up, because members are missing: {_list_tables(tables)}",
            hint="Create or restore the missing tables, or remove them: ALTER BACKUP COLLECTION "
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
    yield Attention(
        level="warning",
        about="tables",
        message=f"no backup collection has {_list_tables(left_out.others)}",
        hint=f"{remedy} Add tables that need no backup to the setting scratch_tables.",
    )


def _list_tables(tables: Sequence[str]) -> str:
    shown, more = ", ".join(tables[:LISTED]), len(tables) - LISTED
    return f"{names.count(len(tables), 'table')}: {shown}" + (f" and {more} more" if more > 0 else "")


def _suggestions(standing: Standing) -> Iterator[Suggestion]:
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
    operation: Unfinished, orphans: set[str], thresholds: Thresholds, now: float
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
    yield Attention(level="warning", about=operation.id, message=message, hint=hint)


def _brings_home(failed: Failed) -> bool:
    """Return whether a failed operation was an upload to the repository of its collection."""
    return failed.kind == "send backup" and failed.elsewhere is None


def _failure(failed: Failed) -> Failure | None:
    if failed.error is None:
        return None
    return records.from_text(Failure, failed.error, f"the error of operation {failed.id}")


def _of_failure(failed: Failed) -> Attention:
    why = _failure(failed)
    return Attention(
        level="warning",
        about=failed.id,
        message=f"this {failed.kind} has failed{f': {why.message}' if why else ''}",
        hint=f"Run it again, or dismiss this warning with db.forget({failed.id!r}).",
    )


def _of_stream(lag: Lag, thresholds: Thresholds, now: float) -> Iterator[Attention]:
    age = lag.age(now)
    if age > thresholds.stream_warning:
        yield Attention(
            level="warning",
            about=lag.stream,
            message=f"its reader is {lag.steps} steps and {hours(age)} behind",
            hint="Check that the reader runs, or drop it: ALTER TABLE ... DROP CHANGEFEED.",
        )


def _last_runs(conn: Connection) -> list[tuple[str, RunRow]]:
    names_of = {row.id: row.name for row in schedules.list_schedules(conn)}
    return [(names_of[run.schedule_id], run) for run in schedules.list_last_runs(conn)]


def _of_overdue(name: str, due: Due, now: float) -> Attention:
    return Attention(
        level="critical",
        about=name,
        message=f"its {due.task} run was due {hours(now - due.time)} ago and was not started",
        hint="Start a process that runs the schedules: strandline schedules run.",
    )


def _of_run(name: str, run: RunRow) -> Attention:
    return Attention(
        level="warning",
        about=name,
        message=f"its last {run.task} run has failed: {run.note}",
        hint=f"See its runs: strandline schedules runs {shlex.quote(name)}.",
    )


def hours(seconds: float) -> str:
    """Return a period as text in one unit, such as ``3 days``."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", 60.0)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}s"
    return f"{int(seconds)} second{'' if int(seconds) == 1 else 's'}"
