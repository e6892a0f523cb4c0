"""Derive the changes of an index from the changes of its table between two states, as a Spark job."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.model import OP, PENDING, WAS_HI, WAS_LO, Segment, State, TableSchema
from strandline.storage.partition_plan import BROADCAST_ROWS, plan_upsert
from strandline.storage.rows import Written
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.columns import col, other_side, rename_keys, same_key
from strandline.storage.spark.given import persisted
from strandline.storage.spark.rows import rows_of
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working
from strandline.storage.spark.sort import write_sorted
from strandline.storage.spark.write import index_log

__all__ = ["follow"]

_HAD, _HAS = "__strandline_had", "__strandline_has"


def follow(
    spark: SparkSession,
    cache: SegmentCache,
    before: State,
    after: State,
    logs: Sequence[Segment],
    *,
    impl: TableSchema,
    name: str,
) -> Written:
    """Write the index changes that follow from a table's changes between two states.

    If this function raises, the files are deleted.

    Args:
        before: earlier state of the table, which the entries of the index were derived from.
        after: later state of the table.
        logs: log segments with the table's changes between the two states.
        impl: schema of the index's implementation table.
        name: fresh name of the folder for the files.
    """
    schema = after.schema
    with working(spark):
        keys = rows_of(spark, cache, schema, logs, schema.key, after=before.chain.step, upto=PENDING)
        touched = rename_keys(keys.distinct(), schema.key)
        changed = sum(s.rows for s in logs)
        if changed <= BROADCAST_ROWS:
            touched = F.broadcast(touched)
        names = list(dict.fromkeys([*schema.key, *impl.names]))
        old, new = (
            scan(spark, cache, state, names).join(touched, same_key(schema), "left_semi")
            for state in (before, after)
        )
        with persisted(_both(schema, impl, old, new)) as log:
            plan = plan_upsert(after.chain.segments, changed, cache.target_bytes)
            return write_sorted(index_log(log, schema, impl), cache.files, impl, name, plan, role="log")


def _both(schema: TableSchema, impl: TableSchema, old: DataFrame, new: DataFrame) -> DataFrame:
    """Return the log for ``index_log``: keys, new values, and old values under ``other_side`` names."""
    earlier = old.select(*(col(n).alias(other_side(n)) for n in old.columns), F.lit(True).alias(_HAD))
    rows = new.withColumn(_HAS, F.lit(True)).join(earlier, same_key(schema), "full")
    has, had = col(_HAS).isNotNull(), col(_HAD).isNotNull()
    values = [n for n in impl.names if n not in schema.key]
    known = F.when(had, F.lit(0).cast("bigint"))  # Not a hash: only whether there was an old row is used.
    return rows.select(
        *(F.when(has, col(n)).otherwise(col(other_side(n))).alias(n) for n in schema.key),
        *map(col, values),
        F.when(has, "U").otherwise("E").alias(OP),
        known.alias(WAS_HI),
        known.alias(WAS_LO),
        *(col(other_side(n)) for n in values),
    )
