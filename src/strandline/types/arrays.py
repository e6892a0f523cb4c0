"""Whole columns: convert between canonical values, users' Arrow data, and the physical arrays in files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InvalidArgument
from strandline.types.names import Kind, Type
from strandline.types.values import UTC, coerce, find_json_fault

DAY = 86_400_000
"""Milliseconds per day."""
MIN_DAYS, MAX_DAYS = -719162, 2932896
"""Days since 1970 of 0001-01-01 and 9999-12-31."""
MIN_SECONDS, MAX_SECONDS = MIN_DAYS * 86_400, (MAX_DAYS + 1) * 86_400 - 1

_PHYSICAL = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def physical_type(spark: str) -> pa.DataType:
    """Return the Arrow type for a Spark type. Both types write the same bytes to files."""
    if spark.startswith("decimal"):
        precision, scale = spark.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _PHYSICAL[spark]


def decimal_words(array: pa.Array) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return a decimal128 array as rows of (low, high) words of 128-bit two's complement integers.

    Rows that are NULL have undefined words.
    """
    words = np.frombuffer(array.buffers()[1] or b"", dtype="<u8").reshape(-1, 2)
    return words[array.offset : array.offset + len(array)]


def column_to_python(type_: Type, array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the canonical values of a physical column."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in column_to_python(type_, chunk)]
    if type_.name == "Uint64":
        values: list[Any] = decimal_words(array)[:, 0].tolist()
        if array.null_count:
            return [v if ok else None for v, ok in zip(values, array.is_valid().to_pylist(), strict=True)]
        return values
    if type_.kind == "time":
        # Faster than Arrow: numpy creates datetimes in C, while Arrow builds a zone object for each value.
        naive = array.view(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
        return [None if v is None else v.replace(tzinfo=UTC) for v in naive]
    return array.to_pylist()  # type: ignore[no-any-return]


def python_to_array(type_: Type, values: Sequence[Any]) -> pa.Array:
    """Return the physical array of canonical values."""
    if type_.name != "Uint64":
        return pa.array(values, type=type_.arrow)
    words = np.zeros((len(values), 2), dtype="<u8")
    words[:, 0] = np.fromiter((v or 0 for v in values), dtype="<u8", count=len(values))
    return _uint64_array(words, np.fromiter((v is None for v in values), dtype=bool, count=len(values)))


def _uint64_array(words: np.ndarray[Any, Any], null: np.ndarray[Any, Any]) -> pa.Array:
    valid = pa.array(~null).buffers()[1] if null.any() else None
    return pa.Array.from_buffers(pa.decimal128(20, 0), len(words), [valid, pa.py_buffer(words.tobytes())])


_UNSIGNED = {"Uint8": pa.uint8(), "Uint16": pa.uint16(), "Uint32": pa.uint32(), "Uint64": pa.uint64()}


def outgoing_type(type_: Type) -> pa.DataType:
    """Return a column's type in exported Arrow data. Uint types are unsigned there, unlike in files."""
    return _UNSIGNED.get(type_.name, type_.arrow)


def to_outgoing(type_: Type, array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Convert a physical column to its type in exported Arrow data."""
    if type_.name not in _UNSIGNED:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([to_outgoing(type_, c) for c in array.chunks], outgoing_type(type_))
    if type_.name != "Uint64":
        return array.cast(outgoing_type(type_))
    words = decimal_words(array)
    null = None if not array.null_count else ~array.is_valid().to_numpy(zero_copy_only=False)
    if np.any(words[:, 1] if null is None else words[~null, 1]):
        raise InvalidArgument(
            "a column of Uint64 has a value that is negative or too large for it",
            "CAST it to another type in the query.",
        )
    return pa.array(words[:, 0], pa.uint64(), mask=null)


def array_from_user(type_: Type, array: pa.Array | pa.ChunkedArray, column: str) -> pa.Array:
    """Return the physical array of a user's Arrow column, under exactly the rules of ``coerce``.

    A fast path converts the whole array if it can guarantee that every value is valid. Otherwise the values
    are converted one by one, which is slow, but works for any type and finds the value to name in the error.
    """
    plain = _plain(type_, array, column)
    if pa.types.is_null(plain.type):
        return pa.nulls(len(plain), type_.arrow)
    fast = _FAST[type_.kind](type_, plain)
    if fast is not None:
        return fast
    return python_to_array(type_, [coerce(type_, value, column) for value in _values(type_, plain, column)])


def check_source(type_: Type, from_type: pa.DataType, column: str) -> None:
    """Raise an error if a column cannot hold any value of a source type.

    Only the types are compared, so a source column without values may be refused as well: an SQL expression
    has a type even if its value is NULL.
    """
    if not (pa.types.is_null(from_type) or any(test(from_type) for test in _SOURCES[type_.kind])):
        said = f"column {column} of type {type_.name} cannot be made from a value of type {from_type}"
        raise InvalidArgument(said, "Cast it explicitly.")


def _plain(type_: Type, array: pa.Array | pa.ChunkedArray, column: str) -> pa.Array:
    """Return one array without wrappers: chunks, extension types, dictionaries and runs are resolved."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray) or array.nbytes >= 2**31:
        raise InvalidArgument(
            f"column {column} of type {type_.name} gets more than 2 GiB in one batch",
            "Write it in smaller batches.",
        )
    if isinstance(array, pa.ExtensionArray):
        return _plain(type_, array.storage, column)
    if pa.types.is_dictionary(array.type):
        return _plain(type_, array.dictionary_decode(), column)
    if pa.types.is_run_end_encoded(array.type):
        return _plain(type_, pc.run_end_decode(array), column)
    return array


def _values(type_: Type, array: pa.Array, column: str) -> list[Any]:
    """Convert an array to Python objects that ``coerce`` accepts or refuses correctly.

    Dates and times, which may have no exact Python value, become numpy scalars. Invalid UTF-8 becomes bytes.
    """
    if pa.types.is_timestamp(array.type):
        return [
            None if v is None else np.datetime64(v, array.type.unit)
            for v in array.view(pa.int64()).to_pylist()
        ]
    if pa.types.is_date32(array.type):
        return [None if v is None else np.datetime64(v, "D") for v in array.view(pa.int32()).to_pylist()]
    if pa.types.is_date64(array.type):
        numbers = array.view(pa.int64()).to_pylist()
        return [
            None if v is None else np.datetime64(v, "ms") if v % DAY else np.datetime64(v // DAY, "D")
            for v in numbers
        ]
    if _is_text(array.type):
        return [None if v is None else _decode(v) for v in array.cast(pa.large_binary()).to_pylist()]
    try:
        return array.to_pylist()  # type: ignore[no-any-return]
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"column {column} of type {type_.name} cannot be made from the Arrow type {array.type}",
            f"Arrow says: {error}.",
        ) from error


def _decode(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _is_text(type_: pa.DataType) -> bool:
    return any(
        test(type_) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _is_bytes(type_: pa.DataType) -> bool:
    tests = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return any(test(type_) for test in tests)


_NUMBERS = (pa.types.is_integer, pa.types.is_decimal)
_SOURCES: dict[Kind, tuple[Callable[[pa.DataType], bool], ...]] = {
    "bool": (pa.types.is_boolean,),
    "int": _NUMBERS,
    "float": (*_NUMBERS, pa.types.is_floating),
    "decimal": _NUMBERS,
    "bytes": (_is_bytes, _is_text),
    "text": (_is_text,),
    "json": (_is_text,),
    "date": (pa.types.is_date, _is_text),
    "time": (pa.types.is_timestamp, _is_text),
}
"""Source types that each kind accepts."""


def _within(array: pa.Array, low: int, high: int) -> bool:
    bounds = pc.min_max(array).as_py()
    return bounds["min"] is None or bool(low <= bounds["min"] and bounds["max"] <= high)


def _fast_bool(type_: Type, array: pa.Array) -> pa.Array | None:
    return array if pa.types.is_boolean(array.type) else None


def _fast_int(type_: Type, array: pa.Array) -> pa.Array | None:
    if pa.types.is_integer(array.type):
        return array.cast(type_.arrow) if _within(array, type_.min, type_.max) else None
    if array.type == type_.arrow:  # This is Uint64: its physical type is a decimal, not an integer.
        return array if not decimal_words(array.drop_null())[:, 1].any() else None
    return None


def _fast_float(type_: Type, array: pa.Array) -> pa.Array | None:
    if pa.types.is_integer(array.type):
        exact = 2**24 if type_.name == "Float" else 2**53
        return array.cast(type_.arrow) if _within(array, -exact, exact) else None
    if not pa.types.is_floating(array.type):
        return None
    cast = array.cast(type_.arrow, safe=False)
    return cast if pc.sum(pc.is_inf(cast)) == pc.sum(pc.is_inf(array)) else None


def _fast_decimal(type_: Type, array: pa.Array) -> pa.Array | None:
    if pa.types.is_decimal(array.type):
        # Beyond 38 digits even Arrow's safe cast overflows without an error.
        if array.type.precision + max(0, type_.scale - array.type.scale) > 38:
            return None
    elif not pa.types.is_integer(array.type):
        return None
    try:
        cast = array.cast(type_.arrow)
        cast.validate(full=True)  # A cast to the same type does not check the number of digits.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return cast


def _fast_bytes(type_: Type, array: pa.Array) -> pa.Array | None:
    return array.cast(pa.binary()) if _is_bytes(array.type) or _is_text(array.type) else None


def _fast_text(type_: Type, array: pa.Array) -> pa.Array | None:
    if not _is_text(array.type):
        return None
    try:
        cast = array.cast(pa.string())
        cast.validate(full=True)
    except pa.ArrowInvalid:
        return None
    if type_.kind == "json" and any(
        find_json_fault(text) for text in pc.unique(cast.drop_null()).to_pylist()
    ):
        return None
    return cast


def _fast_date(type_: Type, array: pa.Array) -> pa.Array | None:
    if not pa.types.is_date(array.type):
        return None
    days = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    if pa.types.is_date64(array.type):
        if not _within(days, MIN_DAYS * DAY, MAX_DAYS * DAY) or np.any(days.drop_null().to_numpy() % DAY):
            return None
        return array.cast(pa.date32())
    return array if _within(days, MIN_DAYS, MAX_DAYS) else None


def _fast_time(type_: Type, array: pa.Array) -> pa.Array | None:
    if not pa.types.is_timestamp(array.type):
        return None
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    numbers = array.view(pa.int64())
    if not _within(numbers, MIN_SECONDS * per_second, (MAX_SECONDS + 1) * per_second - 1):
        return None
    grain = per_second if type_.name == "Datetime" else max(1, per_second // 10**6)
    if grain > 1 and np.any(numbers.drop_null().to_numpy() % grain):
        return None
    # A timestamp without a zone is in UTC, and one with a zone counts from the epoch in UTC: in both cases
    # the number stays the same.
    return array.cast(pa.timestamp("us", tz=array.type.tz)).view(type_.arrow)


_FAST: dict[Kind, Callable[[Type, pa.Array], pa.Array | None]] = {
    "bool": _fast_bool,
    "int": _fast_int,
    "float": _fast_float,
    "decimal": _fast_decimal,
    "bytes": _fast_bytes,
    "text": _fast_text,
    "json": _fast_text,
    "date": _fast_date,
    "time": _fast_time,
}
