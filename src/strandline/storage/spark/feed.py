"""A table's changes as a DataFrame in the form that a stream's mode asks for, for windows of any size."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from strandline.model import OP, STEP, Chain, Segment, TableSchema
from strandline.storage.files import Files
from strandline.storage.spark import scan
from strandline.storage.spark.columns import col, mated, same_key
from strandline.storage.spark.session import working

__all__ = ["changes"]

_NEW, _BEFORE, _FIRST, _OLD = "__strandline_new", "__strandline_before", "__strandline_first", "__strandline_old"
_THERE = "__strandline_there"
"""A field of every image, so that the image of a row without value columns is not empty."""


def changes(
    spark: SparkSession,
    files: Files,
    schema: TableSchema,
    logs: Sequence[Segment],
    after: int,
    upto: int,
    before: Chain | None,
    mode: str,
    named: tuple[str, str],
) -> DataFrame:
    """The changes in ``(after, upto]``. ``before`` is the state at ``after``, for the modes that show old images; ``named`` are the names
    of the columns for the step and the operation."""
    values = [c.name for c in schema.columns if c.name not in schema.key]
    found = scan.changes(spark, files, schema, logs, after, upto)
    head = [col(STEP).alias(named[0]), col(OP).alias(named[1]), *map(col, schema.key)]
    if mode == "KEYS_ONLY":
        return found.select(*head)
    if before is None:
        return found.select(*head, *map(col, values))
    with working(spark):
        old = _with_old(spark, files, schema, found, before, values)
        image = {n: F.col(f"{_OLD}.{_quoted(n)}") for n in values}
        if mode == "OLD_IMAGE":
            return old.select(*head, *(image[n].alias(n) for n in values))
        if mode == "NEW_AND_OLD_IMAGES":
            return old.select(*head, *map(col, values), *(image[n].alias(f"old_{n}") for n in values))
        there = col(OP) != "E"
        differs = {n: there & (col(_OLD).isNull() | ~col(n).eqNullSafe(image[n])) for n in values}
        names = F.array(*(F.when(differs[n], F.lit(n)) for n in values)) if values else F.array().cast("array<string>")
        return old.select(*head, *(F.when(differs[n], col(n)).alias(n) for n in values), F.array_compact(names).alias("changed"))


def _with_old(spark: SparkSession, files: Files, schema: TableSchema, found: DataFrame, before: Chain, values: Sequence[str]) -> DataFrame:
    """Each change with the row that it replaced: that of the key's change before it, or, for its first one, that of the state."""
    image = F.struct(F.lit(True).alias(_THERE), *map(col, values))
    by_key = Window.partitionBy(*map(col, schema.key)).orderBy(col(STEP))
    numbered = found.withColumns({_NEW: F.when(col(OP) != "E", image)}).withColumns(
        {_FIRST: F.row_number().over(by_key) == 1, _OLD: F.lag(_NEW).over(by_key)}
    )
    state = scan.scan(spark, files, schema, before)
    others = state.select(*(col(name).alias(mated(name)) for name in schema.key), image.alias(_BEFORE))
    keep = [c for c in numbered.columns if c != _OLD]
    joined = numbered.join(others, same_key(schema), "left")
    return joined.select(*map(col, keep), F.when(col(_FIRST), col(_BEFORE)).otherwise(col(_OLD)).alias(_OLD))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
