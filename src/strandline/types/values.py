"""Single values: convert values to canonical form, check JSON, and convert canonical values for Spark."""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from typing import Any, NoReturn

from strandline.errors import InvalidArgument
from strandline.types.names import Type

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_BEYOND = "Dates and times lie in the years 1 to 9999 and have no part smaller than a microsecond."
_PLAIN = frozenset({bool, int, float, Decimal, bytes, str, date, datetime})
SHOWN = 60
"""Approximate maximum number of characters of a value in a message. Longer values are truncated."""


def show(value: object) -> str:
    """Format a value for a message, truncated. Never raises an error."""
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        return f"of {value.bit_length()} bits"
    if isinstance(value, (str, bytes, bytearray)) and len(value) > SHOWN:
        return f"{value[:SHOWN]!r}... ({len(value)} long)"
    try:
        text = repr(value) if isinstance(value, (str, bytes, bytearray)) else str(value)
    except Exception:  # The str() of a foreign object may raise anything.
        text = f"a {type(value).__name__}"
    return text if len(text) <= 2 * SHOWN else f"{text[:SHOWN]}..."


def refuse(type_: Type, value: object, column: str, hint: str) -> NoReturn:
    raise InvalidArgument(
        f"column {column} of type {type_.name} cannot hold the {type(value).__name__} {show(value)}", hint
    )


def coerce(type_: Type, value: object, column: str) -> object:
    """Convert a Python value to canonical form, or raise InvalidArgument.

    The error names the column, the type and the value.
    """
    if value is None:
        return None
    value = python_value(value)
    match type_.kind:
        case "bool":
            return value if isinstance(value, bool) else refuse(type_, value, column, "Use true or false.")
        case "int":
            return _to_int(type_, value, column)
        case "float":
            return _to_float(type_, value, column)
        case "decimal":
            return _to_decimal(type_, value, column)
        case "bytes":
            if isinstance(value, (bytes, bytearray, memoryview)):
                return bytes(value)
            if isinstance(value, str):
                return _utf8(type_, value, column).encode()
            refuse(type_, value, column, "String holds bytes: give bytes, or text that is stored as UTF-8.")
        case "text" | "json":
            if not isinstance(value, str):
                hint = "Decode the bytes first." if isinstance(value, (bytes, bytearray)) else "Give text."
                refuse(type_, value, column, hint)
            text = _utf8(type_, value, column)
            if type_.kind == "json" and (fault := find_json_fault(text)):
                refuse(type_, value, column, f"It is not strict JSON: {fault}.")
            return text
        case "date" | "time" if isinstance(value, str):
            return _from_iso(type_, value, column)
        case "date":
            if isinstance(value, date) and not isinstance(value, datetime):
                return date(value.year, value.month, value.day)
            hint = "Give a date without a time of day, for example date(2024, 1, 31) or DATE '2024-01-31'."
            refuse(type_, value, column, _BEYOND if _is_of_numpy(value, "datetime64") else hint)
        case "time":
            return _to_time(type_, value, column)


def python_value(value: object) -> object:
    """Return the Python value of a numpy scalar; return any other value unchanged."""
    return _of_numpy(value) if type(value) not in _PLAIN and _is_of_numpy(value) else value


def _is_of_numpy(value: object, type_: str = "generic") -> bool:
    # Do not import numpy, which is slow to load: a process that has not loaded it has no numpy values.
    numpy = sys.modules.get("numpy")
    return isinstance(value, getattr(numpy, type_, ()))


