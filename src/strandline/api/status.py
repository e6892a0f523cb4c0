"""How a warehouse is: what can be restored, up to when, and what needs attention. All of it comes from one
snapshot of the catalog, without a JVM."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, count
from typing import Literal, TypeAlias

from strandline import names, records
from strandline.backups.collection import CLUSTER, Collection
from strandline.backups.record import BackupHead
from strandline.backups.standing import Standing, Unprotected, standings, unprotected
from strandline.catalog import owners, watch
from strandline.catalog.operations import Failure
from strandline.catalog.watch import Failed, Lag, Unfinished
from strandline.errors import InvalidArgument
from strandline.runtime import Runtime
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
    """From when on something needs attention. All but the length of a chain are seconds."""

    backup_warning: float = 26 * HOUR
    """The last backup that can be restored from where its collection keeps backups is older than this ..."""
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
    """``restorable_until``: the time of the last backup that can be restored after this machine is lost, as
    far as is known: it and all that it builds on are in the repository. None: there is no such backup; this
    is always so with STORAGE = 'cluster'. ``restorable_here_until``: the time of the last one that can be
    restored here. ``restorable``: whether there is one of either kind. ``storage``: where the backups are
    kept. ``unsent``: number of backups that are not in the repository where they should be;
    ``unsent_since``: the time of the oldest of them. ``chain_length``: number of backups that a restore of
    the last one needs."""

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
    """An operation that has not ended. ``state``: running or cancelling. ``changed``: when something last
    happened in it. ``orphan``: its process is dead."""

    id: str
    kind: str
    state: str
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
    """One thing that needs attention. ``about`` is a collection, an operation, a stream, or ``tables``."""

    level: Grade
    about: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One thing that works and could be better. It does not change the level."""

    about: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """A warehouse at one moment. ``level`` is that of the worst of ``attention``. ``unprotected_tables``:
    those that no backup is taken of, without those that the setting ``scratch_tables`` names."""

    level: Grade
    time: float
    collections: tuple[CollectionStatus, ...]
    operations: tuple[OperationStatus, ...]
    streams: tuple[StreamStatus, ...]
    unprotected_tables: tuple[str, ...]
    attention: tuple[Attention, ...]
    suggestions: tuple[Suggestion, ...]


def look(runtime: Runtime, thresholds: Thresholds) -> Status:
    now = runtime.clock.now()
    with runtime.catalog.read() as conn:
        found = list(standings(conn))
        unfinished, orphans = watch.unfinished(conn), set(owners.orphans(conn, now))
        failed = watch.failed(conn)
        lags = sorted(watch.lags(conn).values(), key=lambda lag: lag.stream)
        left_out = unprotected(
            conn, [standing.collection for standing in found], runtime.settings.scratch_tables
        )
    # A send that failed is the reason why backups are not in their repository; without such backups it is of
    # no interest any more.
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
    """Return the last one; of two at the same time the higher level, which says more."""
    if not standing.verified:
        return None
    level, found = max(enumerate(standing.verified.items()), key=lambda at: (at[1][1].time, at[0]))[1]
    return LastVerification(level=level, time=found.time, age=_age(found.time, now), broken=found.broken)


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
            f"{last.name} cannot be restored, only {standing.restorable.name} and what is older",
            f"See why: strandline verify {shlex.quote(name)}. Repair it: REPAIR {word(name)}; or take a new "
            f"full one: BACKUP {word(name)}.",
        )
    if older := standing.broken_before(standing.restorable):
        others = f" and {len(older) - 1} more" if len(older) > 1 else ""
        yield say(
            "warning",
            f"{older[-1].name}{others} cannot be restored",
            f"See why: strandline verify {shlex.quote(name)}. Repair it: REPAIR {word(name)}; or "
            f"drop it with what builds on it: DROP BACKUP {word(name)} {constant(older[-1].name)} CONFIRM.",
        )
    if standing.waiting:
        yield _of_unsent(standing, failed_send)
    # Backups of an attached collection are taken elsewhere, and are as old as their owner lets them be.
    if not standing.collection.record(Collection).attached:
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
    """Yield what is said if the last backup is old that can be restored from where the collection keeps its
    backups."""
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
    """Return how the next backup is to be taken, as a statement says it."""
    return " INCREMENTAL OR FULL" if standing.collection.record(Collection).settings.incremental else ""


