"""Read the rows of a state as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from strandline.model import BEGINNING, OP, STEP, Segment, State, cover, split, visible
from strandline.storage.arrow.changes import fold as fold_here
from strandline.storage.segment import ERASE
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.anti_join import without
from strandline.storage.spark.columns import col, inside, rename_keys, same_key
from strandline.storage.spark.ranges import apart_from
from strandline.storage.spark.rows import POSITION, is_brought_along, local, one_commit, rows_of, union
from strandline.storage.spark.session import working

__all__ = ["scan"]

_NUMBER = "__strandline_number"


def scan(
    spark: SparkSession, cache: SegmentCache, state: State, columns: Sequence[str] | None = None
) -> DataFrame:
    """Return ``columns`` of the rows of a state under their logical names, in the physical types.

    No job runs yet, but small logs are read and folded in this process. Filters on the DataFrame are pushed
    down to the Parquet files. The DataFrame is valid as long as the chain's files exist.

    Args:
        columns: names of the columns to read; STEP is possible. None: all columns of the schema.
    """
    names = list(state.schema.names if columns is None else columns)
    if not state.within.is_limited:
        return _scan(spark, cache, state, names)
    found = _scan(spark, cache, state, list(dict.fromkeys([*names, *state.schema.key])))
    return inside(found, state.schema, state.within).select(*map(col, names))


def _scan(spark: SparkSession, cache: SegmentCache, state: State, names: Sequence[str]) -> DataFrame:
    schema, chain = state.schema, state.chain
    old, middle, new = split(visible(chain))

    def rows(segments: Sequence[Segment], asked: Sequence[str]) -> DataFrame:
        return rows_of(spark, cache, schema, segments, asked, after=BEGINNING, upto=chain.step)

    with working(spark):
        if not middle:
            return rows([*old, *new], names)
        needed = list(dict.fromkeys([*schema.key, *names]))
        far, near = apart_from(old, middle)
        there = rows(near, needed) if near else None
        if is_brought_along(middle):
            keys, folded = _fold_in_process(cache, state, middle, needed)
            changed = local(spark, schema, folded)
            kept = None if there is None else without(there, schema, keys)
        else:
            touched, changed = _fold_on_spark(spark, cache, state, middle, needed)
            kept = (
                None
                if there is None
                else there.join(rename_keys(touched, schema.key), same_key(schema), "left_anti")
            )
        parts = [part.select(*map(col, names)) for part in (changed, kept) if part is not None]
        if far or new:
            parts.append(rows([*far, *new], names))
        return union(parts)


def _fold_in_process(
    cache: SegmentCache, state: State, logs: Sequence[Segment], columns: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """Fold logs: return the changed keys, and the resulting rows. An erased key has no row."""
    schema, step = state.schema, state.chain.step
    part = replace(schema, columns=tuple(c for c in schema.columns if c.name in columns))

    def make() -> tuple[pa.Table, pa.Table]:
        folded = fold_here(cache, part, logs, after=BEGINNING, upto=step)
        there = folded.filter(pc.not_equal(folded.column(OP), ERASE))
        return folded.select(list(schema.key)), there.select(list(columns))

    # Segments are immutable. If all their changes are visible at the step, the cached fold is valid for any
    # later step.
    whole = all(cover(s, BEGINNING, step) == "all" for s in logs)
    which = (
        part,
        tuple(columns),
        tuple((s.file or s.checksum, s.upto) for s in logs),
        0 if whole else step,
    )
    return cache.folds.get(which, make)


def _fold_on_spark(
    spark: SparkSession,
    cache: SegmentCache,
    state: State,
    logs: Sequence[Segment],
    columns: Sequence[str],
) -> tuple[DataFrame, DataFrame]:
    schema, step = state.schema, state.chain.step

    def rows(asked: Sequence[str], *, position: bool = False) -> DataFrame:
        return rows_of(spark, cache, schema, logs, asked, after=BEGINNING, upto=step, position=position)

    keys = rows(schema.key)
    if one_commit(logs):
        return keys, rows([*columns, OP]).where(col(OP) != "E").select(*map(col, columns))
    newest = Window.partitionBy(*map(col, schema.key)).orderBy(F.desc(POSITION), F.desc(STEP))
    everything = rows(list(dict.fromkeys([*columns, OP, STEP])), position=True)
    last = everything.withColumn(_NUMBER, F.row_number().over(newest)).where(col(_NUMBER) == 1)
    return keys, last.where(col(OP) != "E").select(*map(col, columns))
