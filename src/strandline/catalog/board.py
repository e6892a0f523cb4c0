"""The board carries publications to the caches of all processes: a log of (generation, path, version), from
which nothing goes before it is so old that nobody waits for it any more (``history.forget``).

A transaction that changes descriptions publishes all of them under one generation, so a cache that has caught
up with a generation has seen either all of its paths or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, insert, literal, select

from strandline.catalog import many, sqltables
from strandline.catalog.paths import Path
from strandline.catalog.writer import Announcement, Writer

_STEP = select(sqltables.clock.c.step).where(sqltables.clock.c.id == 1)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """One announced description: the path has this version from the generation on, or is gone."""

    generation: int
    path_id: int
    path: str
    version: int
    dropped: bool
    time: float


class Told(NamedTuple):
    """A path that is announced; there may be very many of them."""

    path_id: int
    path: str
    version: int
    dropped: bool


def current_step(conn: Connection) -> int:
    """Return the step of the last commit."""
    return int(conn.execute(_STEP).scalar_one())


def publish(tx: Writer, changed: Sequence[Path], dropped: Sequence[Path] = ()) -> int:
    """Record the descriptions as they are from the writer's step on and announce them; ``changed`` must be
    freshly read."""
    if changed:
        tx.conn.execute(
            insert(sqltables.descriptions),
            [{"path_id": p.id, "version": p.version, "step": tx.step, "body": p.body} for p in changed],
        )
    told = [Told(p.id, p.path, p.version, dropped=False) for p in changed]
    return announce(tx, [*told, *(Told(p.id, p.path, p.version, dropped=True) for p in dropped)])


def describe(tx: Writer, which: ColumnElement[bool]) -> None:
    """Record the descriptions of paths as they are from the writer's step on. However many there are, none of
    them leaves the catalog for it."""
    at, columns = sqltables.paths.c, ["path_id", "version", "step", "body"]
    present = select(at.id, at.version, literal(tx.step, BigInteger), at.body).where(which)
    tx.conn.execute(insert(sqltables.descriptions).from_select(columns, present))


def announce(tx: Writer, told: Sequence[Told], operation_id: str | None = None) -> int:
    """Tell the caches of all processes of paths whose descriptions are recorded, or that are gone."""
    number = tx.next_generation()
    columns = ("generation", "path_id", "path", "version", "dropped", "time", "step", "operation_id")
    many.insert_rows(
        tx, sqltables.board, columns, [(number, *each, tx.now, tx.step, operation_id) for each in told]
    )
    versions = {path: version for _, path, version, _ in told}
    tx.announced.append(Announcement(number, tx.step, operation_id, versions))
    return number


def since(conn: Connection, after: int) -> list[Publication]:
    """The publications of all generations after ``after``, in order. If the first are not of the next one,
    they have been forgotten."""
    rows = conn.execute(
        select(sqltables.board)
        .where(sqltables.board.c.generation > after)
        .order_by(sqltables.board.c.generation, sqltables.board.c.path_id)
    )
    return [
        Publication(
            generation=r.generation,
            path_id=r.path_id,
            path=r.path,
            version=r.version,
            dropped=r.dropped,
            time=r.time,
        )
        for r in rows
    ]
