"""Time travel outside SQL: the arguments ``at`` and ``backup``."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from strandline.errors import InvalidArgument
from strandline.sql.references import TableRef
from strandline.types import coerce, parse_type


def reference(path: str, at: Any = None, backup: str | None = None) -> TableRef:
    """Return a reference to a table at a point in time or in a backup.

    Args:
        path: the table.
        at: a step, a datetime, or a time as ISO text.
        backup: ``collection`` for its last backup, or ``collection/backup``.
    """
    if at is not None and backup is not None:
        raise InvalidArgument(
            "a table is read at one point in time or from one backup", "Leave out at or backup."
        )
    if backup is not None:
        collection, _, name = backup.partition("/")
        return TableRef(path, path, backup=(collection, name or None))
    if isinstance(at, str) and at.isascii() and at.isdigit() and len(at) < 20:
        at = int(at)
    if at is None or (isinstance(at, int) and not isinstance(at, bool)):
        return TableRef(path, path, version=at)
    if not isinstance(at, str | datetime) or (isinstance(at, date) and not isinstance(at, datetime)):
        raise InvalidArgument(
            f"a moment is a step or a time, not {at!r}", "Give a number, a datetime or a text in ISO form."
        )
    moment = coerce(parse_type("Timestamp"), at, "at")
    assert isinstance(moment, datetime)
    return TableRef(path, path, timestamp=moment)
