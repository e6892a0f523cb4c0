"""Read every change in logs as a DataFrame, or the last change of each key; write the changes as slices."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from strandline.model import (
    EVERYWHERE,
    OP,
    PENDING,
    STEP,
    WAS_HI,
    WAS_LO,
    KeyRange,
    Segment,
    State,
    TableSchema,
)
from strandline.storage.chain_slices import Slice, Window
from strandline.storage.partition_plan import plan_slice
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.columns import col, inside, rename_keys, same_key
from strandline.storage.spark.rows import POSITION, one_commit, rows_of
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working
from strandline.storage.spark.sort import write_sorted

__all__ = ["changes", "fold", "rows_before", "write_slice"]

_NUMBER = "__strandline_number"


def changes(
    spark: SparkSession,
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    *,
    after: int,
    upto: int,
) -> DataFrame:
    """Return every change in ``(after, upto]``, in no particular order.

    The columns are those of the schema, OP, WAS_HI, WAS_LO and STEP.
    """
    logs = [s for s in segments if s.role == "log"]
    with working(spark):
        names = [*schema.names, OP, WAS_HI, WAS_LO, STEP]
        return rows_of(spark, cache, schema, logs, names, after=after, upto=upto)


def fold(
    spark: SparkSession,
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    *,
    after: int,
    upto: int,
    within: KeyRange = EVERYWHERE,
) -> DataFrame:
    """Return the last change in ``(after, upto]`` of each key in the range ``within``.

    The columns are those of ``changes``. WAS_HI and WAS_LO are the hash of the key's row before its first
    change in ``(after, upto]``.
    """
    logs = [s for s in segments if s.role == "log"]
    names = [*schema.names, OP, WAS_HI, WAS_LO, STEP]
    with working(spark):
        if one_commit(logs):
            return inside(rows_of(spark, cache, schema, logs, names, after=after, upto=upto), schema, within)
        rows = rows_of(spark, cache, schema, logs, names, after=after, upto=upto, position=True)
        rows = inside(rows, schema, within)
        newest = Over.partitionBy(*map(col, schema.key)).orderBy(F.desc(POSITION), F.desc(STEP))
        everything = newest.rowsBetween(Over.unboundedPreceding, Over.unboundedFollowing)
        numbered = rows.select(
            *(col(n) for n in (*schema.names, OP, STEP)),
            *(F.last(col(n)).over(everything).alias(n) for n in (WAS_HI, WAS_LO)),
            F.row_number().over(newest).alias(_NUMBER),
        )
        return numbered.where(col(_NUMBER) == 1).select(*map(col, names))


def rows_before(
    spark: SparkSession, cache: SegmentCache, old: State, logs: Sequence[Segment]
) -> tuple[DataFrame, DataFrame]:
    """Return the old rows of the keys that later logs change, and the keys that had no row.

    Args:
        old: the old state.
        logs: log segments with the changes after ``old``.
    """
    schema = old.schema
    with working(spark):
        keys = rows_of(spark, cache, schema, logs, schema.key, after=old.chain.step, upto=PENDING).distinct()
        rows = scan(spark, cache, old)
        there = rows.join(rename_keys(keys, schema.key), same_key(schema), "left_semi")
        return there, keys.join(rename_keys(rows, schema.key), same_key(schema), "left_anti")


def write_slice(
    spark: SparkSession, cache: SegmentCache, schema: TableSchema, window: Window, name: str
) -> Slice:
    """Fold the changes of the window and write them as log segments.

    The files are written to the new folder ``name``. If this function raises, they are deleted.
    """
    segments = window.logs if window.chain is None else window.chain.segments
    written = write_sorted(
        _rows(spark, cache, schema, window),
        cache.files,
        schema,
        name,
        plan_slice(segments, cache.target_bytes),
        role="log",
        stepped=True,
        after=window.after,
        upto=window.upto,
        cut=True,
    )
    segments, tombstones = written.segments, 0
    if window.chain is None and any(not s.fresh for s in segments):
        log = changes(spark, cache, schema, segments, after=window.after, upto=window.upto)
        tombstones = log.where(F.col(OP) == "E").count()
    return Slice(segments, sum(s.rows for s in segments), tombstones, written.delta)


def _rows(spark: SparkSession, cache: SegmentCache, schema: TableSchema, window: Window) -> DataFrame:
    if window.chain is None:
        return fold(
            spark, cache, schema, window.logs, after=window.after, upto=window.upto, within=window.within
        )
    rows = scan(spark, cache, State(schema, window.chain, window.within), [*schema.names, STEP])
    nothing = F.lit(None).cast("bigint")
    return rows.withColumns({OP: F.lit("U"), WAS_HI: nothing, WAS_LO: nothing})
