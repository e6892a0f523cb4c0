"""Results of verifications, by path, level and time.

The path is that of a backup, or of a collection whose objects were verified. The collector deletes the
results of paths that no longer exist (``garbage_collection.sweep``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select

from strandline import records
from strandline.catalog import sqltables
from strandline.catalog.transactions import Writer
from strandline.records import R, Record, RecordType

_ROWS = (
    select(sqltables.verified)
    .where(sqltables.among(sqltables.verified.c.path_id, "path_ids"))
    .order_by(sqltables.verified.c.id)
)
_OF_LEVELS = (
    select(sqltables.verified)
    .where(sqltables.verified.c.level.in_(bindparam("levels", expanding=True)))
    .order_by(sqltables.verified.c.id)
)
_REMOVE = delete(sqltables.verified).where(sqltables.among(sqltables.verified.c.id, "row_ids"))


class Verified(NamedTuple):
    """A stored verification result; ``body`` is the text of its record."""

    id: int
    path_id: int
    level: str
    time: float
    body: str

    def record(self, kind: RecordType[R]) -> R:
        return records.from_text(kind, self.body, f"what was verified of path {self.path_id}")


def of_paths(conn: Connection, path_ids: Iterable[int]) -> list[Verified]:
    """Return the verification results of these paths, in the order in which they were stored."""
    return [Verified(*row) for row in conn.execute(_ROWS, {"path_ids": list(path_ids)})]


def of_levels(conn: Connection, levels: Iterable[str]) -> list[Verified]:
    """Return all verification results at these levels, in the order in which they were stored."""
    return [Verified(*row) for row in conn.execute(_OF_LEVELS, {"levels": list(levels)})]


def add(tx: Writer, level: str, found: Sequence[tuple[int, Record]], time: float | None = None) -> None:
    """Store verification results.

    Args:
        found: pairs of a path's id and the record of its result.
        time: the time of the verification. None: now.
    """
    at = tx.now if time is None else time
    rows = [
        {"path_id": path_id, "level": level, "time": at, "body": records.to_text(record)}
        for path_id, record in found
    ]
    if rows:
        tx.conn.execute(insert(sqltables.verified), rows)


def remove(tx: Writer, row_ids: Iterable[int]) -> None:
    if ids := list(row_ids):
        tx.conn.execute(_REMOVE, {"row_ids": ids})
