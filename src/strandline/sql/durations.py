"""Periods as texts, such as ``26h``: in settings of statements and in options of commands."""

from __future__ import annotations

import re

from strandline.errors import InvalidArgument

__all__ = ["hours", "normal_period", "parse_period"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_WORDS = {"m": "minute", "h": "hour", "d": "day"}


def parse_period(text: str) -> float:
    """Parse a period such as ``26h``; return seconds."""
    number, unit = _split(text)
    return float(number) * _UNITS[unit]


def normal_period(text: str) -> str:
    """Return a period without spaces and in lower case, such as ``26h``."""
    return "".join(_split(text))


def hours(seconds: float) -> str:
    """Return a period as text in one unit, such as ``3 days``."""
    for unit in "dhm":
        if seconds >= 2 * _UNITS[unit]:
            return f"{int(seconds // _UNITS[unit])} {_WORDS[unit]}s"
    return f"{int(seconds)} second{'' if int(seconds) == 1 else 's'}"


def _split(text: str) -> tuple[str, str]:
    found = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([smhdw])\s*", text, re.IGNORECASE)
    if found is None:
        raise InvalidArgument(
            f"{text!r} is not a time", "Write a number and a unit, such as 90m, 26h, 8d or 2w."
        )
    return found[1], found[2].lower()
