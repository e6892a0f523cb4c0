"""Compaction of a chain that does not fit into memory, without Spark."""

from __future__ import annotations

from strandline.model import Digest, Segment, State
from strandline.storage.arrow.compact import fold
from strandline.storage.compaction_result import Compacted
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.shards import ranges

__all__ = ["compact"]


def compact(cache: SegmentCache, state: State, name: str, *, most: int) -> Compacted:
    """Fold a whole chain, shard by shard, with few rows in memory at a time.

    The files ``name-<shard>-<n>.parquet`` are durable when this function returns, and deleted when it raises.

    Args:
        most: approximate size of a segment in bytes.
    """
    new: list[Segment] = []
    digest = Digest()
    try:
        for number, within in enumerate(ranges(state.schema.bounds)):
            made = fold(cache, state.narrow(within), f"{name}-{number}", most=most)
            new += made.segments
            digest += made.delta
    except BaseException:
        cache.discard(new)
        raise
    return Compacted(tuple(new), state.chain.segments, digest)
