"""Find the column type that can hold the values of an Arrow or Spark type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from strandline.errors import InvalidArgument
from strandline.types.names import Type, parse_type

__all__ = ["plain_type", "type_of_arrow", "type_of_spark"]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values inside wrappers (extension, dictionary, run-end encoding)."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def type_of_arrow(given: pa.DataType) -> Type | None:
    """Return the column type for values of an Arrow type. None: no column type can hold them."""
    kind = plain_type(given)
    if pa.types.is_nested(kind):
        return parse_type("Json")
    if pa.types.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:
        return parse_type(f"Decimal({kind.precision},{kind.scale})")
    return next((parse_type(name) for test, name in _NAMES if test(kind)), None)


def type_of_spark(kind: str) -> Type | None:
    """Return the column type for values of a Spark type, such as ``bigint``. None: no type can hold them."""
    try:
        return parse_type(_SPARK.get(kind, kind))
    except InvalidArgument:
        return None


_SPARK = {"timestamp_ntz": "Timestamp", "void": "Utf8"}
_T = pa.types
_NAMES: tuple[tuple[Any, str], ...] = (
    (_T.is_boolean, "Bool"),
    (_T.is_int8, "Int8"),
    (_T.is_int16, "Int16"),
    (_T.is_int32, "Int32"),
    (_T.is_int64, "Int64"),
    (_T.is_uint8, "Uint8"),
    (_T.is_uint16, "Uint16"),
    (_T.is_uint32, "Uint32"),
    (_T.is_uint64, "Uint64"),
    (_T.is_float16, "Float"),
    (_T.is_float32, "Float"),
    (_T.is_float64, "Double"),
    (_T.is_date, "Date"),
    (_T.is_timestamp, "Timestamp"),
    (_T.is_string, "Utf8"),
    (_T.is_large_string, "Utf8"),
    (_T.is_string_view, "Utf8"),
    (_T.is_null, "Utf8"),
    (_T.is_binary, "String"),
    (_T.is_large_binary, "String"),
    (_T.is_binary_view, "String"),
    (_T.is_fixed_size_binary, "String"),
)
