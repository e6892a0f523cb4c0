"""The error that tells a statement that the catalog has changed since it was planned."""

from __future__ import annotations


class Stale(Exception):
    """The plan of a statement is out of date; the statement must be planned again. Never reaches a caller."""

    def __init__(self, table_id: int, reason: str) -> None:
        super().__init__(f"table {table_id}: {reason}")
        self.table_id = table_id
        self.reason = reason


class RowsChanged(Stale):
    """Rows were committed to the table since it was read; the statement may not depend on them."""


class Ended(Stale):
    """The process is too late: the collector may have removed what it read or wrote."""
