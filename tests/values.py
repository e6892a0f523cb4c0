"""Strategies for canonical values of every type."""

from __future__ import annotations

from bisect import bisect_right
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from strandline.model import Key, TableSchema, order
from strandline.types import Type

INTEGERS = ("Int8", "Int16", "Int32", "Int64", "Uint8", "Uint16", "Uint32", "Uint64")
DECIMALS = (
    "Decimal(1,0)",
    "Decimal(5,2)",
    "Decimal(18,18)",
    "Decimal(19,0)",
    "Decimal(22,9)",
    "Decimal(38,0)",
    "Decimal(38,38)",
)
TYPE_NAMES = (
    "Bool",
    *INTEGERS,
    "Float",
    "Double",
    *DECIMALS,
    "String",
    "Utf8",
    "Json",
    "Date",
    "Datetime",
    "Timestamp",
)
JSONS = ("null", "true", '"a\\u0000"', "[1, 2.5, {}]", ' {"ü": [-1e400]} ')
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SECONDS = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc) - EPOCH) // timedelta(seconds=1)
FIRST = (datetime(1, 1, 1, tzinfo=timezone.utc) - EPOCH) // timedelta(seconds=1)


def values_of(type_: Type) -> st.SearchStrategy[Any]:
    """Canonical values of ``type_``, extremes included, NULL not."""
    match type_.kind:
        case "bool":
            return st.booleans()
        case "int":
            return st.sampled_from([type_.min, type_.max, 0]) | st.integers(type_.min, type_.max)
        case "float":
            corners = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf")])
            return corners | st.floats(width=32 if type_.name == "Float" else 64)
        case "decimal":
            top = 10**type_.precision - 1
            whole = st.sampled_from([-top, top, 0, -1]) | st.integers(-top, top)
            return whole.map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -type_.scale)))
        case "bytes":
            return st.binary(max_size=80)
        case "text":
            return st.text(st.characters(codec="utf-8"), max_size=40)
        case "json":
            return st.sampled_from(JSONS)
        case "date":
            return st.dates(date.min, date.max)
        case "time":
            if type_.name == "Datetime":
                return st.integers(FIRST, SECONDS).map(lambda s: EPOCH + timedelta(seconds=s))
            return st.datetimes(timezones=st.just(timezone.utc)).map(lambda t: t.replace(fold=0))


def shard_of(schema: TableSchema, key: Key) -> int:
    """The number of the shard that a key of a table is in."""
    return bisect_right([order(bound) for bound in schema.bounds], order(key))
