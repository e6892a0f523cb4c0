"""The board carries publications to the caches of all processes: an append-only log of (generation, path,
version).

A transaction that changes descriptions publishes all of them under one generation, so a cache that has caught
up with a generation has seen either all of its paths or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from strandline.catalog import sqltables
from strandline.catalog.paths import Path


@dataclass(frozen=True, kw_only=True)
class Publication:
    """One announced description: the path has this version from the generation on, or is gone."""

    generation: int
    path_id: int
    path: str
    version: int
    dropped: bool
    time: float


@dataclass(frozen=True)
class Announcement:
    """What one transaction published under one generation, and the operation that it was for, if any."""

    generation: int
    step: int
    operation_id: str | None
    versions: dict[str, int]


@dataclass(frozen=True)
class Present:
    """The last step, and the last generation: everything that was published up to this step is in it, and
    nothing else."""

    step: int
    generation: int


_ANNOUNCED = "strandline_announced"
_TIME = "strandline_time"
_CLOCK = select(sqltables.clock.c.step, sqltables.clock.c.generation).where(sqltables.clock.c.id == 1)


def begin(conn: Connection, now: float) -> None:
    """A write transaction has begun; nobody else writes from now on. What one that failed has announced is
    forgotten."""
    conn.info.pop(_ANNOUNCED, None)
    conn.info[_TIME] = now


def time(conn: Connection) -> float:
    """When the write transaction began: not before what it sees was committed."""
    now: float = conn.info[_TIME]
    return now


def take_announced(conn: Connection) -> list[Announcement]:
    """The announcements of this connection's transaction so far, which are then forgotten."""
    announced: list[Announcement] = conn.info.pop(_ANNOUNCED, [])
    return announced


def next_step(conn: Connection) -> int:
    """Take the next step of the commit clock; it becomes real with the transaction."""
    return int(
        conn.execute(
            update(sqltables.clock)
            .where(sqltables.clock.c.id == 1)
            .values(step=sqltables.clock.c.step + 1)
            .returning(sqltables.clock.c.step)
        ).scalar_one()
    )


def present(conn: Connection) -> Present:
    row = conn.execute(_CLOCK).one()
    return Present(row.step, row.generation)


def current_step(conn: Connection) -> int:
    return present(conn).step


def publish(
    conn: Connection,
    step: int,
    now: float,
    changed: Sequence[Path],
    dropped: Sequence[Path] = (),
    *,
    operation_id: str | None = None,
) -> int:
    """Record the descriptions as they are from ``step`` on and announce them; ``changed`` must be freshly
    read."""
    number = int(
        conn.execute(
            update(sqltables.clock)
            .where(sqltables.clock.c.id == 1)
            .values(generation=sqltables.clock.c.generation + 1)
            .returning(sqltables.clock.c.generation)
        ).scalar_one()
    )
    if changed:
        conn.execute(
            insert(sqltables.descriptions),
            [{"path_id": p.id, "version": p.version, "step": step, "body": p.body} for p in changed],
        )
    announced = [(p, False) for p in changed] + [(p, True) for p in dropped]
    if announced:
        conn.execute(
            insert(sqltables.board),
            [
                {
                    "generation": number,
                    "path_id": p.id,
                    "path": p.path,
                    "version": p.version,
                    "dropped": gone,
                    "time": now,
                }
                for p, gone in announced
            ],
        )
    versions = {p.path: p.version for p, _ in announced}
    conn.info.setdefault(_ANNOUNCED, []).append(Announcement(number, step, operation_id, versions))
    return number


def since(conn: Connection, after: int) -> list[Publication]:
    """The publications of all generations after ``after``, in order."""
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
