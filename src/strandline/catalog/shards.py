"""What the catalog tells people about the parts of an operation: which are in progress, since when and by
whom, how long the others took, what went wrong with each try, and how far each stage has come.

The engine asks for none of it. That a part is in progress is written down only if its work takes a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, select, update

from strandline import records
from strandline.catalog import sqltables
from strandline.catalog.operations import DONE, Part
from strandline.catalog.writer import Writer
from strandline.chunks import chunks
from strandline.errors import StrandlineError
from strandline.records import Record

_AT = sqltables.parts.c
_SHOWN = [column for column in _AT if column.name != "body"]
_IS_BEGUN: ColumnElement[bool] = and_(_AT.began.is_not(None), _AT.seconds.is_(None))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A try that failed: when, after how long, in which process, and why."""

    time: float
    seconds: float
    process: str
    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Attempts(Record):
    """The tries of a part that failed, in their order."""

    failed: tuple[Attempt, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShownPart:
    """A part without what its handler keeps. ``attempt``: how often it has failed. ``began`` and ``process``:
    the present work, or the last one, which took so many ``seconds``."""

    id: int
    kind: str
    stage: int
    state: str
    attempt: int
    changed: float
    increment: int | None
    path: str | None
    shard: int | None
    bytes: int | None
    began: float | None
    seconds: float | None
    process: str | None
    errors: str | None

    @property
    def is_in_progress(self) -> bool:
        return self.state != DONE and self.began is not None and self.seconds is None

    def failures(self) -> tuple[Attempt, ...]:
        if self.errors is None:
            return ()
        return records.from_text(Attempts, self.errors, f"the errors of part {self.id}").failed


@dataclass(frozen=True, kw_only=True)
class Stage:
    """How far the parts of one stage have come. ``retries``: how often any of them was tried again.
    ``changed``: when the last of them went on."""

    stage: int
    increment: int | None
    parts: int
    done: int
    bytes: int
    retries: int
    changed: float


def failed(part: Part, attempt: Attempt) -> Part:
    """The part after one more try that has failed."""
    known = (
        Attempts()
        if part.errors is None
        else records.from_text(Attempts, part.errors, f"the errors of part {part.id}")
    )
    errors = records.to_text(Attempts(failed=(*known.failed, attempt)))
    return replace(part, attempt=part.attempt + 1, errors=errors, began=None, seconds=None, process=None)


def attempt_of(error: StrandlineError, *, began: float, now: float, process: str) -> Attempt:
    return Attempt(
        time=began, seconds=max(0.0, now - began), process=process, code=error.code, message=error.message
    )


def note_begun(tx: Writer, operation_id: str, part_ids: Iterable[int], began: float, process: str) -> None:
    """Write down that parts are in progress."""
    for chunk in chunks(part_ids):
        tx.conn.execute(
            update(sqltables.parts)
            .where(_AT.operation_id == operation_id, _AT.id.in_(chunk), sqltables.is_open)
            .values(began=began, seconds=None, process=process)
        )


def forget_begun(tx: Writer, operation_id: str) -> None:
    """Nobody works on any part of the operation any more."""
    tx.conn.execute(
        update(sqltables.parts)
        .where(_AT.operation_id == operation_id, _IS_BEGUN, sqltables.is_open)
        .values(began=None, process=None)
    )


def shown_parts(conn: Connection, operation_id: str, most: int | None = None) -> list[ShownPart]:
    """The parts in the order in which they are carried out; or no more than so many of them, those first that
    matter most to whoever waits: what is in progress, the longest first, what has failed, what is waiting."""
    found = select(*_SHOWN).where(_AT.operation_id == operation_id)
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
    return [_shown(row) for row in conn.execute(found)]


def slowest(conn: Connection, operation_id: str) -> ShownPart | None:
    """The part that is in progress for the longest time."""
    row = conn.execute(
        select(*_SHOWN)
        .where(_AT.operation_id == operation_id, _IS_BEGUN, sqltables.is_open)
        .order_by(_AT.began, _AT.id)
        .limit(1)
    ).one_or_none()
    return None if row is None else _shown(row)


def stages(conn: Connection, operation_id: str) -> list[Stage]:
    """The stages of an operation, in their order."""
    is_done = case((sqltables.is_open, 0), else_=1)
    rows = conn.execute(
        select(
            _AT.stage,
            func.min(_AT.increment).label("increment"),
            func.count().label("parts"),
            func.sum(is_done).label("done"),
            func.sum(case((sqltables.is_open, 0), else_=_AT.bytes)).label("bytes"),
            func.sum(_AT.attempt).label("retries"),
            func.max(_AT.changed).label("changed"),
        )
        .where(_AT.operation_id == operation_id)
        .group_by(_AT.stage)
        .order_by(_AT.stage)
    )
    return [
        Stage(
            stage=row.stage,
            increment=row.increment,
            parts=row.parts,
            done=int(row.done),
            bytes=int(row.bytes or 0),  # PostgreSQL adds up to numbers of another type.
            retries=int(row.retries),
            changed=row.changed,
        )
        for row in rows
    ]


def _shown(row: Row[Any]) -> ShownPart:
    return ShownPart(**{name: value for name, value in row._mapping.items() if name != "operation_id"})
