"""Shards: the ranges of keys that a table or an index is worked on in, each by itself.

A table is cut at the keys it was created with and, where that leaves more than a shard should have, at the
first keys of its segments: they tell how its rows are spread, and a part that needs whole segments has them
whole. An index has no keys of its own to be cut at, so it gets as many shards as its table at least, by the
spread of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from strandline.model import Key, KeyRange, Segment, order

__all__ = ["MOST", "begins_in", "coarser", "cuts", "lies_in", "ranges", "segments_by_shard", "spread"]

MOST = 1000
"""No table is cut into more shards by its size: those of a larger one are larger."""


def cuts(bounds: Sequence[Key], segments: Iterable[Segment], shard_bytes: int, least: int = 1) -> list[Key]:
    """Return the first keys of the second and later shards, ascending: the ``bounds``, and what leaves about
    ``shard_bytes`` of the segments to each shard. There are ``least`` shards, if the segments allow it."""
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
        # Half of one segment too much is better than half of one too few, but a shard has one at least.
        is_full = size > 0 and size + segment.bytes // 2 >= most and first > begun
        if is_full and not is_bound:
            made.append(segment.min_key or ())
        if is_full or is_bound or not size:
            begun, size = first, 0
        size += segment.bytes
    return [*made, *left]


def coarser(limits: Sequence[Key], most: int) -> list[Key]:
    """Return some of the limits of shards, evenly, so that there are at most so many shards, or one."""
    shards = len(limits) + 1
    count = max(1, min(most, shards))
    return [limits[shards * number // count - 1] for number in range(1, count)]


def ranges(limits: Sequence[Key]) -> list[KeyRange]:
    """Return the shards that the first keys of all but the first cut out."""
    return [KeyRange(lower, upper) for lower, upper in pairwise([None, *limits, None])]


def segments_by_shard(limits: Sequence[Key], segments: Iterable[Segment]) -> dict[int, list[Segment]]:
    """Return segments by the number of the shard that their first key is in, ascending."""
    found: dict[int, list[Segment]] = {}
    firsts: list[tuple[Any, ...]] = [order(limit) for limit in limits]
    for segment in segments:
        found.setdefault(bisect_right(firsts, order(segment.min_key or ())), []).append(segment)
    return dict(sorted(found.items()))


def begins_in(segment: Segment, within: KeyRange) -> bool:
    """Return whether the first key of a segment is in a shard. Each segment begins in one."""
    first, lower, upper = order(segment.min_key or ()), within.lower, within.upper
    return (lower is None or order(lower) <= first) and (upper is None or first < order(upper))


def lies_in(segment: Segment, within: KeyRange) -> bool:
    """Return whether all keys of a segment are in a shard."""
    upper = within.upper
    return begins_in(segment, within) and (upper is None or order(segment.max_key or ()) < order(upper))


def spread(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments that tell best how the rows of a table are spread: not those that change rows here
    and there."""
    return [s for s in segments if s.fresh] or segments
