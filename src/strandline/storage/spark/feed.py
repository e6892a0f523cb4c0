"""What a stream shows of a table's changes, on Spark: the same columns and rows as ``storage.feed`` makes,
for windows of any size."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from strandline.model import OP, STEP, Chain
from strandline.storage.feed import Feed
from strandline.storage.files import Files
from strandline.storage.spark import scan
from strandline.storage.spark.columns import col, mated, same_key
from strandline.storage.spark.session import working

__all__ = ["changes"]

_NEW, _BEFORE, _FIRST, _OLD = (
    "__strandline_new",
    "__strandline_before",
    "__strandline_first",
    "__strandline_old",
)
_THERE = "__strandline_there"
"""A field of every image, so that the image of a row without value columns is not empty."""


def changes(spark: SparkSession, files: Files, feed: Feed) -> DataFrame:
    """The records, in no particular order. The DataFrame is good as long as the window's files are there."""
    head = [col(STEP).alias(feed.step), col(OP).alias(feed.op), *map(col, feed.schema.key)]
    with working(spark):
        found = scan.changes(spark, files, feed.schema, feed.logs, feed.after, feed.upto)
        if feed.mode == "KEYS_ONLY":
            return found.select(*head)
        if feed.before is None:
            return found.select(*head, *map(col, feed.values))
        with_old = _with_old(spark, files, feed, found, feed.before)
        # By number: a field's name may hold anything.
        old = {n: col(_OLD).getField(_field(i)) for i, n in enumerate(feed.values)}
        if feed.mode == "OLD_IMAGE":
            return with_old.select(*head, *(old[n].alias(n) for n in feed.values))
        if feed.mode == "NEW_AND_OLD_IMAGES":
            return with_old.select(
                *head, *map(col, feed.values), *(old[n].alias(feed.old[n]) for n in feed.values)
            )
        there = col(OP) != "E"
        differs = {n: there & (col(_OLD).isNull() | ~col(n).eqNullSafe(old[n])) for n in feed.values}
        names = (
            F.array(*(F.when(differs[n], F.lit(n)) for n in feed.values))
            if feed.values
            else F.array().cast("array<string>")
        )
        shown = [F.when(differs[n], col(n)).alias(n) for n in feed.values]
        return with_old.select(*head, *shown, F.array_compact(names).alias(feed.changed))


def _with_old(spark: SparkSession, files: Files, feed: Feed, found: DataFrame, before: Chain) -> DataFrame:
    """Each change with the row that it replaced: that of the key's change before it, or, for its first one,
    that of the state."""
    image = F.struct(F.lit(True).alias(_THERE), *(col(n).alias(_field(i)) for i, n in enumerate(feed.values)))
    by_key = Window.partitionBy(*map(col, feed.schema.key)).orderBy(col(STEP))
    numbered = found.withColumns({_NEW: F.when(col(OP) != "E", image)}).withColumns(
        {_FIRST: F.row_number().over(by_key) == 1, _OLD: F.lag(_NEW).over(by_key)}
    )
    state = scan.scan(spark, files, feed.schema, before)
    others = state.select(*(col(name).alias(mated(name)) for name in feed.schema.key), image.alias(_BEFORE))
    keep = [c for c in numbered.columns if c != _OLD]
    joined = numbered.join(others, same_key(feed.schema), "left")
    return joined.select(*map(col, keep), F.when(col(_FIRST), col(_BEFORE)).otherwise(col(_OLD)).alias(_OLD))


def _field(number: int) -> str:
    return f"v{number}"
