"""The one way in which a statement learns that the catalog has moved on under its feet."""

from __future__ import annotations


class Stale(Exception):
    """What a statement was planned with is out of date; it must be planned again. Never reaches a caller."""

    def __init__(self, table_id: int, reason: str) -> None:
        super().__init__(f"table {table_id}: {reason}")
        self.table_id = table_id
        self.reason = reason


class RowsChanged(Stale):
    """Only rows were committed to the table since it was read; perhaps not those that matter."""


class Ended(Stale):
    """A process has come too late: what it read, or what it wrote, may have been collected."""