def _of_unsent(standing: Standing, failed_send: Failed | None) -> Attention:
    """Return what is said of backups that nobody is sending: critical if the repository has none that can be
    restored."""
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
        hint=f"Check that it can be reached; the next backup sends them: {retry}"
        if why is None
        else f"{why.hint} Then the next backup sends them: {retry}",
    )


def _of_tables(left_out: Unprotected, found: Sequence[Standing]) -> Iterator[Attention]:
    """Yield what is said of tables that no backup is taken of."""
    here = {standing.collection.name: standing for standing in found}
    for name, tables in left_out.attached.items():
        storage = here[name].storage
        yield Attention(
            level="warning",
            about=name,
            message=f"no backup is taken of {_listed(tables)}: the repository {storage} belongs to another "
            "warehouse or collection",
            hint=f"If that one is lost, take it over: ATTACH BACKUP COLLECTION {word(name)} FROM "
            f"{constant(storage)} WITH (TAKE_OVER = 'true'); BACKUP {word(name)}. Otherwise create a "
            "collection with a repository of its own.",
        )
    for name, tables in left_out.missing.items():
        drops = ", ".join(f"DROP TABLE {word(path.lstrip('/'))}" for path in tables[:LISTED])
        yield Attention(
            level="warning",
            about=name,
            message=f"it cannot take a backup without {_listed(tables)}, which it names",
            hint="Create or restore what is missing; or take it out: ALTER BACKUP COLLECTION "
            f"{word(name)} {drops}.",
        )
    if not left_out.others:
        return
    named = ", ".join(f"TABLE {word(path.lstrip('/'))}" for path in left_out.others[:LISTED])
    own = next((s.collection.name for s in found if not s.collection.record(Collection).attached), None)
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
        message=f"no backup collection has {_listed(left_out.others)}",
        hint=f"{remedy} Name those that need no backup in the setting scratch_tables.",
    )


def _listed(tables: Sequence[str]) -> str:
    shown, more = ", ".join(tables[:LISTED]), len(tables) - LISTED
    return f"{names.count(len(tables), 'table')}: {shown}" + (f" and {more} more" if more > 0 else "")


def _suggestions(standing: Standing) -> Iterator[Suggestion]:
    collection, name = standing.collection.record(Collection), standing.collection.name
    if collection.attached:
        return
    if standing.storage == CLUSTER:
        yield Suggestion(
            about=name,
            message="its backups are kept in the warehouse, and are lost with it",
            hint=f"Keep them in a repository: ALTER BACKUP COLLECTION {word(name)} SET (STORAGE = "
            f"'s3://bucket/folder'); BACKUP {word(name)}. A folder on another machine will do as well.",
        )
    if not collection.settings.incremental:
        yield Suggestion(
            about=name,
            message="each of its backups is a full one",
            hint="Let it take increments: ALTER BACKUP COLLECTION "
            f"{word(name)} SET (INCREMENTAL_BACKUP_ENABLED = 'true'); BACKUP {word(name)}.",
        )


def _of_operation(
    operation: Unfinished, orphans: set[str], thresholds: Thresholds, now: float
) -> Iterator[Attention]:
    hint = f"Carry it on with db.wait({operation.id!r}), or undo it with db.cancel({operation.id!r})."
    if operation.state == "cancelling":
        hint = f"It is being undone. Complete that with db.wait({operation.id!r})."
    silent = _age(operation.changed, now)
    if operation.id in orphans:
        message = f"the process of this {operation.kind} has died"
    elif silent > thresholds.operation_warning:
        message = f"nothing has happened in this {operation.kind} for {hours(silent)}"
    else:
        return
    yield Attention(level="warning", about=operation.id, message=message, hint=hint)


def _brings_home(failed: Failed) -> bool:
    """Return whether it has failed to send backups to the repository of their collection."""
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
            hint="See whether its reader runs, or drop it: ALTER TABLE ... DROP CHANGEFEED.",
        )


def hours(seconds: float) -> str:
    """Return a long time in words, in one unit."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", 60.0)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}s"
    return f"{int(seconds)} second{'' if int(seconds) == 1 else 's'}"
