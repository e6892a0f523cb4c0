"""The board carries publications to the caches of all processes: an append-only log of (generation, path,
version).

A transaction that changes descriptions publishes all of them under one generation, so a cache that has caught
up with a generation has seen either all of its paths or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select

from strandline.catalog import sqltables
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


def current_step(conn: Connection) -> int:
    """Return the step of the last commit."""
    return int(conn.execute(_STEP).scalar_one())


def publish(
    tx: Writer, changed: Sequence[Path], dropped: Sequence[Path] = (), *, operation_id: str | None = None
) -> int:
    """Record the descriptions as they are from the writer's step on and announce them; ``changed`` must be
    freshly read."""
    number = tx.next_generation()
    if changed:
        tx.conn.execute(
            insert(sqltables.descriptions),
            [{"path_id": p.id, "version": p.version, "step": tx.step, "body": p.body} for p in changed],
        )
    announced = [(p, False) for p in changed] + [(p, True) for p in dropped]
    if announced:
        tx.conn.execute(
            insert(sqltables.board),
            [
                {
                    "generation": number,
                    "path_id": p.id,
                    "path": p.path,
                    "version": p.version,
                    "dropped": gone,
                    "time": tx.now,
                }
                for p, gone in announced
            ],
        )
    versions = {p.path: p.version for p, _ in announced}
    tx.announced.append(Announcement(number, tx.step, operation_id, versions))
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
