"""Conversion of values to JSON and to text, and of texts to sizes and times."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timezone
from typing import Any

from strandline.errors import InvalidArgument
from strandline.json_values import plain, utc
from strandline.sql.durations import parse_period


def format_value(value: Any) -> str:
    """Return a value as text on one line."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime):
        return utc(value, " ")
    if isinstance(value, dict | list | tuple | set) or hasattr(value, "asDict"):
        return json.dumps(plain(value), ensure_ascii=False)
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return repr(character)[1:-1]


def size(number: int | float) -> str:
    """Return a number of bytes with a unit, such as 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def bytes_of(text: str) -> int:
    """Parse a number of bytes such as ``50MB``."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)B?(?:/s)?\s*", text, re.IGNORECASE)
    if found is None:
        raise InvalidArgument(
            f"{text!r} is not a number of bytes", "Write a number and a unit, such as 50MB."
        )
    power: int = " kmgt".index(found[2].lower() or " ")
    return round(float(found[1]) * 1000.0**power)


def since_of(text: str) -> float:
    """Parse a point in time; return seconds since the epoch.

    The text is a period before now, such as ``24h``, or an ISO date and time (in UTC unless it has a zone).
    """
    try:
        found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        return time.time() - parse_period(text)
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def duration(seconds: float) -> str:
    """Return a duration as text, such as ``1.5 s`` or ``2:03:10``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_owner(owner: dict[str, Any], now: float) -> str:
    """Return a text about the process of an operation, and how long its heartbeat has been missing."""
    process = owner["process"] or "an unknown process"
    if owner["is_alive"]:
        return f"by {process}"
    if owner["seen"] is None:
        return f"by {process}, which has ended"
    return f"by {process}, without a heartbeat for {duration(max(0.0, now - owner['seen']))}"


def moment(epoch: float | None) -> str | None:
    """Return a time of the catalog in ISO form, in UTC, to the second."""
    return (
        None if epoch is None else datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    )
