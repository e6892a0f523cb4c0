"""The board: a log of publications that all processes read to keep their caches fresh.

Each entry has a generation, a path and its version. A transaction that changes descriptions announces all of
them under one generation (``Writer.announce``). So a cache that has read the entries of a generation knows
all paths that this transaction changed. ``history.forget`` deletes old entries.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from strandline.catalog import sqltables


@dataclass(frozen=True, kw_only=True)
class Publication:
    """An announced description: the path has this version from this generation on, or was dropped."""

    generation: int
    path_id: int
    path: str
    version: int
    dropped: bool
    time: float


def since(conn: Connection, after: int) -> list[Publication]:
    """Return the publications of all generations after ``after``, in order.

    If the first publication does not have generation ``after + 1``, publications in between were deleted.
    """
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
