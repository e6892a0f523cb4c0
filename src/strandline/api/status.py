"""The status of a warehouse: what can be restored, up to when, and what needs attention.

The status is computed from one snapshot of the catalog, without a JVM. Repositories are only asked whether
they can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from strandline import names
from strandline.alarms.problem import GRADES, Attention, Grade
from strandline.api.problems import Suggestion, Thresholds, find_problems, find_suggestions, observe
from strandline.backups.health import Protection, Standing, protection_of
from strandline.backups.record import BackupHead
from strandline.backups.repository.reachable import find_away
from strandline.backups.verify.verification_history import LEVELS
from strandline.catalog import monitoring
from strandline.catalog.chains import WrittenBytes
from strandline.errors import InvalidArgument
from strandline.runtime import Runtime

__all__ = [
    "GRADES",
    "Attention",
    "CollectionStatus",
    "Grade",
    "LastBackup",
    "LastVerification",
    "OperationStatus",
    "Status",
    "StreamStatus",
    "Suggestion",
    "Thresholds",
    "look",
    "read_thresholds",
]


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
        protection: Up to when the collection can be restored from its storage, how that was proved, and
            whether its objectives are met.
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
    protection: Protection
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
class WriteStatus:
    """The bytes that all tables and indexes of the warehouse have written.

    Attributes:
        committed_bytes: Bytes that commits have written.
        merged_bytes: Bytes that merges, compactions and rebuilds of indexes have written.
        write_amplification: Bytes written per byte committed. None: nothing was committed.
    """

    committed_bytes: int
    merged_bytes: int
    write_amplification: float | None


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
    writes: WriteStatus
    unprotected_tables: tuple[str, ...]
    attention: tuple[Attention, ...]
    suggestions: tuple[Suggestion, ...]


def look(runtime: Runtime, thresholds: Thresholds) -> Status:
    """Compute the status of the warehouse."""
    now = runtime.clock.now()
    with runtime.catalog.read() as conn:
        seen = observe(conn, now, runtime.settings.scratch_tables)
        written = sum(monitoring.written_bytes(conn).values(), WrittenBytes())
    away = find_away(runtime, seen.standings)
    protections = {s.collection.name: protection_of(s, now, away.get(s.storage)) for s in seen.standings}
    attention = find_problems(seen, protections, thresholds, now)
    return Status(
        level=attention[0].level if attention else "fine",
        time=now,
        collections=tuple(_collection(s, protections[s.collection.name], now) for s in seen.standings),
        operations=tuple(
            OperationStatus(
                id=o.id,
                kind=o.kind,
                state=o.state,
                created=o.created,
                changed=o.changed,
                orphan=o.id in seen.orphans,
            )
            for o in seen.unfinished
        ),
        writes=WriteStatus(
            committed_bytes=written.committed,
            merged_bytes=written.merged,
            write_amplification=written.amplification,
        ),
        streams=tuple(StreamStatus(path=lag.stream, steps=lag.steps, age=lag.age(now)) for lag in seen.lags),
        unprotected_tables=seen.left_out.tables,
        attention=tuple(attention),
        suggestions=tuple(suggestion for s in seen.standings for suggestion in find_suggestions(s)),
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


def _collection(standing: Standing, protection: Protection, now: float) -> CollectionStatus:
    unsent = standing.unsent
    return CollectionStatus(
        name=standing.collection.name,
        protection=protection,
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
