"""Write a DataFrame to a table and its indexes, as Spark jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.model import (
    BEGINNING,
    OP,
    PENDING,
    WAS_HI,
    WAS_LO,
    KeyRange,
    Segment,
    TableSchema,
)
from strandline.storage.partition_plan import BROADCAST_ROWS, plan_slice, plan_upsert
from strandline.storage.rows import Outcome
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.changes import fold
from strandline.storage.spark.columns import col, keys_from, other_side, rename_keys, same_key
from strandline.storage.spark.given import GivenRows, WriteInput, null_of, persisted, undone
from strandline.storage.spark.hashes import hash_columns
from strandline.storage.spark.incoming import (
    refuse_present,
)
from strandline.storage.spark.rows import union
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working
from strandline.storage.spark.sort import write_sorted

__all__ = ["collapse", "write"]


def write(given: GivenRows) -> Outcome:
    """Apply the given rows to a table that has rows, and update its indexes."""
    with working(given.work.spark), undone(given.work):
        return _into_rows(given)


def _into_rows(given: GivenRows) -> Outcome:
    """Join each given row with its old row, then derive the index changes."""
    work, now, schema = given.work, given.frame, given.work.schema
    lower, upper = keys_from(given.ends, schema)
    chain = work.state.chain.narrow(KeyRange(lower, upper, closed=True))
    old = scan(work.spark, work.cache, replace(work.state, chain=chain))
    if given.rows <= BROADCAST_ROWS:
        old = old.join(F.broadcast(rename_keys(now, schema.key)), same_key(schema), "left_semi")
    pairs = now.join(_old_side(work, old), same_key(schema), "inner" if work.only_existing else "left")
    log = pairs.select(
        *(_check_absent(work, name).alias(name) for name in schema.names),
        F.lit(work.op).alias(OP),
        col(WAS_HI),
        col(WAS_LO),
        *(col(other_side(name)) for name in work.watched_columns()),
    )
    plan = plan_upsert(chain.segments, given.rows, work.cache.target_bytes)
    write = partial(write_sorted, files=work.cache.files, plan=plan, role="log")
    if not work.indexes:
        return Outcome(write(log, schema=schema, folder=work.name))
    with persisted(log) as kept:
        table = write(kept, schema=schema, folder=work.name)
        indexes = {
            index: write(index_log(kept, schema, impl), schema=impl, folder=name)
            for name, index, impl in work.indexes
        }
        return Outcome(table, indexes)


def _check_absent(work: WriteInput, name: str) -> Column:
    value = work.image(name, of_old=True)
    return (
        refuse_present(work.schema, col(WAS_HI).isNotNull(), value)
        if work.mode == "INSERT" and name == work.schema.key[0]
        else value
    )


def _old_side(work: WriteInput, old: DataFrame) -> DataFrame:
    """Select the needed columns of old rows: key, hash, and the values that are kept or indexed."""
    kept = (
        [n for n in work.schema.names if n not in work.columns and n not in work.schema.key]
        if work.keeps
        else []
    )
    names = list(dict.fromkeys([*work.schema.key, *kept, *work.watched_columns()]))
    high, low = hash_columns(work.schema, col)
    return old.select(*(col(n).alias(other_side(n)) for n in names), high.alias(WAS_HI), low.alias(WAS_LO))


def index_log(log: DataFrame, schema: TableSchema, impl: TableSchema) -> DataFrame:
    """Return the changes of an index that follow from a table's log.

    Args:
        log: the changes of the table, with the old values of the index's columns under ``other_side`` names.
        schema: schema of the table.
        impl: schema of the index's implementation table.
    """

    def was(name: str) -> Column:
        return col(name) if name in schema.key else col(other_side(name))

    def same(names: Sequence[str]) -> Column:
        whole = F.lit(True)
        for name in names:
            whole = whole & col(name).eqNullSafe(was(name))
        return whole

    high, low = hash_columns(impl, was)
    had, has = col(WAS_HI).isNotNull(), col(OP) != "E"
    stays = had & has & same([n for n in impl.key if n not in schema.key])
    values = [c.name for c in impl.value_columns]
    gone = log.where(had & ~stays).select(
        *(was(name).alias(name) for name in impl.key),
        *(null_of(impl[name]).alias(name) for name in values),
        F.lit("E").alias(OP),
        high.alias(WAS_HI),
        low.alias(WAS_LO),
    )
    come = log.where(has & ~(stays & same(values))).select(
        *map(col, impl.names),
        F.lit("U").alias(OP),
        F.when(stays, high).alias(WAS_HI),
        F.when(stays, low).alias(WAS_LO),
    )
    return union([gone, come])


def collapse(
    spark: SparkSession, cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], name: str
) -> tuple[Segment, ...]:
    """Merge the pending segments of several statements into new ones, with the last change of each key.

    The WAS columns of the new segments have the hash of each key's row before the first change.
    """
    ordered = sorted(segments, key=lambda s: s.upto)
    with working(spark):
        folded = fold(spark, cache, schema, ordered, after=BEGINNING, upto=PENDING)
        plan = plan_slice(ordered, cache.target_bytes)
        return write_sorted(folded, cache.files, schema, name, plan, role="log").segments
