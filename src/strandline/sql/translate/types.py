"""Spark's types as text, such as ``decimal(10,2)``: their names in DuckDB, and common types.

Only conversions in which both engines agree are supported. For others, ``NotTranslated`` is raised.
"""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = [
    "DECIMAL_OF",
    "INTEGERS",
    "NotTranslated",
    "common_type",
    "decimal_of",
    "decimal_type",
    "duckdb_type",
    "is_float",
    "is_integer",
    "is_numeric",
    "literal_decimal",
    "refuse",
]

INTEGERS = ("tinyint", "smallint", "int", "bigint")
DECIMAL_OF = {"tinyint": (3, 0), "smallint": (5, 0), "int": (10, 0), "bigint": (20, 0)}
"""Precision and scale of the decimal type that Spark converts an integer type to."""
MOST_DIGITS = 38

_DUCKDB = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    # Times are UTC on both sides, so that no function of DuckDB depends on a time zone.
    "timestamp": "TIMESTAMP",
    "void": "INTEGER",
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class NotTranslated(Exception):
    """Raised for a part of a query that only Spark can evaluate. Only used inside this package."""


def refuse(reason: str) -> NotTranslated:
    """Return the error for a part that only Spark evaluates; ``reason`` is a clause for EXPLAIN."""
    return NotTranslated(reason)


def duckdb_type(type_: str) -> str:
    """Return DuckDB's name of a type."""
    return _DUCKDB.get(type_) or type_.upper()


def is_integer(type_: str) -> bool:
    return type_ in INTEGERS


def is_float(type_: str) -> bool:
    return type_ in ("float", "double")


def is_numeric(type_: str) -> bool:
    return is_integer(type_) or is_float(type_) or decimal_of(type_) is not None


def decimal_of(type_: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type, None for other types."""
    found = _DECIMAL.fullmatch(type_)
    return None if found is None else (int(found[1]), int(found[2]))


def decimal_type(precision: int, scale: int) -> str:
    """Return a decimal type; refuse a precision above ``MOST_DIGITS``, or a scale above the precision.

    Spark reduces the scale if the precision is too high, and DuckDB does not.
    """
    if precision > MOST_DIGITS or scale > precision:
        raise refuse(f"a decimal of {precision} digits runs on Spark only")
    return f"decimal({precision},{scale})"


def literal_decimal(number: int | Decimal) -> tuple[int, int]:
    """Return precision and scale of the smallest decimal type that holds a literal."""
    _, digits, exponent = Decimal(number).as_tuple()
    if not isinstance(exponent, int):
        raise refuse("a number that is not finite runs on Spark only")
    scale = max(-exponent, 0)
    return max(len(digits) + max(exponent, 0), scale, 1), scale


def common_type(left: str, right: str) -> str:
    """Return the type that both sides are converted to, in comparisons, CASE, coalesce and similar forms."""
    if left == right or right == "void":
        return left
    if left == "void":
        return right
    if is_integer(left) and is_integer(right):
        return max(left, right, key=INTEGERS.index)
    if "double" in (left, right) and all(is_integer(t) or is_float(t) for t in (left, right)):
        return "double"
    if {left, right} == {"date", "timestamp"}:
        return "timestamp"
    one, other = (decimal_of(t) or DECIMAL_OF.get(t) for t in (left, right))
    if one is not None and other is not None:
        scale = max(one[1], other[1])
        return decimal_type(max(one[0] - one[1], other[0] - other[1]) + scale, scale)
    raise refuse(f"a conversion between {left} and {right} runs on Spark only")
