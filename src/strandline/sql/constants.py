"""Values as SQL text."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from strandline.types import Type

__all__ = ["cast_constant", "constant"]


def constant(value: Any) -> str:
    """Return a value as a SQL literal. Dates and times become quoted text."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, bool | int | Decimal):
        return str(value)
    return _string(value.isoformat() if isinstance(value, date) else str(value))


def cast_constant(type_: Type, value: Any) -> str:
    """Return a SQL expression for a canonical value, in the type's physical form on Spark."""
    if value is not None and type_.kind in ("bool", "bytes"):
        return constant(value)
    text = (
        "NULL" if value is None else constant(value) if isinstance(value, str | date) else _string(str(value))
    )
    return f"CAST({text} AS {type_.spark})"


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
