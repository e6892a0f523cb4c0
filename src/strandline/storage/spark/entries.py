"""Build all entries of an index from the rows of its table, as a Spark job."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.model import STEP, State, TableSchema
from strandline.storage.rows import Written
from strandline.storage.segment_cache import SegmentCache
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
    *,
    pieces: int | None = None,
) -> Written:
    """Return base segments with the entries of an index for a state of its table, and their digest.

    The step of each entry is the state's. ``pieces``: number of files; None: chosen by size.
    """
    step = state.chain.step
    with working(spark):
        rows = scan(spark, cache, state, impl.names).withColumn(STEP, F.lit(step).cast("bigint"))
        return write_sorted(
            rows,
            cache,
            impl,
            name,
            role="base",
            fresh=True,
            stepped=True,
            upto=step,
            partitions=pieces,
        )