def _of_numpy(value: Any) -> object:
    """Return the Python value of a numpy scalar.

    A scalar without an exact Python value is returned unchanged; the caller then refuses it.
    """
    import numpy as np

    if isinstance(value, np.timedelta64):
        return value
    if not isinstance(value, np.datetime64):
        return value.item()
    unit, count = np.datetime_data(value.dtype)
    number = int(value.astype(np.int64)) * count
    try:
        if unit == "D":
            return EPOCH.date() + timedelta(days=number)
        if unit in _NANOS and number * _NANOS[unit] % 1000 == 0:
            return EPOCH + timedelta(microseconds=number * _NANOS[unit] // 1000)
    except OverflowError:
        pass
    return value


def _to_int(type_: Type, value: object, column: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        number = int(value)
    elif isinstance(value, Decimal):
        # Check the exponent first: int(Decimal("1E+999999")) would take very long.
        if not value.is_finite() or (value and value.adjusted() > 20) or value != value.to_integral_value():
            refuse(type_, value, column, f"Give a whole number from {type_.min} to {type_.max}.")
        number = int(value)
    else:
        refuse(
            type_, value, column, "Give a whole number; floats, booleans and text are not cast to integers."
        )
    if not type_.min <= number <= type_.max:
        refuse(type_, value, column, f"{type_.name} goes from {type_.min} to {type_.max}.")
    return number


def _to_float(type_: Type, value: object, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        refuse(type_, value, column, "Give a number.")
    if isinstance(value, Decimal) and not value.is_finite():
        refuse(type_, value, column, "Give NaN and infinities as float.")
    try:
        number = float(value)
        if type_.name == "Float":
            if isinstance(value, Decimal):
                number = _to_odd(value, number)
            number = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        refuse(type_, value, column, f"It is beyond the range of {type_.name}.")
    if math.isinf(number) and not isinstance(value, float):
        refuse(type_, value, column, f"It is beyond the range of {type_.name}.")
    if isinstance(value, int) and number != value:
        refuse(type_, value, column, f"{type_.name} cannot hold this integer exactly.")
    return number


def _to_odd(exact: Decimal, nearest: float) -> float:
    """Round a decimal to a double by "round to odd": if it is not exact, the last bit of the result is odd.

    When this double is then rounded to single precision, the result is the single nearest to ``exact``, as in
    Spark. Rounding ``nearest`` to single precision could give another result, because it was rounded before.

    Args:
        exact: the decimal.
        nearest: the double nearest to ``exact``.
    """
    given = Decimal(nearest)
    if given == exact or math.isinf(nearest) or struct.unpack("<q", struct.pack("<d", nearest))[0] & 1:
        return nearest
    return math.nextafter(nearest, math.inf if exact > given else -math.inf)


@lru_cache(maxsize=1024)
def _quantum(precision: int, scale: int) -> tuple[Decimal, Context]:
    return Decimal(1).scaleb(-scale), Context(prec=precision, traps=[Inexact, InvalidOperation])


def _to_decimal(type_: Type, value: object, column: str) -> Decimal:
    if isinstance(value, float):
        refuse(type_, value, column, "A float is not exact: give a Decimal, for example Decimal('0.1').")
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        refuse(type_, value, column, "Give a Decimal or an integer.")
    whole = type_.precision - type_.scale
    hint = f"{type_.name} holds {whole} digits before the point and {type_.scale} after it, exactly."
    if isinstance(value, int) and value.bit_length() > 128:
        refuse(type_, value, column, hint)
    quantum, context = _quantum(type_.precision, type_.scale)
    try:
        exact = Decimal(value).quantize(quantum, context=context)
    except (InvalidOperation, Inexact):
        refuse(type_, value, column, hint)
    if not exact.is_finite():
        refuse(type_, value, column, hint)
    return exact if exact else abs(exact)  # Files have no negative zero.


def _utf8(type_: Type, value: str, column: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(type_, value, column, "The text has a lone surrogate and cannot be written as UTF-8.")
    return str.__str__(value)


def json_fault_finder() -> Callable[[str], str | None]:
    """Return the function ``find_json_fault``.

    The function is a closure that uses nothing of this package, so that Spark can send it to workers that do
    not have Strandline.
    """

    def find(text: str) -> str | None:
        import json
        import re

        def refuse_constant(name: str) -> Any:
            raise ValueError(f"{name} is not JSON")

        def keep(pairs: Any) -> Any:
            return pairs

        try:
            # Keep numbers as text, because int() refuses very long ones. Keep pairs as lists, so that the
            # check below also sees the values of repeated names.
            body = json.loads(
                text, parse_constant=refuse_constant, parse_int=keep, parse_float=keep, object_pairs_hook=keep
            )
            if re.search(r"\\u[dD][89a-fA-F]", text):
                json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return "it escapes a lone surrogate"
        except ValueError as error:
            return str(error)
        except RecursionError:
            return "it is nested too deeply"
        return None

    return find


find_json_fault = json_fault_finder()
"""Returns the reason why a text is not strict JSON (RFC 8259). None: the text is strict JSON.

NaN, infinities and escaped lone surrogates are not strict JSON.
"""


def _to_time(type_: Type, value: object, column: str) -> datetime:
    if not isinstance(value, datetime):
        hint = (
            "Give a date with a time of day, for example datetime(2024, 1, 31, 12) or TIMESTAMP '2024-01-31 "
            "12:00:00'."
        )
        refuse(type_, value, column, _BEYOND if _is_of_numpy(value, "datetime64") else hint)
    if getattr(value, "nanosecond", 0):
        refuse(type_, value, column, f"{type_.name} has no nanoseconds.")
    if type_.name == "Datetime" and value.microsecond:
        refuse(type_, value, column, "Datetime has whole seconds only; Timestamp has microseconds.")
    try:
        offset = value.utcoffset() or timedelta()
        plain = datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, UTC
        )
        exact = plain - offset
    except OverflowError:
        refuse(type_, value, column, "In UTC it is outside the years 1 to 9999.")
    if type_.name == "Datetime" and exact.microsecond:
        refuse(type_, value, column, "Datetime has whole seconds only; Timestamp has microseconds.")
    return exact


ISO_DATE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
ISO_TIME = (
    ISO_DATE + r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
"""Format of dates and times, as a regular expression that both Python and Java support."""
MAX_OFFSET = timedelta(hours=18)
"""Maximum offset from UTC that Java supports; Spark parses the same texts with Java."""
_ISO = re.compile(ISO_TIME)


def _from_iso(type_: Type, text: str, column: str) -> object:
    """Parse an ISO date or time. A time without an offset is in UTC. A date without a time means midnight."""
    example = "'2024-01-31'" if type_.kind == "date" else "'2024-01-31T12:00:00Z'"
    match = _ISO.fullmatch(text)
    if match is None or (type_.kind == "date" and match[4]):
        refuse(type_, text, column, f"Write it in ISO form, for example {example}.")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        if type_.kind == "date":
            return date(year, month, day)
        zone = UTC
        if match[8] and match[8] != "Z":
            hours, minutes = int(match[8][1:3]), int(match[8][4:6])
            if minutes > 59:
                raise ValueError("minutes of the offset out of range")
            offset = timedelta(hours=hours, minutes=minutes)
            if offset > MAX_OFFSET:
                raise ValueError("offset out of range")
            zone = timezone(-offset if match[8][0] == "-" else offset)
        value = datetime(year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0")), zone)
    except ValueError:
        refuse(type_, text, column, f"There is no such day or time; an example is {example}.")
    return _to_time(type_, value, column)


def row_value(type_: Type, value: Any) -> Any:
    """Convert a canonical value for use in Spark: Uint64 becomes Decimal, other types do not change."""
    return Decimal(value) if type_.name == "Uint64" and value is not None else value
