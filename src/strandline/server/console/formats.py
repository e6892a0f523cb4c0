"""Text forms of values on the pages of the console: times, periods, sizes and numbers."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from markupsafe import Markup, escape

_PERIODS = ((86400 * 2, 86400, "days"), (3600, 3600, "h"), (60, 60, "min"), (0, 1, "s"))
"""For each unit: the shortest period that it is used for, its length in seconds, and its name."""
_FAR = datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp()
LONG = 300
"""Maximum number of characters of a value in a result."""


def seconds_of(time: float | datetime) -> float:
    """Return a time as seconds since the epoch."""
    return time.timestamp() if isinstance(time, datetime) else time


def iso(time: float | datetime) -> str:
    """Return a time in UTC, such as ``2026-11-19 08:00:00Z``."""
    at = datetime.fromtimestamp(min(seconds_of(time), _FAR), timezone.utc)
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def period(seconds: float) -> str:
    """Return a period in one unit, such as ``26 h`` or ``3 days``."""
    for least, length, unit in _PERIODS:
        if seconds >= least:
            return f"{int(seconds // length)} {unit}"
    return "0 s"


def duration(seconds: float) -> str:
    """Return a measured duration, such as ``120 ms``, ``1.5 s`` or ``2:03:10``."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def relative(time: float | datetime, now: float) -> str:
    """Return a time relative to now, such as ``5 min ago`` or ``in 3 h``."""
    age = now - seconds_of(time)
    if abs(age) < 1:
        return "just now"
    return f"{period(age)} ago" if age > 0 else f"in {period(-age)}"


def moment(time: float | datetime | None, now: float) -> Markup:
    """Return an element with a time in UTC and relative to now; a dash if there is no time."""
    if time is None:
        return Markup('<span class="muted">–</span>')
    at = escape(iso(time))
    machine = at.replace(" ", "T")
    return Markup(
        f'<time datetime="{machine}">{at}</time> <span class="ago">{escape(relative(time, now))}</span>'
    )


def size(number: float | None) -> str:
    """Return a number of bytes with a unit, such as ``1.5 MB``; a dash if it is not known."""
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def number(value: float | None) -> str:
    """Return a number with separators; a dash if it is not known."""
    return "–" if value is None else f"{value:,}"


def cell(value: Any) -> str:
    """Return a value of a query's result as text of limited length."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        text = f"x'{bytes(value[:LONG]).hex()}'"
    elif isinstance(value, dict | list | tuple):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        text = str(value)
    return text if len(text) <= LONG else f"{text[:LONG]}…"
