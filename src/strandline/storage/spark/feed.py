"""Read the records of a stream as a DataFrame, with the same columns and rows as ``storage.arrow.feed``."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from strandline.model import OP, STEP, State
from strandline.storage.feed import Feed
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.changes import changes
from strandline.storage.spark.columns import col, other_side, same_key
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working

__all__ = ["feed"]

_NEW, _BEFORE, _FIRST, _OLD = (
    "__strandline_new",
    "__strandline_before",
    "__strandline_first",
    "__strandline_old",
)
_THERE = "__strandline_there"
"""Extra field of each row image, because the image of a row without value columns would have no field."""


def feed(spark: SparkSession, cache: SegmentCache, window: Feed) -> DataFrame:
    """Return the changes in ``window`` as a DataFrame, in no particular order.

    The DataFrame can be read as long as the files of the window's segments exist.
    """
    head = [col(STEP).alias(window.step), col(OP).alias(window.op), *map(col, window.schema.key)]
    with working(spark):
        found = changes(spark, cache, window.schema, window.logs, after=window.after, upto=window.upto)
        if window.mode == "KEYS_ONLY":
            return found.select(*head)
        if window.before is None:
            return found.select(*head, *map(col, window.values))
        with_old = _with_old(spark, cache, window, found, State(window.schema, window.before))
        # Fields are named by number, because a column's name may have characters that a field's name cannot.
        old = {n: col(_OLD).getField(_field(i)) for i, n in enumerate(window.values)}
        if window.mode == "OLD_IMAGE":
            return with_old.select(*head, *(old[n].alias(n) for n in window.values))
        if window.mode == "NEW_AND_OLD_IMAGES":
            return with_old.select(
                *head, *map(col, window.values), *(old[n].alias(window.old[n]) for n in window.values)
            )
        there = col(OP) != "E"
        differs = {n: there & (col(_OLD).isNull() | ~col(n).eqNullSafe(old[n])) for n in window.values}
        names = (
            F.array(*(F.when(differs[n], F.lit(n)) for n in window.values))
            if window.values
            else F.array().cast("array<string>")
        )
        shown = [F.when(differs[n], col(n)).alias(n) for n in window.values]
        return with_old.select(*head, *shown, F.array_compact(names).alias(window.changed))


def _with_old(
    spark: SparkSession, cache: SegmentCache, window: Feed, found: DataFrame, before: State
) -> DataFrame:
    """Return each change with the row that it replaced.

    For the first change of a key, the replaced row is the key's row in the state ``before``. For a later
    change, it is the row after the previous change.
    """
    image = F.struct(
        F.lit(True).alias(_THERE), *(col(n).alias(_field(i)) for i, n in enumerate(window.values))
    )
    by_key = Window.partitionBy(*map(col, window.schema.key)).orderBy(col(STEP))
    numbered = found.withColumns({_NEW: F.when(col(OP) != "E", image)}).withColumns(
        {_FIRST: F.row_number().over(by_key) == 1, _OLD: F.lag(_NEW).over(by_key)}
    )
    state = scan(spark, cache, before)
    others = state.select(
        *(col(name).alias(other_side(name)) for name in window.schema.key), image.alias(_BEFORE)
    )
    keep = [c for c in numbered.columns if c != _OLD]
    joined = numbered.join(others, same_key(window.schema), "left")
    return joined.select(*map(col, keep), F.when(col(_FIRST), col(_BEFORE)).otherwise(col(_OLD)).alias(_OLD))


def _field(number: int) -> str:
    return f"v{number}"
