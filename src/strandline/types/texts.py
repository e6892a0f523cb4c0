"""Values in text files: parse values, write values, and guess the type of a column from its texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InvalidArgument
from strandline.types.arrays import array_from_user, python_to_array
from strandline.types.names import Type, parse_type
from strandline.types.values import coerce, refuse

__all__ = [
    "GUESSES",
    "array_from_text",
    "bytes_as_text",
    "from_text",
    "guess",
    "still_fit",
    "texts_of_bytes",
]

_BOOLS = {"true": True, "t": True, "yes": True, "y": True, "1": True}
_BOOLS |= {"false": False, "f": False, "no": False, "n": False, "0": False}
_ESCAPED = re.compile(r"(?:\\x[0-9a-fA-F]{2})+")
_WHOLE = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_FLOAT_WORDS = frozenset({"nan", "inf", "-inf", "+inf", "infinity", "-infinity", "+infinity"})
_PADDED = r"^[+-]?0[0-9]"
"""A number with a leading zero, such as 00420. It is treated as a code, not as a number."""
_LONG = r"^[+-]?[0-9]{17,}$"
"""An integer with more digits than a float can represent exactly."""

GUESSES = tuple(map(parse_type, ("Bool", "Int64", "Uint64", "Double", "Date", "Timestamp")))
"""Types that are guessed for a column of texts, preferred ones first. If no type fits, the column is text."""


def from_text(type_: Type, text: str, column: str) -> object:
    r"""Parse a text to a canonical value, or raise InvalidArgument.

    Bytes are written as ``\\x00`` for each byte, or as UTF-8 text. The texts of other types follow the rules
    of ``coerce``.
    """
    if type_.kind in ("text", "json"):
        return coerce(type_, text, column)
    if type_.kind == "bytes":
        if _ESCAPED.fullmatch(text):
            return bytes.fromhex(text.replace("\\x", ""))
        return coerce(type_, text, column)
    plain = text.strip()
    if type_.kind == "bool":
        found = _BOOLS.get(plain.lower())
        return found if found is not None else refuse(type_, text, column, "Write true or false.")
    if type_.kind in ("date", "time"):
        return coerce(type_, plain, column)
    if type_.kind == "float" and plain.lower() in _FLOAT_WORDS:
        return float(plain)
    if not re.match(_NUMBER, plain):
        refuse(type_, text, column, "Write a number, with a point before its fraction and no other signs.")
    try:
        return coerce(type_, Decimal(plain), column)
    except InvalidOperation:
        refuse(type_, text, column, "Its exponent is too large.")


def array_from_text(type_: Type, texts: pa.Array) -> pa.Array | None:
    """Parse texts to a physical array. None: the texts must be parsed one by one, with ``from_text``."""
    if type_.kind in ("text", "json"):
        return _check_array(type_, texts)
    if type_.kind == "bytes":
        if pc.any(pc.starts_with(texts, "\\x")).as_py():
            return None
        return texts.cast(pa.binary())
    try:
        return _FAST[type_.kind](type_, pc.utf8_trim_whitespace(texts))
    except pa.ArrowInvalid:
        return None


def _check_array(type_: Type, array: pa.Array) -> pa.Array | None:
    try:
        return array_from_user(type_, array, "")
    except InvalidArgument:
        return None


def _all_match(texts: pa.Array, pattern: str) -> bool:
    found = pc.all(pc.match_substring_regex(texts, pattern)).as_py()
    return found is None or bool(found)


def _bool(type_: Type, texts: pa.Array) -> pa.Array | None:
    if not _all_match(texts, "(?i)^(true|false)$"):
        return None
    return pc.equal(pc.utf8_lower(texts), "true")


def _int(type_: Type, texts: pa.Array) -> pa.Array | None:
    if not _all_match(texts, _WHOLE):
        return None
    return _check_array(type_, pc.replace_substring_regex(texts, r"^\+", "").cast(_wide(type_)))


def _wide(type_: Type) -> pa.DataType:
    return pa.uint64() if type_.name == "Uint64" else pa.int64()


def _float(type_: Type, texts: pa.Array) -> pa.Array | None:
    if type_.name != "Double" or not _all_match(texts, _NUMBER):
        return None  # Parsed one by one: a cast to double would round a Float twice.
    found = texts.cast(pa.float64())
    return None if pc.any(pc.is_inf(found)).as_py() else found


def _decimal(type_: Type, texts: pa.Array) -> pa.Array | None:
    return None


def _date(type_: Type, texts: pa.Array) -> pa.Array | None:
    return _check_array(type_, texts.cast(pa.date32())) if _all_match(texts, r"^\d{4}-\d\d-\d\d$") else None


def _time(type_: Type, texts: pa.Array) -> pa.Array | None:
    day = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?"
    if _all_match(texts, day + "$"):
        return _check_array(type_, texts.cast(pa.timestamp("us")))
    if _all_match(texts, day + "Z$"):
        return _check_array(type_, texts.cast(pa.timestamp("us", tz="UTC")))
    return None


_FAST = {"bool": _bool, "int": _int, "float": _float, "decimal": _decimal, "date": _date, "time": _time}


def still_fit(types: Iterable[Type], texts: pa.Array) -> tuple[Type, ...]:
    """Return the types in ``types`` that fit every text, in the same order."""
    known = texts.drop_null()
    return tuple(type_ for type_ in types if _fits(type_, known))


def _fits(type_: Type, texts: pa.Array) -> bool:
    if not len(texts):
        return True
    if type_.kind in ("int", "float") and pc.any(pc.match_substring_regex(texts, _PADDED)).as_py():
        return False
    if type_.kind == "float" and pc.any(pc.match_substring_regex(texts, _LONG)).as_py():
        return False
    if array_from_text(type_, texts) is not None:
        return True
    if type_.kind not in ("float", "time") or (type_.kind == "time" and texts[0].as_py().isdigit()):
        return False
    try:
        python_to_array(type_, [from_text(type_, text, "") for text in texts.to_pylist()])
    except InvalidArgument:
        return False
    return True


def guess(fitting: Sequence[Type], *, is_empty: bool) -> Type:
    """Return the type to choose for a column of texts.

    Args:
        fitting: the types that fit all texts, preferred ones first.
        is_empty: whether the column has no values, so that its type is text.
    """
    return parse_type("Utf8") if is_empty or not fitting else fitting[0]


def bytes_as_text(value: bytes) -> str:
    """Format bytes as text that ``from_text`` and DuckDB can parse."""
    return "".join(f"\\x{byte:02X}" for byte in value)


def texts_of_bytes(array: pa.Array, *, escaped: bool = False) -> pa.Array:
    """Format an array of bytes as texts, as ``bytes_as_text`` does.

    Args:
        escaped: whether to double each backslash, as in a JSON string.
    """
    digits = b"0123456789ABCDEF"
    sign = b"\\\\x" if escaped else b"\\x"
    table = np.frombuffer(b"".join(sign + bytes((a, b)) for a in digits for b in digits), np.uint8)
    array = array.cast(pa.large_binary())
    width = len(sign) + 2
    _, offsets, data = array.buffers()
    at = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    values = np.frombuffer(data or b"", np.uint8)[at[0] : at[-1]]
    texts = pa.LargeStringArray.from_buffers(
        len(array), pa.py_buffer((at - at[0]) * width), pa.py_buffer(table.reshape(256, width)[values])
    )
    return pc.if_else(array.is_valid(), texts, None) if array.null_count else texts
