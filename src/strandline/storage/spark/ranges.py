"""Find the segments whose key ranges overlap those of other segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.model import KeyRange, Segment, may_hold

__all__ = ["apart_from"]


def apart_from(segments: Iterable[Segment], others: Sequence[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Divide segments into two lists: those that overlap none of ``others``, and all other segments."""
    far: list[Segment] = []
    near: list[Segment] = []
    for segment in segments:
        low, high = segment.min_key, segment.max_key
        known = low is not None and high is not None
        meets = known and any(may_hold(other, KeyRange(low, high, closed=True)) for other in others)
        (near if meets else far).append(segment)
    return far, near
