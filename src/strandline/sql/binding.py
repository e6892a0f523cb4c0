"""Bound parameters: values for the markers ``?``, ``:name`` and ``$name`` in a text.

Binding replaces each marker by a token with the value. This token has the same kind as a literal of the
value, so the code that reads literals also reads bound values. No value is ever inserted into the text of a
statement. Spark receives each bound value as a named argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from strandline.errors import InvalidArgument
from strandline.names import count
from strandline.sql.tokens import BOUND, HEX, NAME, NUMBER, STRING, WORD, Token, fault
from strandline.types import coerce, parse_type, python_value

__all__ = ["Params", "arguments", "bind", "bind_value", "name_markers", "names_of", "values_of"]

Params: TypeAlias = "Sequence[Any] | Mapping[str, Any] | None"

_HINT = "Write ? and give a list of values in their order, or :name and give a dict."
_NONE = "Give values: db.sql(text, [...]) for ?, db.sql(text, {...}) or --param name=value for :name."
_MOST_DIGITS = 38


class _Marker(NamedTuple):
    """A marker in a sequence of tokens.

    Attributes:
        place: the index of its first token.
        size: its number of tokens.
        name: its name. None: the marker is ``?``.
    """

    place: int
    size: int
    name: str | None


def bind(text: str, tokens: Sequence[Token], params: Params) -> list[Token]:
    """Return the tokens with values in place of the markers.

    Each marker must have a value, and each value a marker.
    """
    markers = list(_markers(tokens, dollars=params is not None))
    if params is None:
        if markers:
            what = _marker_text(tokens, markers[0])
            raise fault(text, tokens[markers[0].place].start, f"the marker {what} has no value", _NONE)
        return list(tokens)
    values = _values(text, tokens, markers, params)
    found: list[Token] = []
    at = 0
    for marker, given in zip(markers, values, strict=True):
        found += tokens[at : marker.place]
        at = marker.place + marker.size
        start = tokens[marker.place].start
        found.append(_token(text[start : tokens[at - 1].end], start, given))
    return [*found, *tokens[at:]]


def _markers(tokens: Sequence[Token], *, dollars: bool) -> Iterator[_Marker]:
    place = 0
    while place < len(tokens):
        token = tokens[place]
        following = tokens[place + 1] if place + 1 < len(tokens) else None
        if token.key == "?":
            yield _Marker(place, 1, None)
        elif (
            (token.key == ":" or (dollars and token.key == "$"))
            and following is not None
            and following.kind == WORD
            and following.start == token.end
            and not _is_path(tokens, place)
        ):
            yield _Marker(place, 2, following.text)
            place += 1
        place += 1


def _is_path(tokens: Sequence[Token], place: int) -> bool:
    """Return whether the colon at ``place`` directly follows a value, as in Spark's ``variant:field``."""
    before = tokens[place - 1] if place else None
    return (
        before is not None
        and before.end == tokens[place].start
        and (before.kind in (WORD, NAME) or before.key in (")", "]"))
    )


def _marker_text(tokens: Sequence[Token], marker: _Marker) -> str:
    return "".join(token.text for token in tokens[marker.place : marker.place + marker.size])


def _values(text: str, tokens: Sequence[Token], markers: list[_Marker], params: Params) -> list[Any]:
    """Return the value of each marker."""
    named = [m for m in markers if m.name is not None]
    if named and len(named) != len(markers):
        other = next(m for m in markers if m.name is None)
        raise fault(text, tokens[other.place].start, "markers with a name and without one are mixed", _HINT)
    if isinstance(params, Mapping):
        return _by_name(text, tokens, markers, params)
    if not isinstance(params, Sequence) or isinstance(params, str | bytes | bytearray):
        raise InvalidArgument(f"values to bind are a list or a dict, not a {type(params).__name__}", _HINT)
    if named and params:
        raise fault(text, tokens[named[0].place].start, "markers with a name need a dict of values", _HINT)
    if len(params) != len(markers):
        raise InvalidArgument(
            f"the text has {count(len(markers), 'marker')}, and {count(len(params), 'value')} to be bound",
            "Give one value for each ?, in their order.",
        )
    return [bind_value(value, f"value {number}") for number, value in enumerate(params, 1)]


