"""Inputs and results of row writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from strandline.model import Digest, Segment, State, TableSchema

__all__ = ["Mode", "Outcome", "Row", "RowCounts", "Target", "Written"]

Row: TypeAlias = tuple[Any, ...]
"""The values of a row, in the order of the schema's columns."""

Mode: TypeAlias = Literal["UPSERT", "REPLACE", "INSERT", "UPDATE", "DELETE", "DELETE ON"]


@dataclass(frozen=True)
class Target:
    """The table that a write changes, and callbacks of the write."""

    state: State
    """State of the table that the statement sees."""
    indexes: Callable[[], Mapping[str, TableSchema]]
    """Returns the schemas of the index implementation tables to update, by index name."""
    name: Callable[[str | None], str]
    """Returns a fresh file name. The argument is the name of an index, or None for the table itself.

    A callback, because a name needs a durable session and many writes need no file.
    """
    reads: Callable[[pa.Table], None]
    """Called with the keys whose existing rows decide the outcome, before these rows are read.

    Not called for writes on Spark. A write on Spark needs no such call: either it also writes all these keys,
    or the keys come from a query that has reported its reads itself.
    """


@dataclass(frozen=True)
class Written:
    """Durable segments that are not committed yet, and the change of their table's digest."""

    segments: tuple[Segment, ...] = ()
    delta: Digest = field(default_factory=Digest)


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows that writes changed, added over the writes.

    Attributes:
        changed: all changes, also erases of keys that were not there.
        inserted: rows with new keys.
        updated: rows whose keys were there.
        deleted: rows that are gone.
    """

    changed: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, written: Written, *, deletes: bool) -> RowCounts:
        """Return the counts of one write to a table."""
        changed, more = sum(segment.rows for segment in written.segments), written.delta.rows
        return cls(changed, deleted=-more) if deletes else cls(changed, more, changed - more)

    def __add__(self, other: RowCounts) -> RowCounts:
        return self._with(other, 1)

    def __sub__(self, other: RowCounts) -> RowCounts:
        return self._with(other, -1)

    def _with(self, other: RowCounts, sign: int) -> RowCounts:
        return RowCounts(
            self.changed + sign * other.changed,
            self.inserted + sign * other.inserted,
            self.updated + sign * other.updated,
            self.deleted + sign * other.deleted,
        )


@dataclass(frozen=True)
class Outcome:
    """The segments that a write made for a table and, by index name, for each of the table's indexes."""

    table: Written = field(default_factory=Written)
    indexes: Mapping[str, Written] = field(default_factory=dict)
    given: pa.Table | None = None
    """The rows that the write received, in the table's types. None: this process did not read these rows."""
