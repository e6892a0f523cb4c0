"""How a warehouse is: what can be restored, up to when, and what needs attention. All of it comes from one
snapshot of the catalog, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from strandline import names, records
from strandline.backups.collection import Collection
from strandline.backups.record import BackupHead
from strandline.backups.standing import Standing, standings
from strandline.catalog import owners, watch
from strandline.catalog.operations import Failure
from strandline.catalog.watch import Failed, Lag, Unfinished
from strandline.errors import InvalidArgument
from strandline.runtime import Runtime

Grade: TypeAlias = Literal["fine", "warning", "critical"]
GRADES: tuple[Grade, ...] = ("fine", "warning", "critical")

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """From when on something needs attention. All but the length of a chain are seconds."""

    backup_warning: float = 26 * HOUR
    """The last backup that can be restored is older than this ..."""
    backup_critical: float = 50 * HOUR
    """... and this is too old."""
    verified_warning: float = 8 * DAY
    """For so long the backups of a collection were not verified at any level."""
    chain_warning: float = 100
    """A restore of the last backup needs more backups than this."""
    operation_warning: float = HOUR
    """For so long nothing has happened in an operation that has not ended."""
    stream_warning: float = DAY
    """The first change that the reader of a changefeed has not dealt with is older than this."""

    @staticmethod
    def of(given: Mapping[str, float]) -> Thresholds:
        known = [field.name for field in fields(Thresholds)]
        for name, value in given.items():
            if name not in known:
                raise InvalidArgument(
                    f"there is no threshold {name!r}",
                    names.did_you_mean(name, known) or f"There are {', '.join(known)}.",
                )
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InvalidArgument(
                    f"the threshold {name} cannot be {value!r}", "Give a number that is at least 0."
                )
        return Thresholds(**given)


@dataclass(frozen=True, kw_only=True)
class LastBackup:
    """A backup, with its age in seconds."""

    name: str
    time: float
    age: float


@dataclass(frozen=True, kw_only=True)
class LastVerification:
    """When backups of a collection were last verified, at which level, and how many were found not to be
    restorable."""

    level: str
    time: float
    age: float
    broken: int


@dataclass(frozen=True, kw_only=True)
class CollectionStatus:
    """``restorable_until``: the time of the last backup that can be restored, as far as is known; None: there
    is none. ``chain_length``: how many backups a restore of the last one needs."""

    name: str
    restorable: bool
    restorable_until: float | None
    backups: int
    last_full: LastBackup | None
    last_increment: LastBackup | None
    chain_length: int
    verified: LastVerification | None


@dataclass(frozen=True, kw_only=True)
class OperationStatus:
    """An operation that has not ended. ``changed``: when something last happened in it. ``orphan``: its
    process is dead."""

    id: str
    kind: str
    created: float
    changed: float
    orphan: bool


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """How far a changefeed's reader is behind: in steps, and the age of the first change that was not dealt
    with."""

    path: str
    steps: int
    age: float


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One thing that somebody should look at. ``about`` is a collection, an operation or a stream."""

    level: Grade
    about: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """A warehouse at one moment. ``level`` is that of the worst of ``attention``."""

    level: Grade
    time: float
    collections: tuple[CollectionStatus, ...]
    operations: tuple[OperationStatus, ...]
    streams: tuple[StreamStatus, ...]
    attention: tuple[Attention, ...]


def look(runtime: Runtime, thresholds: Thresholds) -> Status:
    now = runtime.clock.now()
    with runtime.catalog.read() as conn:
        found = list(standings(conn))
        unfinished, orphans = watch.unfinished(conn), set(owners.orphans(conn, now))
        failed = watch.failed(conn)
        lags = sorted(watch.lags(conn).values(), key=lambda lag: lag.stream)
    attention = [
        *(a for standing in found for a in _of_collection(standing, thresholds, now)),
        *(a for operation in unfinished for a in _of_operation(operation, orphans, thresholds, now)),
        *map(_of_failure, failed),
        *(a for lag in lags for a in _of_stream(lag, thresholds, now)),
    ]
    attention.sort(key=lambda a: -GRADES.index(a.level))
    return Status(
        level=attention[0].level if attention else "fine",
        time=now,
        collections=tuple(_collection(standing, now) for standing in found),
        operations=tuple(
            OperationStatus(
                id=o.id, kind=o.kind, created=o.created, changed=o.changed, orphan=o.id in orphans
            )
            for o in unfinished
        ),
        streams=tuple(StreamStatus(path=lag.stream, steps=lag.steps, age=lag.age(now)) for lag in lags),
        attention=tuple(attention),
    )


def _age(time: float, now: float) -> float:
    return max(0.0, now - time)


