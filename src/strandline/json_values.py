"""Conversion of values to those that JSON can express, for the command line and the service."""

from __future__ import annotations

import base64
import dataclasses
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Convert a value to one that JSON can express.

    Whole numbers stay numbers of any size. Decimals with a fraction, dates and times become text, so that
    nothing is rounded. Times are in UTC. Bytes become base64.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return utc(value, "T")
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "asDict"):
        return plain(value.asDict())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    return str(value)


def utc(moment: datetime, between: str) -> str:
    """Return a time in UTC; a time without a zone is returned as it is."""
    if moment.tzinfo is None:
        return moment.isoformat(between)
    return moment.astimezone(timezone.utc).replace(tzinfo=None).isoformat(between) + "Z"
