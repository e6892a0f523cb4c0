"""Operations and their parts in the catalog: add, read, save, complete and roll back.

Requests, bodies and results are texts here: each kind of operation defines its own records. All functions run
inside the caller's transaction.

``complete`` and ``roll_back`` find the paths of an operation without its record: each row of ``paths`` has
the id of the operation that works on it. So both unlock all paths of any operation, wherever it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, case, delete, func, insert, select, update

from strandline import records
from strandline.catalog import bulk_paths, chains, paths, sqltables, tables
from strandline.catalog.paths import READY, Path
from strandline.catalog.transactions import Told, Writer
from strandline.catalog.versions import VersionRegistry
from strandline.chunks import chunks
from strandline.errors import BY_CODE, OperationNotFound, StrandlineError
from strandline.records import Record

RUNNING, CANCELLING = "running", "cancelling"
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
STATES = (RUNNING, CANCELLING, DONE, FAILED, CANCELLED)
"""States of an operation. In the first two it is unfinished, in the others it has ended.

The state of a part that has ended is ``done``.
"""

# Every transition of a part runs these statements. Built once, because that halves their cost.
_OPERATION = select(sqltables.operations).where(sqltables.operations.c.id == bindparam("operation"))
_AT_PART = sqltables.parts.c
# Without the columns that are only displayed, because an operation on many tables reads its parts very often.
_PART = select(
    _AT_PART.operation_id,
    _AT_PART.id,
    _AT_PART.kind,
    _AT_PART.stage,
    _AT_PART.state,
    _AT_PART.attempt,
    _AT_PART.changed,
    _AT_PART.body,
)
_PARTS = _PART.where(sqltables.parts.c.operation_id == bindparam("operation")).order_by(sqltables.parts.c.id)
_PRESENT = _PARTS.where(sqltables.among(_AT_PART.id, "ids"))
_COUNTS = select(_AT_PART.operation_id, _AT_PART.state, func.count()).group_by(
    _AT_PART.operation_id, _AT_PART.state
)
_COUNTS_OF = _COUNTS.where(sqltables.among(_AT_PART.operation_id, "operations"))
_UNFINISHED = (
    select(sqltables.operations)
    .where(sqltables.operations.c.ended.is_(None))
    .order_by(sqltables.operations.c.number)
)
_WAITING = (sqltables.parts.c.operation_id == bindparam("operation")) & sqltables.is_open
_OPEN_STAGE = select(func.min(sqltables.parts.c.stage)).where(_WAITING)
_OPEN_PARTS = (
    _PART.where(_WAITING, sqltables.parts.c.stage == _OPEN_STAGE.scalar_subquery())
    .order_by(sqltables.parts.c.id)
    .limit(bindparam("most"))
)
_AT = sqltables.paths.c
# Without the bodies of paths, which may be very large.
_BRIEF = select(_AT.id, _AT.parent_id, _AT.name, _AT.type, _AT.state, _AT.version)
_UNDER = _BRIEF.where(_AT.operation_id == bindparam("operation")).order_by(_AT.id)
_SAVE_PART = (
    update(sqltables.parts)
    .where(
        sqltables.parts.c.operation_id == bindparam("operation"), sqltables.parts.c.id == bindparam("part")
    )
    .values(
        state=bindparam("new_state"),
        attempt=bindparam("new_attempt"),
        changed=bindparam("now"),
        body=bindparam("new_body"),
    )
)
_SAVE_WORKED = _SAVE_PART.values(
    began=bindparam("new_began"), seconds=bindparam("new_seconds"), process=bindparam("new_process")
)

CREATED_STATES = frozenset({"creating", "incoming restore"})
"""States of paths that an operation has created.

