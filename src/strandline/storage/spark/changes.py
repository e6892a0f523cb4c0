"""What logs say happened, as a DataFrame: every change, or the last one of each key."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from strandline.model import EVERYWHERE, OP, STEP, WAS_HI, WAS_LO, KeyRange, Segment, TableSchema
from strandline.storage.shelf import Shelf
from strandline.storage.spark.columns import col, inside
from strandline.storage.spark.rows import POSITION, one_commit, rows_of
from strandline.storage.spark.session import working

__all__ = ["changes", "fold"]

_NUMBER = "__strandline_number"


def changes(
    spark: SparkSession,
    shelf: Shelf,
    schema: TableSchema,
    segments: Sequence[Segment],
    *,
    after: int,
    upto: int,
) -> DataFrame:
    """Return every change in ``(after, upto]``: the columns of the schema, OP, WAS_HI, WAS_LO and STEP, in no
    particular order."""
    logs = [s for s in segments if s.role == "log"]
    with working(spark):
        names = [*schema.names, OP, WAS_HI, WAS_LO, STEP]
        return rows_of(spark, shelf, schema, logs, names, after=after, upto=upto)


def fold(
    spark: SparkSession,
    shelf: Shelf,
    schema: TableSchema,
    segments: Sequence[Segment],
    *,
    after: int,
    upto: int,
    within: KeyRange = EVERYWHERE,
) -> DataFrame:
    """Return the last change in ``(after, upto]`` of each key ``within`` a range, with its STEP, and with the
    hash of the row that was there before the first of them. The same columns as those of ``changes``."""
    logs = [s for s in segments if s.role == "log"]
    names = [*schema.names, OP, WAS_HI, WAS_LO, STEP]
    with working(spark):
        if one_commit(logs):
            return inside(rows_of(spark, shelf, schema, logs, names, after=after, upto=upto), schema, within)
        rows = rows_of(spark, shelf, schema, logs, names, after=after, upto=upto, position=True)
        rows = inside(rows, schema, within)
        newest = Window.partitionBy(*map(col, schema.key)).orderBy(F.desc(POSITION), F.desc(STEP))
        everything = newest.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        numbered = rows.select(
            *(col(n) for n in (*schema.names, OP, STEP)),
            *(F.last(col(n)).over(everything).alias(n) for n in (WAS_HI, WAS_LO)),
            F.row_number().over(newest).alias(_NUMBER),
        )
        return numbered.where(col(_NUMBER) == 1).select(*map(col, names))
