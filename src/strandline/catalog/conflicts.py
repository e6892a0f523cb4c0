"""Errors that say that the catalog has changed since a statement was planned."""

from __future__ import annotations


class Stale(Exception):
    """The plan of a statement is out of date: the statement must be planned again. Users never see this."""

    def __init__(self, table_id: int, reason: str) -> None:
        super().__init__(f"table {table_id}: {reason}")
        self.table_id = table_id
        self.reason = reason


class RowsChanged(Stale):
    """Rows were committed to the table since the statement read it.

    The plan is still valid if the statement does not depend on these rows.
    """


class Ended(Stale):
    """The session has ended, so the collector may have removed files that this process read or wrote."""
