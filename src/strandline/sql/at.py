"""The parser of ``at``: a step, a time, or the name of a backup.

SQL, the Python API, the command line and the options of Spark's reader use the same parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from strandline.errors import InvalidArgument
from strandline.types import coerce, parse_type

__all__ = ["At", "parse_at", "parse_backup", "parse_step", "parse_time"]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME_HINT = "a time in ISO form: 2026-01-31T12:00:00Z."


@dataclass(frozen=True)
class At:
    """A point in time. At most one field is set. If no field is set, the point is now, or the last backup."""

    step: int | None = None
    time: datetime | None = None
    backup: str | None = None


def parse_at(value: Any, what: str = "at", *, or_backup: bool = False) -> At:
    """Parse a step or a time, and with ``or_backup`` also the name of a backup.

    Args:
        value: an integer, a datetime, or a text. A time in ISO form is in UTC unless it has an offset. None:
            now, or the last backup.
        what: the name of the value in an error.
        or_backup: whether a text may be the name of a backup.
    """
    if value is None:
        return At()
    if isinstance(value, int) and not isinstance(value, bool):
        return At(step=value)
    if isinstance(value, str):
        step = parse_step(value)
        if step is not None:
            return At(step=step)
        if or_backup and not _DATE.match(value):
            return At(backup=value)
    try:
        return At(time=parse_time(value))
    except InvalidArgument:
        shown = value[:40] if isinstance(value, str) else value
        choices = "the name of a backup, a step, or " if or_backup else "a step, or "
        raise InvalidArgument(f"{what} cannot be {shown!r}", f"Give {choices}{_TIME_HINT}") from None


def parse_step(text: str) -> int | None:
    """Parse a text of digits as a step; return None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def parse_time(value: Any) -> datetime:
    """Convert a datetime or ISO text to a time with a zone. Without an offset it is in UTC."""
    if not isinstance(value, str | datetime):
        raise InvalidArgument(f"{value!r} is not a time", f"Give {_TIME_HINT}")
    time = coerce(parse_type("Timestamp"), value, "at")
    assert isinstance(time, datetime)
    return time


def parse_backup(text: str, what: str = "backup") -> tuple[str, str | None]:
    """Parse ``nightly`` or ``nightly/BACKUP``; return the collection and the backup (None: the last one)."""
    collection, _, backup = text.partition("/") if isinstance(text, str) else ("", "", "")
    if not collection or "/" in backup:
        shown = text[:80] if isinstance(text, str) else text
        raise InvalidArgument(
            f"{what} cannot be {shown!r}",
            "Name a collection, or a collection and one of its backups: nightly/20260101120000Z_full.",
        )
    return collection, backup or None