Completing the operation makes these paths visible; rolling it back removes them.
"""


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """A part of an operation.

    Parts of one stage run in any order. A stage begins when all parts of the earlier stages are done.

    Attributes:
        attempt: the number of failures so far. A late report of an earlier attempt is recognised by it.
        body: the text of the handler's record.
        began: the time when the slow work of this transition began. None: the transition had no slow work.
        seconds: how long the slow work took.
        process: the process that did the slow work.
    """

    operation_id: str
    id: int
    kind: str
    stage: int
    state: str
    attempt: int
    changed: float
    body: str
    began: float | None = None
    seconds: float | None = None
    process: str | None = None


class NewPart(NamedTuple):
    """A part to be added.

    ``increment``, ``path``, ``shard`` and ``bytes`` say for display what the part works on.
    """

    kind: str
    stage: int
    state: str
    body: str
    increment: int | None = None
    path: str | None = None
    shard: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Failure(Record):
    """The error that ended an operation."""

    code: str
    message: str
    hint: str

    @staticmethod
    def of(error: StrandlineError) -> Failure:
        return Failure(code=error.code, message=error.message, hint=error.hint)

    def error(self) -> StrandlineError:
        """Rebuild the error that was raised."""
        return BY_CODE.get(self.code, StrandlineError)(self.message, self.hint)


@dataclass(frozen=True, kw_only=True)
class OperationRow:
    """A persisted operation. Its texts are encoded records.

    Attributes:
        request: text of the request.
        body: text of the plan that the operation's kind has made.
        progress: text of the progress so far.
        result: text of the result. None: there is no result yet, or the operation did not succeed.
        error: text of the ``Failure`` that ended it. None: it has not failed.
        session_id: the session of the process that runs it.
    """

    id: str
    kind: str
    state: str
    request: str
    body: str
    progress: str
    result: str | None = None
    error: str | None = None
    session_id: str
    created: float
    ended: float | None = None
    process: str | None = None
    parts_done: int = field(default=0, compare=False)
    parts: int = field(default=0, compare=False)

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    def failure(self) -> StrandlineError | None:
        """Rebuild the error that ended the operation. None: it has not failed."""
        if self.error is None:
            return None
        return records.from_text(Failure, self.error, f"the error of operation {self.id}").error()


def add(tx: Writer, operation: OperationRow) -> None:
    tx.conn.execute(
        insert(sqltables.operations).values(
            id=operation.id,
            kind=operation.kind,
            state=operation.state,
            request=operation.request,
            body=operation.body,
            progress=operation.progress,
            session_id=operation.session_id,
            created=operation.created,
            process=operation.process,
        )
    )


def add_parts(tx: Writer, operation_id: str, new: Sequence[NewPart]) -> None:
    counted = tx.conn.execute(
        select(func.count()).where(sqltables.parts.c.operation_id == operation_id)
    ).scalar_one()
    columns = ("operation_id", "id", "attempt", "changed", *NewPart._fields)
    rows = [(operation_id, number, 0, tx.now, *part) for number, part in enumerate(new, start=counted + 1)]
    tx.insert(sqltables.parts, columns, rows)


def get(conn: Connection, operation_id: str, *, counted: bool = False) -> OperationRow:
    """Return an operation.

    Args:
        counted: also count its parts (``parts``, ``parts_done``).
    """
    row = conn.execute(_OPERATION, {"operation": operation_id}).one_or_none()
    if row is None:
        raise OperationNotFound(f"there is no operation {operation_id!r}")
    return _operation(row, _counts(conn, [operation_id]) if counted else {})


@dataclass(frozen=True, kw_only=True)
class OperationFilter:
    """Conditions for the operations to list. A field that is None sets no condition.

    Attributes:
        since: the earliest time of creation, in seconds since the epoch.
        limit: maximum number of operations; the latest ones are listed.
    """

    state: str | None = None
    kind: str | None = None
    since: float | None = None
    limit: int | None = None


def list_operations(conn: Connection, wanted: OperationFilter | None = None) -> list[OperationRow]:
    """Return the operations that match, oldest first, with the numbers of all parts and of finished parts.

    Args:
        wanted: the conditions. None: all operations.
    """
    at, wanted = sqltables.operations.c, wanted or OperationFilter()
    found = select(sqltables.operations).order_by(at.number.desc()).limit(wanted.limit)
    if wanted.state is not None:
        found = found.where(at.state == wanted.state)
    if wanted.kind is not None:
        found = found.where(at.kind == wanted.kind)
    if wanted.since is not None:
        found = found.where(at.created >= wanted.since)
    rows = conn.execute(found).all()[::-1]
    ids = None if wanted == OperationFilter() else [row.id for row in rows]
    counts = _counts(conn, ids)
    return [_operation(row, counts) for row in rows]


def unfinished_operations(conn: Connection) -> list[OperationRow]:
    return [_operation(row, {}) for row in conn.execute(_UNFINISHED)]


def parts(conn: Connection, operation_id: str, kind: str | None = None) -> list[PartRow]:
    """Return the parts of an operation.

    Args:
        kind: the kind of parts to return. None: all parts.
    """
    query = _PARTS if kind is None else _PARTS.where(sqltables.parts.c.kind == kind)
    return [_part(row) for row in conn.execute(query, {"operation": operation_id})]


def present_parts(conn: Connection, operation_id: str, part_ids: Iterable[int]) -> dict[int, PartRow]:
    """Return the current state of parts, by id; parts that no longer exist are left out."""
    found = conn.execute(_PRESENT, {"operation": operation_id, "ids": list(part_ids)})
    return {row.id: _part(row) for row in found}


def open_parts(conn: Connection, operation_id: str, most: int) -> list[PartRow]:
    """Return the first ``most`` parts that may run now: unfinished parts of the first unfinished stage."""
    return [_part(row) for row in conn.execute(_OPEN_PARTS, {"operation": operation_id, "most": most})]


def first_open_stage(conn: Connection, operation_id: str) -> int | None:
    """Return the stage whose parts may run now; None if all parts are done."""
    stage: int | None = conn.execute(_OPEN_STAGE, {"operation": operation_id}).scalar_one()
    return stage


def last_change(conn: Connection, operation_id: str) -> float | None:
    """Return the time of the last transition of a part; None if there are no parts."""
    at = sqltables.parts.c
    last: float | None = conn.execute(
        select(func.max(at.changed)).where(at.operation_id == operation_id)
    ).scalar_one()
    return last


def save_parts(tx: Writer, changed: Sequence[PartRow]) -> None:
    """Store the transitions of parts that advanced together.

    Args:
        changed: at least one part. Either all parts have a value in ``began``, or none of them has.
    """
    has_worked = changed[0].began is not None
    values = [
        {
            "operation": part.operation_id,
            "part": part.id,
            "new_state": part.state,
            "new_attempt": part.attempt,
            "now": part.changed,
            "new_body": part.body,
        }
        | (
            {"new_began": part.began, "new_seconds": part.seconds, "new_process": part.process}
            if has_worked
            else {}
        )
        for part in changed
    ]
    tx.conn.execute(_SAVE_WORKED if has_worked else _SAVE_PART, values)


def save(tx: Writer, operation_id: str, **values: Any) -> None:
    """Change columns of an operation.

    Args:
        values: the new value of each column. Records are encoded as text.
    """
    encoded = {k: records.to_text(v) if isinstance(v, Record) else v for k, v in values.items()}
    tx.conn.execute(
        update(sqltables.operations).where(sqltables.operations.c.id == operation_id).values(**encoded)
    )


def find_ended_before(conn: Connection, time: float, most: int) -> list[str]:
    """Return the ids of up to ``most`` operations that ended at or before a time, earliest end first."""
    at = sqltables.operations.c
    query = select(at.id).where(at.ended <= time).order_by(at.ended, at.number).limit(most)
    return list(conn.execute(query).scalars())


def forget(tx: Writer, *operation_ids: str) -> None:
    for chunk in chunks(operation_ids):
        tx.conn.execute(delete(sqltables.parts).where(sqltables.parts.c.operation_id.in_(chunk)))
        tx.conn.execute(delete(sqltables.operations).where(sqltables.operations.c.id.in_(chunk)))


def forget_failed(tx: Writer) -> int:
    """Delete all failed operations, and return how many there were."""
    at = sqltables.operations.c
    failed = select(at.id).where(at.state == FAILED)
    tx.conn.execute(delete(sqltables.parts).where(sqltables.parts.c.operation_id.in_(failed)))
    return tx.conn.execute(delete(sqltables.operations).where(at.state == FAILED)).rowcount


def lock(tx: Writer, operation_id: str, locked: Sequence[Path], state: str) -> None:
    """Lock paths for an operation and set their state; refuse a path that another operation works on.

    Paths that this operation has already locked keep their state.
    """
    for path in locked:
        paths.check_ready(path, operation_id)
    paths.set_state(tx, [p.id for p in locked if p.state == READY], state, operation_id)


def complete(tx: Writer, operation_id: str, registry: VersionRegistry) -> None:
    """Publish the result of an operation.

    This applies the claims, makes new paths visible, removes dropped paths, unlocks all other paths of the
    operation, and announces all changes under one generation.
    """
    under = {row.id: row for row in tx.conn.execute(_UNDER, {"operation": operation_id}).all()}
    moved = registry.apply(tx, operation_id)
    rows = [*under.values(), *_rows(tx.conn, [i for i in moved if i not in under])]
    full = paths.full_names(tx.conn, rows)
    created = [i for i, row in under.items() if row.state in CREATED_STATES]
    dropped = [i for i, row in under.items() if row.state == "dropping"]
    changed = {*created, *moved}.difference(dropped)
    paths.describe(tx, (_AT.operation_id == operation_id) & _AT.state.in_(CREATED_STATES))
    chains.end(tx, [i for i in dropped if under[i].type == "table"])
    tables.forget(tx, dropped)
    paths.remove(tx, dropped)
    _unlock(tx, operation_id, created_at=tx.step if created else None)
    now = {row.id: row.version for row in rows} | moved
    told = [Told(i, full[i], version, False) for i, version in now.items() if i in changed]
    told += [Told(i, full[i], now[i], True) for i in dropped]
    if told:
        tx.announce(told, operation_id)


def _rows(conn: Connection, path_ids: Iterable[int]) -> list[Any]:
    return [row for chunk in chunks(path_ids) for row in conn.execute(_BRIEF.where(_AT.id.in_(chunk)))]


def roll_back(tx: Writer, operation_id: str, registry: VersionRegistry, directories: Sequence[int]) -> None:
    """Delete the claims of an operation, remove the paths that it created, and unlock its other paths.

    The catalog is then as if the operation had never begun.

    Args:
        directories: ids of directories that the operation created. Empty ones are removed.
    """
    registry.rollback(tx, operation_id)
    under = tx.conn.execute(_UNDER, {"operation": operation_id})
    made = [row.id for row in under if row.state in CREATED_STATES]
    # These paths were never visible, so no reader has them in its plan.
    for chunk in chunks(made):
        tx.conn.execute(delete(sqltables.chains).where(sqltables.chains.c.table_id.in_(chunk)))
        tx.conn.execute(delete(sqltables.commits).where(sqltables.commits.c.table_id.in_(chunk)))
    tables.forget(tx, made)
    paths.remove(tx, made)
    _unlock(tx, operation_id)
    bulk_paths.remove_empty(tx, directories)


def _unlock(tx: Writer, operation_id: str, created_at: int | None = None) -> None:
    """Unlock the paths of an operation, and delete its pin.

    Args:
        created_at: the step from which on new paths exist. None: there are no new paths.
    """
    values: dict[str, Any] = {"state": READY, "operation_id": None}
    if created_at is not None:
        # In one statement, because a database may write the whole row again for each update.
        values["created_step"] = case((_AT.state.in_(CREATED_STATES), created_at), else_=_AT.created_step)
    tx.conn.execute(update(sqltables.paths).where(_AT.operation_id == operation_id).values(values))
    tx.conn.execute(delete(sqltables.pins).where(sqltables.pins.c.name == operation_id))


def _counts(conn: Connection, only: Sequence[str] | None = None) -> dict[str, tuple[int, int]]:
    """Return the numbers of finished parts and of all parts, by operation id.

    Args:
        only: ids of the operations to count. None: all operations.
    """
    found = conn.execute(_COUNTS) if only is None else conn.execute(_COUNTS_OF, {"operations": only})
    counts: dict[str, tuple[int, int]] = {}
    for operation_id, state, number in found:
        done, all_ = counts.get(operation_id, (0, 0))
        counts[operation_id] = (done + (number if state == DONE else 0), all_ + number)
    return counts


def _operation(row: Row[Any], counts: dict[str, tuple[int, int]]) -> OperationRow:
    done, all_ = counts.get(row.id, (0, 0))
    return OperationRow(
        id=row.id,
        kind=row.kind,
        state=row.state,
        request=row.request,
        body=row.body,
        progress=row.progress,
        result=row.result,
        error=row.error,
        session_id=row.session_id,
        created=row.created,
        ended=row.ended,
        process=row.process,
        parts_done=done,
        parts=all_,
    )


def _part(row: Any) -> PartRow:
    return PartRow(
        operation_id=row.operation_id,
        id=row.id,
        kind=row.kind,
        stage=row.stage,
        state=row.state,
        attempt=row.attempt,
        changed=row.changed,
        body=row.body,
    )
