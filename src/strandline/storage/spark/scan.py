"""Read the rows of a state as a DataFrame."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from strandline.model import BEGINNING, OP, STEP, Segment, State, split, visible
from strandline.storage.arrow.replaced_rows import find_replaced, fold_logs
from strandline.storage.keys import Ints
from strandline.storage.segment_cache import SegmentCache, identify
from strandline.storage.spark.anti_join import without
from strandline.storage.spark.columns import col, inside, rename_keys, same_key
from strandline.storage.spark.failures import spark_errors
from strandline.storage.spark.ranges import apart_from
from strandline.storage.spark.rows import (
    POSITION,
    check_files,
    is_brought_along,
    local,
    one_commit,
    rows_of,
    union,
)
from strandline.storage.spark.session import working

__all__ = ["scan"]

_NUMBER = "__strandline_number"
PLAN_BYTES = 1 << 18
"""Approximate size of a plan without rows in the driver."""


def scan(
    spark: SparkSession, cache: SegmentCache, state: State, columns: Sequence[str] | None = None
) -> DataFrame:
    """Return ``columns`` of the rows of a state under their logical names, in the physical types.

    No job runs yet, but small logs are read and folded in this process. Filters on the DataFrame are pushed
    down to the Parquet files. The DataFrame is valid as long as the chain's files exist.

    Args:
        columns: names of the columns to read; STEP is possible. None: all columns of the schema.
    """
    if columns is None and not state.within.is_limited:
        return _scan_all(spark, cache, state)
    names = list(state.schema.names if columns is None else columns)
    if not state.within.is_limited:
        return _scan(spark, cache, state, names)
    found = _scan(spark, cache, state, list(dict.fromkeys([*names, *state.schema.key])))
    return inside(found, state.schema, state.within).select(*map(col, names))


def _scan_all(spark: SparkSession, cache: SegmentCache, state: State) -> DataFrame:
    """Return all rows of a state. Its plan is cached, because a table is read more often than it changes."""
    segments = visible(state.chain)
    old, logs, new = split(segments)
    read = [*old, *new, *(() if is_brought_along(logs) else logs)]
    key = (weakref.ref(spark), state.schema, identify(segments, state.chain.step))
    if (known := cache.frames.find(key)) is not None:
        check_files(cache.files, [s for s in read if s.file is not None])
        whole: DataFrame = known[0]
    else:
        whole = _scan(spark, cache, state, state.schema.names)
        in_files = sum(s.bytes for s in read if s.file is not None)
        cache.frames.put(key, (whole, PLAN_BYTES + sum(s.bytes for s in segments) - in_files))
    # The caller may join two DataFrames of the same table. Their columns must not be the same.
    with spark_errors():
        return whole.toDF(*state.schema.names)


def _scan(spark: SparkSession, cache: SegmentCache, state: State, names: Sequence[str]) -> DataFrame:
    schema, chain = state.schema, state.chain
    old, middle, new = split(visible(chain))

    def rows(
        segments: Sequence[Segment], asked: Sequence[str], hidden: Mapping[str, Ints] | None = None
    ) -> DataFrame:
        return rows_of(spark, cache, schema, segments, asked, after=BEGINNING, upto=chain.step, hidden=hidden)

    with working(spark):
        if not middle:
            return rows([*old, *new], names)
        needed = list(dict.fromkeys([*schema.key, *names]))
        far, near = apart_from(old, middle)
        stored = [s for s in near if s.file is not None]
        inline = [s for s in near if s.file is None]
        parts: list[DataFrame] = []
        if is_brought_along([*inline, *middle]):
            keys, folded = fold_logs(cache, state, inline, middle, needed)
            parts.append(local(spark, schema, folded.select(names)))
            hidden = find_replaced(cache, state, stored, middle, keys)
            if hidden is not None:
                far += [s for s in stored if s.file not in hidden]
                if touched := [s for s in stored if s.file in hidden]:
                    parts.append(rows(touched, names, hidden))
            elif stored:
                parts.append(without(rows(stored, needed), schema, keys).select(*map(col, names)))
        else:
            changes, changed = _fold_on_spark(spark, cache, state, middle, needed)
            parts.append(changed.select(*map(col, names)))
            if near:
                there, gone = rows(near, needed), rename_keys(changes, schema.key)
                kept = there.join(gone, same_key(schema), "left_anti")
                parts.append(kept.select(*map(col, names)))
        if far or new:
            parts.append(rows([*far, *new], names))
        return union(parts)


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
