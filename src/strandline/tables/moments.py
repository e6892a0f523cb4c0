"""What ``at`` and ``backup`` mean where a table is named outside SQL."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from strandline.errors import InvalidArgument
from strandline.sql.references import TableRef
from strandline.types import coerce, parse_type


def reference(path: str, at: Any = None, backup: str | None = None) -> TableRef:
    """Return a table at a step or a time (a datetime, or ISO text), or in a backup: ``collection``, for its
    last one, or ``collection/backup``."""
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
