"""The Python database interface (PEP 249) of a warehouse.

    from strandline import dbapi

    connection = dbapi.connect("warehouse")
    cursor = connection.cursor()
    cursor.execute("UPSERT INTO t (k, v) VALUES (?, ?)", (1, "x"))
    connection.commit()

The first statement that changes rows begins a transaction. ``commit`` commits it at one step, ``rollback``
discards it. Other statements (CREATE, BACKUP, ...) first commit the open transaction and then run on their
own. Threads may share the module, but not a connection.
"""

from __future__ import annotations

import time
from datetime import date, datetime, timezone
from datetime import time as _time

from strandline.dbapi.connection import Connection, connect
from strandline.dbapi.cursor import BINARY, DATETIME, NUMBER, ROWID, STRING, Cursor
from strandline.dbapi.exceptions import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"
"""Markers ``:name`` with a dict of values work as well."""

Date = date
Time = _time
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:
    """Return the local date of a number of seconds since 1970."""
    return date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> _time:
    """Return the local time of day of a number of seconds since 1970."""
    return _time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime:
    """Return the UTC date and time of a number of seconds since 1970."""
    return datetime.fromtimestamp(ticks, timezone.utc)
