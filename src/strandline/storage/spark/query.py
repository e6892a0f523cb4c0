"""DataFrames for queries: the rows of tables, and the results of SQL text over these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from strandline.model import BEGINNING, DELETED, OP, PENDING, Segment, State, TableSchema
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.changes import changes
from strandline.storage.spark.columns import col, other_side, same_key
from strandline.storage.spark.failures import spark_errors
from strandline.storage.spark.rows import rows_of
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import MEANING, settings, working

__all__ = ["increment", "read_written", "sql", "through_index", "to_arrow"]


def sql(
    spark: SparkSession, text: str, frames: Mapping[str, DataFrame], args: Mapping[str, Any]
) -> DataFrame:
    """Run the query ``text``, which refers to ``frames`` as ``{name}`` and to ``args`` as ``:name``."""
    with spark_errors(), settings(spark, MEANING):
        return spark.sql(text, dict(args) or None, **frames)


def to_arrow(frame: DataFrame) -> pa.Table:
    """Return the rows of a small DataFrame as an Arrow table."""
    with spark_errors():
        return frame.toArrow()


def increment(spark: SparkSession, cache: SegmentCache, state: State) -> DataFrame:
    """Return the changes of an incremental backup, with the column DELETED: True for a tombstone."""
    schema, chain = state.schema, state.chain
    log = changes(spark, cache, schema, chain.segments, after=BEGINNING, upto=chain.step)
    return log.select(*map(col, schema.names), (col(OP) == "E").alias(DELETED))


def through_index(
    spark: SparkSession, cache: SegmentCache, table: State, entries: State, *, whole: bool
) -> DataFrame:
    """Return the entries of an index as rows of its table, with the columns in the order of the table.

    Args:
        whole: read the columns that the index does not have from the table. False: leave them out.
    """
    schema, impl = table.schema, entries.schema
    found = scan(spark, cache, entries)
    with working(spark):
        rest = [name for name in schema.names if name not in impl] if whole else []
        if rest:
            others = scan(spark, cache, table).select(
                *map(col, rest), *(col(name).alias(other_side(name)) for name in schema.key)
            )
            found = found.join(others, same_key(schema), "inner")
        return found.select(*(col(name) for name in schema.names if name in rest or name in impl))


def read_written(
    spark: SparkSession,
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    columns: Sequence[str],
) -> DataFrame:
    """Read back the rows of a write, one per key, from its files.

    The DataFrame stays valid after these files are deleted.
    """
    with working(spark):
        rows = rows_of(spark, cache, schema, segments, columns, after=BEGINNING, upto=PENDING)
        return rows.localCheckpoint()
