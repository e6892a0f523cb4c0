"""The digest of a state, from its rows, as a Spark job."""

from __future__ import annotations

from pyspark.sql import SparkSession

from strandline.model import Digest, State, TableSchema
from strandline.storage.shelf import Shelf
from strandline.storage.spark.hashes import digest_of
from strandline.storage.spark.scan import scan

__all__ = ["digest"]


def digest(spark: SparkSession, shelf: Shelf, state: State, schema: TableSchema) -> Digest:
    """Return row count and digest of the columns of ``schema``: the table's own, or those of an index."""
    return digest_of(scan(spark, shelf, state, schema.names), schema)
