"""Slices of many rows, as Spark jobs."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.model import OP, STEP, WAS_HI, WAS_LO, Key, State, TableSchema
from strandline.storage.shelf import Shelf
from strandline.storage.slices import Slice, Window
from strandline.storage.spark.changes import changes, fold
from strandline.storage.spark.columns import before
from strandline.storage.spark.scan import scan
from strandline.storage.spark.sort import write_sorted

__all__ = ["write_slice"]


def write_slice(
    spark: SparkSession, shelf: Shelf, schema: TableSchema, window: Window, name: str, *, here: int
) -> Slice:
    """Fold the window, and make it durable under the fresh name ``name``. No file is left when it raises. Up
    to ``here`` bytes are described in this process."""
    written = write_sorted(
        _rows(spark, shelf, schema, window),
        shelf,
        schema,
        name,
        role="log",
        stepped=True,
        after=window.after,
        upto=window.upto,
        cut=shard_number(schema) if schema.bounds else None,
        here=here,
    )
    segments, tombstones = written.segments, 0
    if window.chain is None and any(not s.fresh for s in segments):
        log = changes(spark, shelf, schema, segments, after=window.after, upto=window.upto)
        tombstones = log.where(F.col(OP) == "E").count()
    return Slice(segments, sum(s.rows for s in segments), tombstones, written.delta)


def _rows(spark: SparkSession, shelf: Shelf, schema: TableSchema, window: Window) -> DataFrame:
    if window.chain is None:
        return fold(
            spark, shelf, schema, window.logs, after=window.after, upto=window.upto, within=window.within
        )
    rows = scan(spark, shelf, State(schema, window.chain, window.within), [*schema.names, STEP])
    nothing = F.lit(None).cast("bigint")
    return rows.withColumns({OP: F.lit("U"), WAS_HI: nothing, WAS_LO: nothing})


def shard_number(schema: TableSchema) -> Column:
    """The number of the shard that a row's key is in."""

    def search(bounds: Sequence[Key], first: int) -> Column:
        # A tree, so that a row is compared with a few of many bounds.
        if not bounds:
            return F.lit(first)
        middle = len(bounds) // 2
        lower, upper = search(bounds[:middle], first), search(bounds[middle + 1 :], first + middle + 1)
        return F.when(before(schema, bounds[middle]), lower).otherwise(upper)

    return search(schema.bounds, 0)
