"""A chain as a DataFrame: its state, its changes, and its changes folded to one per key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from strandline.lru import Cache
from strandline.model import OP, STEP, WAS_HI, WAS_LO, Chain, Key, Segment, TableSchema, order
from strandline.storage.chain import BEGINNING, fold_logs, split, visible
from strandline.storage.files import Files
from strandline.storage.find import cover
from strandline.storage.segment import ERASE
from strandline.storage.spark.columns import col, renamed, same_key
from strandline.storage.spark.rows import POSITION, local, one_commit, rows_of, union
from strandline.storage.spark.session import working
from strandline.storage.spark.without import without

__all__ = ["apart_from", "changes", "fold_window", "is_small", "narrowed", "scan"]

IN_PROCESS_ROWS = 300_000
IN_PROCESS_BYTES = 32 << 20
"""Up to so much of overwriting logs is folded here and travels inside the plan; more is folded on Spark."""

_NUMBER = "__strandline_number"

_folds: Cache[Hashable, tuple[pa.Table, pa.Table]] = Cache(
    128 << 20, lambda folded: sum(table.nbytes for table in folded)
)
"""What logs fold to: a table is read more often than it changes."""


def scan(
    spark: SparkSession, files: Files, schema: TableSchema, chain: Chain, columns: Sequence[str] | None = None
) -> DataFrame:
    """The state at ``chain.step``: ``columns`` (None: all of the schema; STEP may be among them) under their
    logical names, in the physical types. Nothing runs yet, except that a small log is read and folded here.
    Filters on the DataFrame reach the Parquet files. The DataFrame is good as long as the chain's files are
    there."""
    names = list(schema.names if columns is None else columns)
    old, middle, new = split(visible(chain))
    with working(spark):
        if not middle:
            return rows_of(spark, files, schema, [*old, *new], names, BEGINNING, chain.step)
        needed = list(dict.fromkeys([*schema.key, *names]))
        far, near = apart_from(old, middle)
        rows = rows_of(spark, files, schema, near, needed, BEGINNING, chain.step) if near else None
        if is_small(middle):
            keys, folded = _folded_here(files, schema, middle, needed, chain.step)
            changed = local(spark, schema, folded)
            kept = None if rows is None else without(rows, schema, keys)
        else:
            touched, changed = _folded_there(spark, files, schema, middle, needed, chain.step)
            kept = (
                None
                if rows is None
                else rows.join(renamed(touched, schema.key), same_key(schema), "left_anti")
            )
        parts = [part.select(*map(col, names)) for part in (changed, kept) if part is not None]
        if far or new:
            parts.append(rows_of(spark, files, schema, [*far, *new], names, BEGINNING, chain.step))
        return union(parts)


def changes(
    spark: SparkSession, files: Files, schema: TableSchema, segments: Iterable[Segment], after: int, upto: int
) -> DataFrame:
    """Every change in ``(after, upto]``: the columns of the schema, OP, WAS_HI, WAS_LO and STEP, in no
    particular order."""
    logs = [s for s in segments if s.role == "log"]
    with working(spark):
        return rows_of(spark, files, schema, logs, [*schema.names, OP, WAS_HI, WAS_LO, STEP], after, upto)


def fold_window(
    spark: SparkSession, files: Files, schema: TableSchema, segments: Iterable[Segment], after: int, upto: int
) -> DataFrame:
    """The last change in ``(after, upto]`` of each key, with its STEP, and with the hash of the row that was
    there before the first of them. The same columns as those of ``changes``."""
    logs = [s for s in segments if s.role == "log"]
    names = [*schema.names, OP, WAS_HI, WAS_LO, STEP]
    with working(spark):
        if one_commit(logs):
            return rows_of(spark, files, schema, logs, names, after, upto)
        rows = rows_of(spark, files, schema, logs, names, after, upto, position=True)
        newest = Window.partitionBy(*map(col, schema.key)).orderBy(F.desc(POSITION), F.desc(STEP))
        everything = newest.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        numbered = rows.select(
            *(col(n) for n in (*schema.names, OP, STEP)),
            *(F.last(col(n)).over(everything).alias(n) for n in (WAS_HI, WAS_LO)),
            F.row_number().over(newest).alias(_NUMBER),
        )
        return numbered.where(col(_NUMBER) == 1).select(*map(col, names))


def narrowed(chain: Chain, lower: Key, upper: Key) -> Chain:
    """The chain without segments that hold no key from ``lower`` to ``upper``: right for those keys, and only
    for those."""

    def may_hold(segment: Segment) -> bool:
        low, high = segment.min_key, segment.max_key
        return (
            low is not None
            and high is not None
            and order(low) <= order(upper)
            and order(lower) <= order(high)
        )

    return replace(chain, segments=tuple(filter(may_hold, chain.segments)))


def apart_from(segments: Iterable[Segment], others: Sequence[Segment]) -> tuple[list[Segment], list[Segment]]:
    """The segments whose range of keys meets none of the others', and the rest."""
    far: list[Segment] = []
    near: list[Segment] = []
    for segment in segments:
        low, high = segment.min_key, segment.max_key
        known = low is not None and high is not None
        meets = known and narrowed(Chain(tuple(others), 0), low or (), high or ()).segments
        (near if meets else far).append(segment)
    return far, near


def is_small(logs: Sequence[Segment]) -> bool:
    return sum(s.rows for s in logs) <= IN_PROCESS_ROWS and sum(s.bytes for s in logs) <= IN_PROCESS_BYTES


def _folded_here(
    files: Files, schema: TableSchema, logs: Sequence[Segment], columns: Sequence[str], step: int
) -> tuple[pa.Table, pa.Table]:
    """The keys that logs touch, and what becomes of those that are not erased."""
    part = replace(schema, columns=tuple(c for c in schema.columns if c.name in columns))

    def fold() -> tuple[pa.Table, pa.Table]:
        folded = fold_logs(files, part, logs, step)
        there = folded.filter(pc.not_equal(folded.column(OP), ERASE))
        return folded.select(list(schema.key)), there.select(list(columns))

    # What a segment holds never changes, and where all of each counts, neither does what they fold to.
    whole = all(cover(s, BEGINNING, step) == "all" for s in logs)
    which = (
        part,
        tuple(columns),
        tuple((files.path(s.file) if s.file else s.checksum, s.upto) for s in logs),
        0 if whole else step,
    )
    return _folds.get(which, fold)


def _folded_there(
    spark: SparkSession,
    files: Files,
    schema: TableSchema,
    logs: Sequence[Segment],
    columns: Sequence[str],
    step: int,
) -> tuple[DataFrame, DataFrame]:
    keys = rows_of(spark, files, schema, logs, schema.key, BEGINNING, step)
    if one_commit(logs):
        rows = rows_of(spark, files, schema, logs, [*columns, OP], BEGINNING, step)
        return keys, rows.where(col(OP) != "E").select(*map(col, columns))
    needed = list(dict.fromkeys([*columns, OP, STEP]))
    rows = rows_of(spark, files, schema, logs, needed, BEGINNING, step, position=True)
    newest = Window.partitionBy(*map(col, schema.key)).orderBy(F.desc(POSITION), F.desc(STEP))
    last = rows.withColumn(_NUMBER, F.row_number().over(newest)).where(col(_NUMBER) == 1)
    return keys, last.where(col(OP) != "E").select(*map(col, columns))
