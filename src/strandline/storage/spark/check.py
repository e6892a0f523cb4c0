"""Check rows with Spark jobs: their order, duplicate keys, index entries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.model import BEGINNING, OP, STEP, Segment, State, TableSchema, split, visible
from strandline.storage.order import EXAMPLES, Finding, Kind, examine_segment, more_than_once
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.columns import col, keys_in
from strandline.storage.spark.hashes import hash_columns
from strandline.storage.spark.rows import POSITION, rows_of, union
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working
from strandline.storage.spark.tasks import read_on_executors
from strandline.storage.task_reports import sizes_of

__all__ = ["compare_index", "examine", "find_doubled_keys"]

_TIMES = "__strandline_times"
_WANTED, _FOUND, _HI, _LO = "__strandline_wanted", "__strandline_found", "__strandline_hi", "__strandline_lo"


def examine(
    spark: SparkSession, cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment]
) -> list[Finding]:
    """Check the rows of each segment; return the findings in the order of the segments.

    Executors read the files.
    """
    examined = partial(examine_segment, cache.files, schema)
    of_files = [s for s in segments if s.file is not None]
    sizes = [sizes_of([s]) for s in of_files]
    stored = iter(read_on_executors(spark, cache.files, examined, of_files, sizes))
    found = (next(stored) if s.file is not None else examined(s) for s in segments)
    return [finding for findings in found for finding in findings]


def find_doubled_keys(spark: SparkSession, cache: SegmentCache, state: State) -> list[Finding]:
    """Return one finding if keys occur in the state more than once, otherwise an empty list.

    Counts the rows of all segments. ``scan`` cannot be used, because it may assume that keys are unique.
    """
    schema, step = state.schema, state.chain.step
    old, middle, _ = split(segments := visible(state.chain))
    names = [*schema.key, OP, STEP]
    with working(spark):
        rows = rows_of(spark, cache, schema, segments, names, after=BEGINNING, upto=step, position=True)
        is_old, is_new = col(POSITION) < len(old), col(POSITION) >= len(old) + len(middle)
        decides = ~is_old & ~is_new
        last = F.max_by(F.when(decides, col(OP)), F.when(decides, F.struct(col(POSITION), col(STEP))))
        kept = F.when(last.isNull(), F.count_if(is_old)).when(last == "E", 0).otherwise(1)
        keys = [col(name) for name in schema.key]
        doubled = rows.groupBy(*keys).agg((kept + F.count_if(is_new)).alias(_TIMES)).where(col(_TIMES) > 1)
        few = keys_in(doubled.orderBy(*keys).limit(EXAMPLES), schema)
        return [more_than_once(doubled.count(), few)] if few else []


def compare_index(
    spark: SparkSession, cache: SegmentCache, table: State, entries: State, index: str
) -> list[Finding]:
    """Compare the entries of an index with its table at the same step; return the differences.

    Entries with wrong covered values, and duplicate entries, are reported as dangling entries.
    """
    impl = entries.schema
    wanted, found = scan(spark, cache, table, impl.names), scan(spark, cache, entries, impl.names)
    with working(spark):
        differing = _find_differing(wanted, found, impl)
        missing, extra, wrong = (
            col(_WANTED) > col(_FOUND),
            col(_WANTED) < col(_FOUND),
            (col(_WANTED) == col(_FOUND)) & ((col(_HI) != 0) | (col(_LO) != 0)),
        )
        differing.persist()
        try:
            problems = [
                _build_findings(
                    differing.where(missing),
                    impl,
                    "missing_index_entry",
                    f"rows have no entry in the index {index}",
                ),
                _build_findings(
                    differing.where(extra),
                    impl,
                    "dangling_index_entry",
                    f"entries of the index {index} have no row",
                ),
                _build_findings(
                    differing.where(wrong),
                    impl,
                    "dangling_index_entry",
                    f"entries of the index {index} have other covered values than their row",
                ),
            ]
        finally:
            differing.unpersist()
        return [finding for findings in problems for finding in findings]


def _find_differing(wanted: DataFrame, found: DataFrame, impl: TableSchema) -> DataFrame:
    """Return for each key the expected and the actual number of entries, and the difference of their hashes.

    Rows are grouped, not joined, because NULLs are equal in groups.
    """
    high, low = hash_columns(impl, col)

    def side(df: DataFrame, is_wanted: bool) -> DataFrame:
        sign = F.lit(1 if is_wanted else -1)
        here = [
            F.lit(int(flag)).alias(name) for name, flag in ((_WANTED, is_wanted), (_FOUND, not is_wanted))
        ]
        # 32 bits of each half are enough to tell two rows apart, and their sum cannot overflow.
        halves = [
            (half.bitwiseAND(F.lit(0xFFFFFFFF)) * sign).alias(name)
            for half, name in ((high, _HI), (low, _LO))
        ]
        return df.select(*map(col, impl.key), *here, *halves)

    both = union([side(wanted, True), side(found, False)])
    return both.groupBy(*map(col, impl.key)).agg(
        *(F.sum(col(name)).alias(name) for name in (_WANTED, _FOUND, _HI, _LO))
    )


def _build_findings(entries: DataFrame, impl: TableSchema, kind: Kind, said: str) -> list[Finding]:
    count = entries.count()
    if not count:
        return []
    keys = keys_in(entries.orderBy(*map(col, impl.key)).limit(EXAMPLES), impl)
    return [Finding(kind, f"{count} {said}", tuple(keys))]
