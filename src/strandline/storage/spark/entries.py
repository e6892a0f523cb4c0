"""Build all entries of an index from the rows of its table, as a Spark job."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.model import STEP, State, TableSchema
from strandline.storage.partition_plan import plan_partitions
from strandline.storage.rows import Written
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_sizes import projected_bytes
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working
from strandline.storage.spark.sort import write_sorted

__all__ = ["entries"]


def entries(
    spark: SparkSession,
    cache: SegmentCache,
    state: State,
    impl: TableSchema,
    name: str,
) -> Written:
    """Write the entries of an index for a state of its table as base segments.

    The step of each entry is the step of the state. The index gets at least as many segments as the table has
    shards, so that it can be divided into as many shards.

    Args:
        impl: schema of the index's implementation table.
        name: fresh name of the folder for the files.
    """
    step, shards = state.chain.step, len(state.schema.bounds) + 1
    with working(spark):
        size = projected_bytes(cache, state.schema, state.chain.segments, impl.names)
        plan = plan_partitions(size, cache.target_bytes, files=None if shards == 1 else shards)
        rows = scan(spark, cache, state, impl.names).withColumn(STEP, F.lit(step).cast("bigint"))
        return write_sorted(
            rows,
            cache.files,
            impl,
            name,
            plan,
            role="base",
            stepped=True,
            upto=step,
        )
