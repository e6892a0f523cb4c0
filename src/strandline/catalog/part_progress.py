"""Progress of the parts of operations, for display.

The catalog records when and in which process each part in progress began, how long finished parts took, and
the error of each failed attempt. The progress of stages is computed from the parts. Running an operation does
not depend on any of this. A part is recorded as in progress only if its work takes a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, false, func, select, update

from strandline import records
from strandline.catalog import sqltables
from strandline.catalog.operations import DONE, OperationRow, PartRow
from strandline.catalog.transactions import Writer
from strandline.chunks import chunks
from strandline.errors import StrandlineError
from strandline.records import Record

_AT = sqltables.parts.c
_SHOWN = [column for column in _AT if column.name != "body"]
_IS_BEGUN: ColumnElement[bool] = and_(_AT.began.is_not(None), _AT.seconds.is_(None))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A failed attempt: when it began, how long it took, in which process, and why it failed."""

    time: float
    seconds: float
    process: str
    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Attempts(Record):
    """The failed attempts of a part, in order."""

    failed: tuple[Attempt, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """A part of an operation: a shard of a table or index, or another piece of work.

    Attributes:
        state: ``waiting``, ``in progress``, ``done``, ``failed`` (it will be retried) or ``given up`` (the
            operation has ended without it).
        attempt: the number of the present attempt, or of the last one.
        since: the time when this attempt began to work on files.
        process: the process in which this attempt began (``host:pid``).
        seconds: how long this attempt took.
        errors: the failed attempts.
        increment: the increment that the part belongs to; 0 is the full backup.
        path: the table or index that the part works on.
    """

    id: int
    kind: str
    stage: int
    increment: int | None
    path: str | None
    shard: int | None
    bytes: int | None
    state: str
    attempt: int
    since: float | None
    seconds: float | None
    process: str | None
    errors: tuple[Attempt, ...]


@dataclass(frozen=True, kw_only=True)
class StageInfo:
    """Progress of one stage of an operation.

    In a restore, stage 0 is the full backup and each later stage is an increment.

    Attributes:
        bytes: the bytes of the finished parts.
        retries: how often parts of the stage were retried.
        seconds: the time from the end of the previous stage to the last change of this stage. None: no part
            of the stage is done yet.
    """

    stage: int
    increment: int | None
    parts: int
    parts_done: int
    bytes: int
    retries: int
    seconds: float | None


def save_failed(tx: Writer, part: PartRow, attempt: Attempt) -> None:
    """Store a failed attempt of a part."""
    is_it = (_AT.operation_id == part.operation_id) & (_AT.id == part.id)
    text: str | None = tx.conn.execute(select(_AT.errors).where(is_it)).scalar_one()
    known = _read(text, part.id)
    errors = records.to_text(Attempts(failed=(*known, attempt)))
    values = {"attempt": part.attempt + 1, "errors": errors, "began": None, "seconds": None, "process": None}
    tx.conn.execute(update(sqltables.parts).where(is_it).values(values))


def _read(errors: str | None, part_id: int) -> tuple[Attempt, ...]:
    return (
        () if errors is None else records.from_text(Attempts, errors, f"the errors of part {part_id}").failed
    )


def attempt_of(error: StrandlineError, *, began: float, now: float, process: str) -> Attempt:
    return Attempt(
        time=began, seconds=max(0.0, now - began), process=process, code=error.code, message=error.message
    )


def note_begun(tx: Writer, operation_id: str, part_ids: Iterable[int], began: float, process: str) -> None:
    """Record that parts are in progress."""
    for chunk in chunks(part_ids):
        tx.conn.execute(
            update(sqltables.parts)
            .where(_AT.operation_id == operation_id, _AT.id.in_(chunk), sqltables.is_open)
            .values(began=began, seconds=None, process=process)
        )


def forget_begun(tx: Writer, operation_id: str) -> None:
    """Record that no part of the operation is in progress any more."""
    tx.conn.execute(
        update(sqltables.parts)
        .where(_AT.operation_id == operation_id, _IS_BEGUN, sqltables.is_open)
        .values(began=None, process=None)
    )


def list_parts(conn: Connection, operation: OperationRow, most: int | None = None) -> list[ShardInfo]:
    """Return the parts of an operation.

    Args:
        most: maximum number of parts. They are sorted by state: parts in progress (earliest begin first),
            failed parts, waiting parts, finished parts. None: all parts, in their order of execution.
    """
    found = select(*_SHOWN).where(_AT.operation_id == operation.id)
    if most is None:
        found = found.order_by(_AT.stage, _AT.id)
    else:
        rank = case(
            (and_(_IS_BEGUN, sqltables.is_open), 0),
            (and_(_AT.attempt > 0, sqltables.is_open), 1),
            (sqltables.is_open, 2),
            (_AT.attempt > 0, 3),
            else_=4,
        )
        begun = case((and_(_IS_BEGUN, sqltables.is_open), _AT.began), else_=0.0)
        found = found.order_by(rank, begun, _AT.stage, _AT.id).limit(most)
    return [_to_info(row, operation) for row in conn.execute(found)]


def slowest(conn: Connection, operation: OperationRow) -> ShardInfo | None:
    """Return the part that has been in progress for the longest time. None: no part is in progress."""
    if operation.is_over:
        return None
    row = conn.execute(
        select(*_SHOWN)
        .where(_AT.operation_id == operation.id, _IS_BEGUN, sqltables.is_open)
        .order_by(_AT.began, _AT.id)
        .limit(1)
    ).one_or_none()
    return None if row is None else _to_info(row, operation)


def stages(conn: Connection, operation: OperationRow) -> list[StageInfo]:
    """Return the stages of an operation, in order."""
    is_done = case((sqltables.is_open, 0), else_=1)
    # A part that was given up was not retried after its last failure.
    is_given_up = and_(sqltables.is_open, _AT.attempt > 0) if operation.is_over else false()
    retries = case((is_given_up, _AT.attempt - 1), else_=_AT.attempt)
    rows = conn.execute(
        select(
            _AT.stage,
            func.min(_AT.increment).label("increment"),
            func.count().label("parts"),
            func.sum(is_done).label("done"),
            func.sum(case((sqltables.is_open, 0), else_=_AT.bytes)).label("bytes"),
            func.sum(retries).label("retries"),
            func.max(_AT.changed).label("changed"),
        )
        .where(_AT.operation_id == operation.id)
        .group_by(_AT.stage)
        .order_by(_AT.stage)
    )
    found, began = [], operation.created
    for row in rows:
        found.append(
            StageInfo(
                stage=row.stage,
                increment=row.increment,
                parts=row.parts,
                parts_done=int(row.done),
                bytes=int(row.bytes or 0),  # PostgreSQL returns a sum as another type.
                retries=int(row.retries),
                seconds=max(0.0, row.changed - began) if row.done else None,
            )
        )
        began = max(began, row.changed)
    return found


def _to_info(row: Row[Any], operation: OperationRow) -> ShardInfo:
    state = _state(row, operation)
    failed_last = state in ("failed", "given up") and row.attempt > 0
    return ShardInfo(
        id=row.id,
        kind=row.kind,
        stage=row.stage,
        increment=row.increment,
        path=row.path,
        shard=row.shard,
        bytes=row.bytes,
        state=state,
        attempt=row.attempt if failed_last else row.attempt + 1,
        since=row.began,
        seconds=row.seconds,
        process=row.process,
        errors=_read(row.errors, row.id),
    )


def _state(row: Row[Any], operation: OperationRow) -> str:
    if row.state == DONE:
        return "done"
    if operation.is_over:
        return "given up"
    if row.began is not None and row.seconds is None:
        return "in progress"
    return "failed" if row.attempt else "waiting"