def _last(head: BackupHead | None, now: float) -> LastBackup | None:
    return None if head is None else LastBackup(name=head.name, time=head.time, age=_age(head.time, now))


def _verification(standing: Standing, now: float) -> LastVerification | None:
    """Return the last one; of two at the same time the higher level, which says more."""
    if not standing.verified:
        return None
    level, found = max(enumerate(standing.verified.items()), key=lambda at: (at[1][1].time, at[0]))[1]
    return LastVerification(level=level, time=found.time, age=_age(found.time, now), broken=found.broken)


def _collection(standing: Standing, now: float) -> CollectionStatus:
    restorable = standing.restorable
    return CollectionStatus(
        name=standing.collection.name,
        restorable=restorable is not None,
        restorable_until=None if restorable is None else restorable.time,
        backups=len(standing.backups),
        last_full=_last(standing.last_of("full"), now),
        last_increment=_last(standing.last_of("incremental"), now),
        chain_length=standing.chain_length,
        verified=_verification(standing, now),
    )


def _of_collection(standing: Standing, thresholds: Thresholds, now: float) -> Iterator[Attention]:
    name = standing.collection.name

    def say(level: Grade, message: str, hint: str) -> Attention:
        return Attention(level=level, about=name, message=message, hint=hint)

    if standing.last is None:
        yield say("critical", "it has no backup", f"Take one: BACKUP {name}.")
        return
    if standing.restorable is None:
        yield say(
            "critical",
            "none of its backups can be restored",
            f"Take a new full one: BACKUP {name}; then verify.",
        )
        return
    last = standing.last[1]
    if standing.restorable.name != last.name:
        yield say(
            "critical",
            f"{last.name} cannot be restored, only {standing.restorable.name} and what is older",
            f"See why: strandline verify {name}. Then take a new full one: BACKUP {name}.",
        )
    if waiting := standing.waiting:
        yield say(
            "warning",
            f"{names.count(len(waiting), 'backup')}, the last {waiting[-1].name}, would be lost with the "
            "warehouse: not in the repository yet",
            f"See that it can be reached; the next backup sends them: BACKUP {name} INCREMENTAL.",
        )
    # Backups of an attached collection are taken elsewhere, and are as old as their owner lets them be.
    if not standing.collection.record(Collection).attached:
        age = _age(standing.restorable.time, now)
        if age > thresholds.backup_warning:
            level: Grade = "critical" if age > thresholds.backup_critical else "warning"
            yield say(
                level,
                f"its last backup that can be restored is {hours(age)} old",
                f"Back it up: BACKUP {name} INCREMENTAL.",
            )
    if standing.chain_length > thresholds.chain_warning:
        yield say(
            "warning",
            f"a restore of its last backup needs {standing.chain_length} backups",
            f"Compact the chain: COMPACT {name}.",
        )
    verified = _verification(standing, now)
    since = standing.backups[0][1].time if verified is None else verified.time
    if _age(since, now) > thresholds.verified_warning:
        never = "was never verified" if verified is None else f"was last verified {hours(verified.age)} ago"
        yield say("warning", f"it {never}", f"Verify it: strandline verify {name}.")


def _of_operation(
    operation: Unfinished, orphans: set[str], thresholds: Thresholds, now: float
) -> Iterator[Attention]:
    hint = f"Carry it on with db.wait({operation.id!r}), or undo it with db.cancel({operation.id!r})."
    silent = _age(operation.changed, now)
    if operation.id in orphans:
        message = f"the process of this {operation.kind} has died"
    elif silent > thresholds.operation_warning:
        message = f"nothing has happened in this {operation.kind} for {hours(silent)}"
    else:
        return
    yield Attention(level="warning", about=operation.id, message=message, hint=hint)


def _of_failure(failed: Failed) -> Attention:
    what = f"what is recorded of operation {failed.id}"
    why = None if failed.error is None else records.from_text(Failure, failed.error, what).message
    return Attention(
        level="warning",
        about=failed.id,
        message=f"this {failed.kind} has failed: {why}" if why else f"this {failed.kind} has failed",
        hint=f"Repeat what it was for, or acknowledge it with db.forget({failed.id!r}).",
    )


def _of_stream(lag: Lag, thresholds: Thresholds, now: float) -> Iterator[Attention]:
    age = lag.age(now)
    if age > thresholds.stream_warning:
        yield Attention(
            level="warning",
            about=lag.stream,
            message=f"its reader is {lag.steps} steps and {hours(age)} behind",
            hint="See whether its reader runs, or drop it: ALTER TABLE ... DROP CHANGEFEED.",
        )


def hours(seconds: float) -> str:
    """Return a long time in words, in one unit."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", 60.0)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}s"
    return f"{int(seconds)} second{'' if int(seconds) == 1 else 's'}"
