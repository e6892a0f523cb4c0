"""Log segments that end at a table's shard boundaries, written on Spark."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline.model import Digest, Key, Segment, TableSchema
from strandline.storage.files import Files
from strandline.storage.spark.columns import before
from strandline.storage.spark.write import write_sorted

__all__ = ["shard_number", "write_by_shard"]


def write_by_shard(
    rows: DataFrame, files: Files, schema: TableSchema, name: str, *, after: int, upto: int
) -> tuple[tuple[Segment, ...], Digest]:
    """The rows as stepped log segments, none with keys of two shards, and what they add to the digest."""
    cut = shard_number(schema) if schema.bounds else None
    return write_sorted(rows, files, schema, name, role="log", stepped=True, after=after, upto=upto, cut=cut)


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
