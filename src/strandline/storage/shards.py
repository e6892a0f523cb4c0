"""Shards: divide the keys of a table or an index into ranges that are processed independently.

A table is cut at its PARTITION_AT_KEYS. Shards that are still too large are also cut at the first keys of the
table's segments: these keys show how the rows are distributed, and a shard that starts with a segment reads
the whole segment. An index has no PARTITION_AT_KEYS. It gets at least as many shards as its table, cut at the
first keys of its own segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from strandline.model import Key, KeyRange, Segment, order

__all__ = [
    "MOST",
    "begins_in",
    "coarser",
    "cuts",
    "lies_in",
    "ranges",
    "segments_by_shard",
    "segments_in",
    "spread",
]

MOST = 1000
"""Maximum number of size-based shards per table. Each is a part of an operation, with rows in the catalog."""


def cuts(
    bounds: Sequence[Key],
    segments: Iterable[Segment],
    shard_bytes: int,
    least: int = 1,
    *,
    most: int = MOST,
) -> list[Key]:
    """Return the first keys of all shards except the first shard, ascending.

    Args:
        bounds: keys at which the table is always cut.
        segments: the segments, at whose first keys large shards are cut.
        shard_bytes: wanted size of a shard.
        least: minimum number of shards, if there are enough segments.
        most: approximate maximum number of shards that size alone makes.
    """
    found = list(segments)
    total = sum(s.bytes for s in found)
    size_each = max(1, shard_bytes, total // most)
    if least > 1:
        size_each = min(size_each, -(-total // least))
    left = list(bounds)
    if total <= size_each:
        return left
    made: list[Key] = []
    begun, size = (), 0
    for first, segment in sorted(((order(s.min_key or ()), s) for s in found), key=lambda pair: pair[0]):
        is_bound = False
        while left and order(left[0]) <= first:
            made.append(left.pop(0))
            is_bound = True
        # A shard may be larger or smaller than wanted by half a segment, but has at least one segment.
        is_full = size > 0 and size + segment.bytes // 2 >= size_each and first > begun
        if is_full and not is_bound:
            made.append(segment.min_key or ())
        if is_full or is_bound or not size:
            begun, size = first, 0
        size += segment.bytes
    return [*made, *left]


def coarser(limits: Sequence[Key], most: int) -> list[Key]:
    """Choose some of the limits, evenly, so that they make at most ``most`` shards."""
    shards = len(limits) + 1
    count = max(1, min(most, shards))
    return [limits[shards * number // count - 1] for number in range(1, count)]


def ranges(limits: Sequence[Key]) -> list[KeyRange]:
    """Return the shards between the given limits."""
    return [KeyRange(lower, upper) for lower, upper in pairwise([None, *limits, None])]


def segments_by_shard(limits: Sequence[Key], segments: Iterable[Segment]) -> dict[int, list[Segment]]:
    """Group segments by the number of the shard that contains their first key, ascending."""
    found: dict[int, list[Segment]] = {}
    firsts: list[tuple[Any, ...]] = [order(limit) for limit in limits]
    for segment in segments:
        found.setdefault(bisect_right(firsts, order(segment.min_key or ())), []).append(segment)
    return dict(sorted(found.items()))


def segments_in(shards: Sequence[KeyRange], segments: Iterable[Segment]) -> list[list[Segment]]:
    """Return for each shard the segments that may have keys of it, in their order.

    Args:
        shards: ranges that follow each other without a gap.
        segments: segments that may have keys of the shards. Segments without rows are left out.
    """
    found: list[list[Segment]] = [[] for _ in shards]
    limits: list[tuple[Any, ...]] = [order(shard.lower or ()) for shard in shards[1:]]
    for segment in segments:
        if segment.min_key is not None and segment.max_key is not None:
            first, last = (bisect_right(limits, order(key)) for key in (segment.min_key, segment.max_key))
            for shard in found[first : last + 1]:
                shard.append(segment)
    return found


def begins_in(segment: Segment, within: KeyRange) -> bool:
    """Return True if the first key of a segment is in a shard. Each segment begins in exactly one shard."""
    first, lower, upper = order(segment.min_key or ()), within.lower, within.upper
    return (lower is None or order(lower) <= first) and (upper is None or first < order(upper))


def lies_in(segment: Segment, within: KeyRange) -> bool:
    """Return True if all keys of a segment are in a shard."""
    upper = within.upper
    return begins_in(segment, within) and (upper is None or order(segment.max_key or ()) < order(upper))


def spread(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments that show best how a table's rows are distributed.

    Segments that change existing rows are left out, unless there are no others.
    """
    return [s for s in segments if s.fresh] or segments
