"""Log segments that end at a table's shard boundaries, written on Spark."""

from __future__ import annotations

from itertools import pairwise

from pyspark.sql import DataFrame

from strandline.model import Digest, Segment, TableSchema
from strandline.storage.files import Files
from strandline.storage.spark.columns import before
from strandline.storage.spark.session import working
from strandline.storage.spark.write import write_sorted

__all__ = ["write_by_shard"]


def write_by_shard(
    rows: DataFrame, files: Files, schema: TableSchema, name: str, *, after: int, upto: int
) -> tuple[tuple[Segment, ...], Digest]:
    """The rows as stepped log segments, none with keys of two shards, and what they add to the digest."""
    if not schema.bounds:
        return write_sorted(rows, files, schema, name, role="log", stepped=True, after=after, upto=upto)
    segments: tuple[Segment, ...] = ()
    delta = Digest()
    with working(rows.sparkSession):
        kept = rows.persist()  # every shard reads it
        try:
            for number, (lower, upper) in enumerate(pairwise([None, *schema.bounds, None])):
                part = kept
                if lower is not None:
                    part = part.where(~before(schema, lower))
                if upper is not None:
                    part = part.where(before(schema, upper))
                found, added = write_sorted(part, files, schema, f"{name}-{number}", role="log", stepped=True, after=after, upto=upto)
                segments += found
                delta += added
        finally:
            kept.unpersist()
    return segments, delta
