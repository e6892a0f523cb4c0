"""Spark expressions for columns with any name, and for keys. In keys, NULL equals NULL and sorts first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.model import OP, STEP, WAS_HI, WAS_LO, Key, KeyRange, TableSchema
from strandline.names import quote_spark
from strandline.types import Type
from strandline.types.arrays import column_to_python

__all__ = [
    "META",
    "before",
    "col",
    "inside",
    "key_text",
    "keys_from",
    "keys_in",
    "literal",
    "other_side",
    "rename_keys",
    "same_key",
    "spark_type",
    "struct",
    "time_text",
]

META: Mapping[str, T.DataType] = {
    OP: T.StringType(),
    WAS_HI: T.LongType(),
    WAS_LO: T.LongType(),
    STEP: T.LongType(),
}

_PLAIN: Mapping[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "binary": T.BinaryType(),
    "string": T.StringType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "decimal(20,0)": T.DecimalType(20, 0),
}


def col(name: str) -> Column:
    return F.col(quote_spark(name))


def spark_type(type_: Type) -> T.DataType:
    if type_.kind == "decimal":
        return T.DecimalType(type_.precision, type_.scale)
    return _PLAIN[type_.spark]


def struct(schema: TableSchema, names: Iterable[str], *, physical: bool = False) -> T.StructType:
    """Return the Spark schema of the columns and meta columns ``names``, with logical or physical names."""
    fields = []
    for name in names:
        if name in schema:
            column = schema[name]
            fields.append(T.StructField(column.physical if physical else name, spark_type(column.type)))
        else:
            fields.append(T.StructField(name, META[name]))
    return T.StructType(fields)


def literal(type_: Type, value: Any) -> Column:
    """Return a canonical value as a literal in the physical type, whatever the session's time zone is."""
    if value is None:
        return F.lit(None).cast(spark_type(type_))
    if isinstance(value, bytes):
        return F.unhex(F.lit(value.hex()))
    if isinstance(value, (bool, str)):
        return F.lit(value)
    text = value.isoformat() if isinstance(value, (date, datetime)) else str(value)
    return F.lit(text).cast(spark_type(type_))


def other_side(name: str) -> str:
    """Return the name that a column gets on the other side of a join, where both sides have its name."""
    return f"__strandline_other_{name}"


def rename_keys(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Select the columns ``names`` under their ``other_side`` names, for a join by ``same_key``."""
    return df.select(*(col(name).alias(other_side(name)) for name in names))


def same_key(schema: TableSchema) -> Column:
    """Return the join condition that keys are equal. One side has the names that ``rename_keys`` gives."""
    parts = [
        col(c.name) == col(other_side(c.name))
        if c.not_null
        else col(c.name).eqNullSafe(col(other_side(c.name)))
        for c in schema.key_columns
    ]
    return reduce(Column.__and__, parts)


def before(schema: TableSchema, bound: Key) -> Column:
    """Return the condition that a row's key sorts before all keys that start with ``bound``."""
    smaller: list[Column] = []
    equal: list[Column] = []
    for column, value in zip(schema.key_columns, bound, strict=False):
        here, there = col(column.name), literal(column.type, value)
        less = F.lit(False) if value is None else here.isNull() | (here < there)
        smaller.append(reduce(Column.__and__, [*equal, less]))
        equal.append(here.isNull() if value is None else here.isNotNull() & (here == there))
    return F.coalesce(reduce(Column.__or__, smaller), F.lit(False))


def inside(df: DataFrame, schema: TableSchema, within: KeyRange) -> DataFrame:
    """Return the rows whose keys are in a range."""
    if within.lower is not None:
        df = df.where(~before(schema, within.lower))
    if within.upper is None:
        return df
    last = [
        col(c.name).eqNullSafe(literal(c.type, v))
        for c, v in zip(schema.key_columns, within.upper, strict=False)
    ]
    ends = before(schema, within.upper)
    return df.where(ends | reduce(Column.__and__, last) if within.closed else ends)


def key_text(schema: TableSchema) -> Column:
    """Return a row's key as text for messages, such as ``(a = 1, b = 'x')``."""
    parts: list[Column] = []
    for i, column in enumerate(schema.key_columns):
        here = col(column.name)
        if column.type.kind == "text":
            shown = F.concat(F.lit("'"), here, F.lit("'"))
        elif column.type.kind == "bytes":
            shown = F.concat(F.lit("x'"), F.hex(here), F.lit("'"))
        elif column.type.kind == "time":
            shown = time_text(here)
        else:
            shown = here.cast("string")
        parts += [
            F.lit(f"{', ' if i else '('}{column.name} = "),
            F.substring(F.coalesce(shown, F.lit("NULL")), 1, 60),
        ]
    return F.concat(*parts, F.lit(")"))


def time_text(instant: Column) -> Column:
    """Return a time as text for messages. The text ends with ``+00:00``, because our plans run in UTC."""
    return F.concat(instant.cast("string"), F.lit("+00:00"))


def keys_in(df: DataFrame, schema: TableSchema) -> list[Key]:
    """Return the keys of a few rows as canonical values.

    The rows are fetched with Arrow, because ``collect`` converts timestamps to local times.
    """
    return keys_from(df.select(*map(col, schema.key)).toArrow(), schema)


def keys_from(table: pa.Table, schema: TableSchema) -> list[Key]:
    """Return the keys in an Arrow table from Spark, whose Arrow types may differ from those of the schema."""
    columns = [column_to_python(c.type, table.column(c.name).cast(c.type.arrow)) for c in schema.key_columns]
    return list(zip(*columns, strict=True))
