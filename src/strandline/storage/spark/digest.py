"""Compute digests of a state with a Spark job."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from strandline.model import Digest, State, TableSchema
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.hashes import digests_of
from strandline.storage.spark.scan import scan

__all__ = ["digests"]


def digests(
    spark: SparkSession, cache: SegmentCache, state: State, schemas: Sequence[TableSchema]
) -> list[Digest]:
    """Return for each schema the row count and digest of the state's rows in the columns of that schema.

    One job reads the rows once.

    Args:
        schemas: the schema of the state, or schemas of implementation tables of its indexes.
    """
    names = list(dict.fromkeys(name for schema in schemas for name in schema.names))
    return digests_of(scan(spark, cache, state, names), schemas)
