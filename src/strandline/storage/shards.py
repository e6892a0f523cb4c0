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

__all__ = ["MOST", "begins_in", "coarser", "cuts", "lies_in", "ranges", "segments_by_shard", "spread"]

MOST = 1000
"""Maximum number of size-based shards per table."""


def cuts(bounds: Sequence[Key], segments: Iterable[Segment], shard_bytes: int, least: int = 1) -> list[Key]:
    """Return the first keys of all shards except the first shard, ascending.

    Args:
        bounds: keys at which the table is always cut.
        segments: the segments, at whose first keys large shards are cut.
        shard_bytes: wanted size of a shard.
        least: minimum number of shards, if there are enough segments.
    """
    found = list(segments)
    total = sum(s.bytes for s in found)
    most = max(1, shard_bytes, total // MOST)
    if least > 1:
        most = min(most, -(-total // least))
    left = list(bounds)
    if total <= most:
        return left
    made: list[Key] = []
    begun, size = (), 0
    for first, segment in sorted(((order(s.min_key or ()), s) for s in found), key=lambda pair: pair[0]):
        is_bound = False
        while left and order(left[0]) <= first:
            made.append(left.pop(0))
            is_bound = True
        # A shard may be larger or smaller than wanted by half a segment, but has at least one segment.
        is_full = size > 0 and size + segment.bytes // 2 >= most and first > begun
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