def _by_name(
    text: str, tokens: Sequence[Token], markers: list[_Marker], params: Mapping[str, Any]
) -> list[Any]:
    values = {name: bind_value(value, f":{name}") for name, value in params.items()}
    for marker in markers:
        if marker.name is None:
            raise fault(text, tokens[marker.place].start, "a marker ? has no name for a dict", _HINT)
        if marker.name not in values:
            known = ", ".join(map(str, values)) or "none"
            raise fault(
                text,
                tokens[marker.place].start,
                f"the marker {_marker_text(tokens, marker)} has no value",
                f"Give one for it; values are given for: {known}.",
            )
    used = {marker.name for marker in markers}
    for name in values:
        if name not in used:
            raise InvalidArgument(
                f"a value is given for {name!r}, which is not in the text",
                f"Write :{name} where it belongs, or leave it out.",
            )
    return [values[str(marker.name)] for marker in markers]


def names_of(tokens: Sequence[Token]) -> set[str]:
    """Return the names of the markers in ``tokens`` that have no value yet."""
    return {marker.name for marker in _markers(tokens, dollars=True) if marker.name is not None}


def _token(text: str, start: int, value: Any) -> Token:
    kind = BOUND
    if isinstance(value, str):
        kind = STRING
    elif isinstance(value, bytes):
        kind = HEX
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        kind = NUMBER
    return Token(kind, text, start, bound=value)


def bind_value(value: Any, what: str) -> Any:
    """Convert a value to its plain form for binding; raise InvalidArgument if it cannot be bound.

    The plain forms are None, bool, int, float, Decimal, str, bytes, date, and datetime in UTC.
    """
    value = python_value(value)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime):
        return coerce(parse_type("Timestamp"), value, what)
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, int | Decimal):
        number = int(value) if isinstance(value, int) else value
        if _fits(number):
            return number
        raise InvalidArgument(
            f"{what} is not a finite number of at most {_MOST_DIGITS} digits",
            "Round it, or bind it as text.",
        )
    raise InvalidArgument(
        f"{what} is a {type(value).__name__}, which cannot be bound",
        "Bind None, bool, int, float, Decimal, str, bytes, date or datetime; write one marker for each value "
        "of a list, and JSON as text.",
    )


def _fits(number: int | Decimal) -> bool:
    if isinstance(number, int):
        return bool(abs(number) < 10**_MOST_DIGITS)
    if not number.is_finite():
        return False
    precision, scale = _digits(number)
    return bool(max(precision, scale) <= _MOST_DIGITS)


def _digits(number: Decimal) -> tuple[int, int]:
    """Return precision and scale of the smallest decimal type that can hold a number."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    return max(len(digits) + max(exponent, 0), scale, 1), scale


# --- for Spark --------------------------------------------------------------------------------------------


def name_of(token: Token) -> str:
    """Return the argument name of a bound token. The name contains the token's offset, so it is unique."""
    return f"p{token.start}"


def marker_of(token: Token) -> str:
    """Return the text that replaces a bound token in the text for Spark.

    Values of types that Python and Spark do not share are passed as text and cast.
    """
    name = f":{name_of(token)}"
    type_ = _cast_to(token.bound)
    return name if type_ is None else f"CAST({name} AS {type_})"


def _cast_to(value: Any) -> str | None:
    if isinstance(value, bool) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return None
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, int | Decimal):
        return "DECIMAL({},{})".format(*_digits(Decimal(value)))
    if isinstance(value, datetime):
        return "TIMESTAMP"
    return "DATE" if isinstance(value, date) else None


def arguments(tokens: Iterable[Token]) -> dict[str, Any]:
    """Return the values of bound tokens as named arguments for Spark."""
    return {name_of(t): _argument(t.bound) for t in tokens if t.is_bound}


def _argument(value: Any) -> Any:
    if _cast_to(value) is None:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, date) else str(value)


# --- as text that is parsed again -------------------------------------------------------------------------


def name_markers(source: str, tokens: Sequence[Token]) -> str:
    """Return the text of ``tokens`` with a named marker for each bound token.

    The result can be inserted into another text. ``values_of`` returns the values of its markers.
    """
    parts: list[str] = []
    at = tokens[0].start
    for token in tokens:
        if token.is_bound:
            parts += (source[at : token.start], f" :{name_of(token)}")
            at = token.end
    return "".join([*parts, source[at : tokens[-1].end]])


def values_of(tokens: Iterable[Token]) -> dict[str, Any]:
    """Return the values of bound tokens, by the marker names that ``name_markers`` uses."""
    return {name_of(token): token.bound for token in tokens if token.is_bound}
