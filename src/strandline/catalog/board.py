"""The board carries publications to the caches of all processes: a log of (generation, path, version), from
which nothing goes before it is so old that nobody waits for it any more (``history.forget``).

A transaction that changes descriptions announces all of them under one generation (``Writer.announce``), so a
cache that has caught up with a generation has seen either all of its paths or none.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from strandline.catalog import sqltables


@dataclass(frozen=True, kw_only=True)
class Publication:
    """One announced description: the path has this version from the generation on, or is gone."""

    generation: int
    path_id: int
    path: str
    version: int
    dropped: bool
    time: float


def since(conn: Connection, after: int) -> list[Publication]:
    """Return the publications of all generations after ``after``, in order. If the first are not of the next
    one, they have been forgotten."""
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
