"""Literals and bound values: their type in Spark, their name, and their text for DuckDB."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from strandline.sql.tokens import Token, value
from strandline.sql.translate.terms import Term
from strandline.sql.translate.types import decimal_type, duckdb_type, literal_decimal, refuse

__all__ = ["NULL", "date_term", "literal_term", "number_term", "parse_text", "string_term"]

NULL = Term("NULL", "void", "NULL", literal=None)
_INT = 2**31
_LONG = 2**63
_SUFFIXES = {"Y": "tinyint", "T": "tinyint", "S": "smallint", "L": "bigint"}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?")
_FORMS = {False: "%Y-%m-%d %H:%M:%S", True: "%Y-%m-%d %H:%M:%S.%f"}


def literal_term(token: Token, *, negative: bool = False) -> Term:
    """Return the term of a literal or a bound value.

    Args:
        negative: whether a minus sign precedes the literal.
    """
    if token.is_bound and (token.bound is None or isinstance(token.bound, (bool, date))):
        return _other_term(token.bound)
    found = value(token)
    if isinstance(found, (int, float, Decimal)):
        number = -found if negative else found
        if token.is_bound:
            term = number_term(number)
            return term if isinstance(found, int) else Term(term.sql, term.type, None, literal=number)
        suffix = re.sub(r"^[0-9.]+([eE][+-]?[0-9]+)?", "", token.text).upper()
        return _written_term(number, suffix)
    if negative:
        raise refuse("a minus sign before a text runs on Spark only")
    if isinstance(found, str):
        return string_term(found)
    if isinstance(found, bytes):
        return Term(
            f"from_hex('{found.hex()}')", "binary", None if token.is_bound else f"X'{found.hex().upper()}'"
        )
    raise refuse("a literal of this kind runs on Spark only")


def _written_term(number: int | float | Decimal, suffix: str) -> Term:
    if suffix in _SUFFIXES and isinstance(number, int):
        return _int_term(number, _SUFFIXES[suffix])
    if suffix in ("", "D") and isinstance(number, float):
        return number_term(number)
    if suffix in ("", "BD") and isinstance(number, (int, Decimal)):
        if suffix == "BD":
            number = Decimal(number)
        return number_term(number)
    raise refuse(f"a number with the suffix {suffix} runs on Spark only")


def number_term(number: int | float | Decimal) -> Term:
    """Return the term of a number. As in Spark, the value of the number determines its type."""
    if isinstance(number, float):
        if not math.isfinite(number):
            raise refuse("a number that is not finite runs on Spark only")
        plain = number == 0 or 1e-3 <= abs(number) < 1e7
        return Term(
            f"CAST('{number!r}' AS DOUBLE)", "double", repr(number) if plain else None, literal=number
        )
    if isinstance(number, int) and -_LONG <= number < _LONG:
        return _int_term(number, "int" if -_INT <= number < _INT else "bigint")
    type_ = decimal_type(*literal_decimal(number))
    text = format(Decimal(number), "f")
    exponent = Decimal(number).as_tuple().exponent
    # An integer beyond bigint is given to Spark with a plus sign, which is a part of its name there.
    is_plain = isinstance(exponent, int) and exponent <= 0 and not isinstance(number, int)
    return Term(
        f"CAST('{text}' AS {duckdb_type(type_)})",
        type_,
        text if is_plain else None,
        literal=Decimal(number),
    )


def _int_term(number: int, type_: str) -> Term:
    return Term(f"CAST({number} AS {duckdb_type(type_)})", type_, str(number), literal=number)


def string_term(text: str) -> Term:
    """Return the term of a text."""
    if "\0" in text:
        raise refuse("a text with the character NUL runs on Spark only")
    return Term("'" + text.replace("'", "''") + "'", "string", text, literal=text)


def _other_term(found: Any) -> Term:
    if found is None:
        return NULL
    if isinstance(found, bool):
        return Term("true" if found else "false", "boolean", str(found).lower(), literal=found)
    return Term(date_term(found).sql, date_term(found).type, None, literal=found)


def date_term(found: date) -> Term:
    """Return the term of a date, or of a time, which is converted to UTC."""
    if isinstance(found, datetime):
        text = found.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ")
        return Term(f"TIMESTAMP '{text}'", "timestamp", None, literal=found)
    return Term(f"DATE '{found.isoformat()}'", "date", f"DATE '{found.isoformat()}'", literal=found)


def parse_text(text: str, type_: str) -> Term:
    """Return the term of the date or time that a text literal represents.

    Only plain ISO forms are accepted. Other texts are refused, so that Spark decides about them.
    """
    form = _DATE if type_ == "date" else _TIME
    if type_ == "timestamp" and _DATE.fullmatch(text):
        text += " 00:00:00"
    if not form.fullmatch(text):
        raise refuse(f"the text {text[:40]!r} as a {type_} runs on Spark only")
    try:
        found = (
            date.fromisoformat(text)
            if type_ == "date"
            else datetime.strptime(text.replace("T", " "), _FORMS["." in text]).replace(tzinfo=timezone.utc)
        )
    except ValueError:
        raise refuse(f"the text {text[:40]!r} as a {type_} runs on Spark only") from None
    return date_term(found)
