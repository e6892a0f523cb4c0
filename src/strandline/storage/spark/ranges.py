"""Which segments can hold keys that others hold, told by the ends of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from strandline.model import Chain, Key, Segment, may_hold

__all__ = ["apart_from", "narrowed"]


def narrowed(chain: Chain, lower: Key, upper: Key) -> Chain:
    """Return the chain without segments that hold no key from ``lower`` to ``upper``: right for those keys,
    and only for those."""
    return replace(chain, segments=tuple(s for s in chain.segments if may_hold(s, lower, upper)))


def apart_from(segments: Iterable[Segment], others: Sequence[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Return the segments whose range of keys meets none of the others', and the rest."""
    far: list[Segment] = []
    near: list[Segment] = []
    for segment in segments:
        low, high = segment.min_key, segment.max_key
        known = low is not None and high is not None
        meets = known and narrowed(Chain(tuple(others), 0), low or (), high or ()).segments
        (near if meets else far).append(segment)
    return far, near
