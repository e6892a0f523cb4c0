"""Holds: what a stream, or an index that follows its table, still needs of a table. A stream's position is
its hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, and_, delete, func, or_, select, update

from strandline.catalog import many, sqltables
from strandline.catalog.writer import Writer

# One after the other, for each has an index of its own.
_ENDS = [
    delete(sqltables.holds).where(sqltables.among(column, "gone"))
    for column in (sqltables.holds.c.owner_id, sqltables.holds.c.table_id)
]


@dataclass(frozen=True)
class Hold:
    """``owner_id`` needs every change of the table after ``step``, and with ``keeps_state`` also the state at
    it."""

    owner_id: int
    table_id: int
    step: int
    keeps_state: bool


def add(tx: Writer, *new: Hold) -> None:
    columns = ("owner_id", "table_id", "step", "keeps_state")
    many.insert_rows(
        tx, sqltables.holds, columns, [(h.owner_id, h.table_id, h.step, h.keeps_state) for h in new]
    )


def find(conn: Connection, owner_id: int) -> Hold | None:
    row = conn.execute(select(sqltables.holds).where(sqltables.holds.c.owner_id == owner_id)).one_or_none()
    return None if row is None else Hold(row.owner_id, row.table_id, row.step, row.keeps_state)


def move(tx: Writer, owner_id: int, step: int) -> None:
    tx.conn.execute(update(sqltables.holds).where(sqltables.holds.c.owner_id == owner_id).values(step=step))


def keep_state(tx: Writer, owner_id: int, keeps: bool) -> None:
    """Say whether the owner needs the state at its step as well."""
    of = sqltables.holds.c.owner_id == owner_id
    tx.conn.execute(update(sqltables.holds).where(of).values(keeps_state=keeps))


def is_held(conn: Connection, table_id: int) -> bool:
    found = select(sqltables.holds.c.owner_id).where(sqltables.holds.c.table_id == table_id).limit(1)
    return conn.execute(found).one_or_none() is not None


def remove(tx: Writer, path_ids: Iterable[int]) -> None:
    """End the holds of paths that go, and those of others on them."""
    if gone := list(path_ids):
        for ends in _ENDS:
            tx.conn.execute(ends, {"gone": gone})


def kept_by(conn: Connection, hold: Hold) -> tuple[int, int]:
    """How many segments, with how many bytes, the table itself does not need any more and only this hold,
    perhaps with others, keeps."""
    chain, segment = sqltables.chains.c, sqltables.segments.c
    needed = and_(segment.role == "log", segment.upto > hold.step)
    if hold.keeps_state:
        needed = or_(needed, chain.removed > hold.step)
    count, size = conn.execute(
        select(func.count(), func.coalesce(func.sum(segment.bytes), 0))
        .select_from(sqltables.chains.join(sqltables.segments, segment.id == chain.segment_id))
        .where(
            chain.table_id == hold.table_id,
            chain.removed.is_not(None),
            chain.superseded.is_(False),
            needed,
        )
    ).one()
    return int(count), int(size)
