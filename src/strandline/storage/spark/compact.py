"""Compaction: fold a chain into base segments; rewrite only the segments that need it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession

from strandline.errors import StrandlineError
from strandline.model import (
    BEGINNING,
    OP,
    STEP,
    WAS_HI,
    WAS_LO,
    Chain,
    Digest,
    Segment,
    State,
    TableSchema,
    may_hold,
    split,
    visible,
)
from strandline.storage.arrow.lookup import touched_keys
from strandline.storage.compaction_result import Compacted, is_good_size
from strandline.storage.keys import Wanted
from strandline.storage.partition_plan import plan_rewrite
from strandline.storage.rows import Written
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.shards import ranges
from strandline.storage.spark.hashes import digest_of, digest_of_changes
from strandline.storage.spark.ranges import apart_from
from strandline.storage.spark.rows import is_brought_along, rows_of
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import inheriting, working
from strandline.storage.spark.sort import write_sorted

__all__ = ["compact", "fold"]

SHARDS_AT_ONCE = 3


def compact(
    spark: SparkSession,
    cache: SegmentCache,
    state: State,
    name: str,
    *,
    least: int = 1,
) -> Compacted:
    """Fold a chain into base segments. Segments that compaction would not change are kept.

    Rows keep the step of their last change. The files of each shard are in a folder ``name-<n>``. They are
    durable when this function returns, and deleted when it raises.

    Args:
        least: minimum number of files of a table without shards.
    """
    schema, chain = state.schema, state.chain
    kept, stale = _split_segments(cache, state)
    shards = [
        (within, part)
        for within in ranges(schema.bounds)
        if (part := tuple(s for s in stale if may_hold(s, within)))
    ]
    prefixes = [f"{name}-{i}" for i in range(len(shards))]
    try:
        # One job per shard. Jobs share the executors, so a small shard need not wait for a large one.
        with ThreadPoolExecutor(SHARDS_AT_ONCE) as pool:
            jobs = [
                pool.submit(
                    inheriting(spark, _rewrite),
                    spark,
                    cache,
                    State(schema, Chain(part, chain.step), within),
                    name=prefix,
                    least=1 if schema.bounds else least,
                )
                for (within, part), prefix in zip(shards, prefixes, strict=True)
            ]
            written = [job.result() for job in jobs]
        digest = _digest(spark, cache, schema, chain.step, written, kept=kept, stale=stale)
    except BaseException:
        for prefix in prefixes:
            with suppress(StrandlineError):
                cache.files.remove_tree(prefix)
        raise
    return Compacted(
        tuple(s for w in written for s in w.segments),
        tuple(s for s in chain.segments if s not in kept),
        digest,
    )


def _digest(
    spark: SparkSession,
    cache: SegmentCache,
    schema: TableSchema,
    step: int,
    written: Sequence[Written],
    *,
    kept: Sequence[Segment],
    stale: Sequence[Segment],
) -> Digest | None:
    """Return the digest of the new state. None: the digest is the same as that of the old state.

    The digest of the new segments is known. Of the other segments, the smaller group is read:

    - ``stale``: if the digest of their rows and changes equals the digest of the new segments, the digest
      of the state has not changed. If the digests differ, ``kept`` is read too. They differ after a column
      was dropped: the WAS columns of logs have hashes of old rows, which include the dropped column.
    - ``kept``: the result is the digest of these segments plus the digest of the new segments.

    Args:
        written: the new segments.
        kept: the segments that were not rewritten.
        stale: the old segments that ``written`` replaces.
    """
    made = sum((w.delta for w in written), Digest())
    if not kept:
        return made

    def rows(segments: Sequence[Segment], *meta: str) -> DataFrame:
        names = [*schema.names, *meta]
        return rows_of(spark, cache, schema, segments, names, after=BEGINNING, upto=step)

    with working(spark):
        is_less = sum(s.bytes for s in stale) < sum(s.bytes for s in kept)
        if is_less and digest_of_changes(rows(stale, OP, WAS_HI, WAS_LO), schema) == made:
            return None
        return made + digest_of(rows(kept), schema)


def fold(spark: SparkSession, cache: SegmentCache, state: State, name: str) -> Written:
    """Write all rows of a state, which may be a key range of a table, as base segments."""
    return _rewrite(spark, cache, state, name=name, least=1)


def _split_segments(cache: SegmentCache, state: State) -> tuple[list[Segment], tuple[Segment, ...]]:
    """Return the segments to keep and those to rewrite, in the order of the chain."""
    schema, chain = state.schema, state.chain
    segments = visible(chain)
    old, middle, new = split(segments)
    untouched, near = apart_from(old, middle)
    if near and is_brought_along(middle):
        # If the keys of a log are far apart, its key range overlaps many segments without a key of the log.
        # So compare the keys themselves.
        wanted = Wanted.of(schema, touched_keys(cache, schema, middle, BEGINNING))
        untouched += [s for s in near if not len(wanted.between(s.min_key or (), s.max_key or ())[0])]
    kept = [
        s
        for s in (*untouched, *new)
        if s.file is not None and is_good_size(s, cache.target_bytes) and s.upto <= chain.step
    ]
    return kept, tuple(s for s in segments if s not in kept)


def _rewrite(
    spark: SparkSession,
    cache: SegmentCache,
    part: State,
    *,
    name: str,
    least: int,
) -> Written:
    schema, chain = part.schema, part.chain
    plan = plan_rewrite(chain.segments, part.within, cache.target_bytes, least)
    with working(spark):
        rows = scan(spark, cache, part, [*schema.names, STEP])
        return write_sorted(rows, cache.files, schema, name, plan, role="base", stepped=True, upto=chain.step)
