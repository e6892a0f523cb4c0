"""Prepare a caller's rows for a write: cast them to the table's types, check them, keep one row per key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.model import Column as TableColumn
from strandline.model import TableSchema
from strandline.storage.rows import Mode
from strandline.storage.spark.casts import spark_cast
from strandline.storage.spark.columns import col, key_text
from strandline.storage.spark.failures import refuse

__all__ = [
    "ORDINAL",
    "cast_columns",
    "kinds_of",
    "not_null",
    "number_rows",
    "once_per_key",
    "order_matters",
    "refuse_present",
]

ORDINAL = "__strandline_ordinal"
"""Column with the position of a row among the caller's rows."""
_NUMBER = "__strandline_number"
_ONCE = "Use UPSERT to change rows that exist, and name each key once."


def kinds_of(incoming: DataFrame, schema: TableSchema, columns: Sequence[str]) -> Mapping[str, DataType]:
    """Return the Spark types of the columns to write; refuse missing, unknown or repeated columns."""
    if lost := [name for name in schema.key if name not in columns]:
        raise InvalidArgument(f"the key column {lost[0]} is missing", "Name every column of the primary key.")
    if unknown := [name for name in columns if name not in schema]:
        raise InvalidArgument(
            f"there is no column {unknown[0]}", f"The columns are {', '.join(schema.names)}."
        )
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise InvalidArgument(f"the column {twice[0]} is named twice", "Name each column once.")
    kinds = {field.name: field.dataType for field in incoming.schema.fields}
    if absent := [name for name in columns if name not in kinds]:
        raise InvalidArgument(
            f"the rows have no column {absent[0]}", f"They have {', '.join(incoming.columns)}."
        )
    return {name: kinds[name] for name in columns}


def cast_columns(
    rows: DataFrame,
    schema: TableSchema,
    kinds: Mapping[str, DataType],
    now: Sequence[str],
    later: Sequence[str] = (),
) -> DataFrame:
    """Cast columns to the table's physical types.

    A type that does not fit is refused at once. A value that does not fit is refused when the job evaluates
    it.

    Args:
        kinds: Spark types of the given columns. A column without a type here is not cast.
        now: names of the columns to cast.
        later: names of columns to keep unchanged.
    """
    rest = [col(name) for name in later]
    cast = rows.select(
        *(spark_cast(schema[n].type, col(n), kinds[n], n).alias(n) if n in kinds else col(n) for n in now),
        *rest,
    )
    keys = {name for name in schema.key if name in kinds}
    return cast.select(
        *(not_null(schema, schema[n], col(n)).alias(n) if n in keys else col(n) for n in now), *rest
    )


def number_rows(incoming: DataFrame) -> DataFrame:
    """Add the column ORDINAL. Must be called before any shuffle, which would change the caller's order."""
    return incoming.withColumn(ORDINAL, F.monotonically_increasing_id())


def order_matters(mode: Mode) -> bool:
    """Return True if the result of a write depends on the order of rows with the same key."""
    return mode not in ("INSERT", "DELETE", "DELETE ON")


def once_per_key(rows: DataFrame, schema: TableSchema, mode: Mode) -> DataFrame:
    """Return the last row of each key. For INSERT, the job fails if a key occurs twice.

    The partitioning of the rows by key ranges is preserved.
    """
    keys = [col(name) for name in schema.key]
    if mode.startswith("DELETE"):
        return (
            rows.dropDuplicates(list(schema.key))
            if _plain(schema)
            else rows.groupBy(*keys).agg(F.lit(1)).select(*keys)
        )
    names = [name for name in rows.columns if name != ORDINAL]
    order = [F.desc(ORDINAL)] if order_matters(mode) else keys
    counted = rows.withColumn(_NUMBER, F.row_number().over(Window.partitionBy(*keys).orderBy(*order)))
    if order_matters(mode):
        return counted.where(col(_NUMBER) == 1).select(*map(col, names))
    first = schema.key[0]
    again = refuse(PreconditionFailed, _ONCE, "the key ", key_text(schema), " occurs twice in the rows")
    checked = F.when(col(_NUMBER) > 1, again).otherwise(col(first)).alias(first)
    return counted.select(*(checked if name == first else col(name) for name in names))


def _plain(schema: TableSchema) -> bool:
    """Return True if ``dropDuplicates`` can be used: no key column has a dot or a backtick in its name.

    ``dropDuplicates`` takes such a dot for a field access.
    """
    return not any("." in name or "`" in name for name in schema.key)


def refuse_present(schema: TableSchema, present: Column, value: Column) -> Column:
    """Return ``value``; its evaluation raises an error if ``present`` is true. For keys of INSERT."""
    there = refuse(PreconditionFailed, _ONCE, "the key ", key_text(schema), " is already in the table")
    return F.when(present, there).otherwise(value)


def not_null(schema: TableSchema, column: TableColumn, value: Column) -> Column:
    """Return ``value``; if ``column`` is NOT NULL, its evaluation raises an error for NULL."""
    if not column.not_null:
        return value
    said = f"column {column.name} is NOT NULL and has no value in the row with the key "
    lost = refuse(InvalidArgument, "Give the column a value in every row.", said, key_text(schema))
    return F.when(value.isNull(), lost).otherwise(value)
