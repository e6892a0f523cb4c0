"""What a chain of segments means, to whichever engine reads it.

The order of a chain is the order of time. ``split`` says how a state is put together: the state = (rows
before the first overwriting log, minus the keys that it and the following logs up to the last overwriting one
touch) + the last change of each of those keys, unless it is an erase + the rows of the logs after that, whose
keys are all new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from strandline.model import PENDING, Chain, Key, Segment, TableSchema, order

__all__ = ["BEGINNING", "Cover", "State", "cover", "may_hold", "split", "trailing_logs", "visible"]

BEGINNING = -1
"""Before every step."""

Cover: TypeAlias = Literal["none", "some", "all"]


@dataclass(frozen=True)
class State:
    """The rows of a table at a step: their columns, and the chain that folds to them."""

    schema: TableSchema
    chain: Chain


def visible(chain: Chain) -> list[Segment]:
    """Return the segments that have a part in the state, oldest first."""
    return [s for s in chain.segments if s.rows and cover(s, BEGINNING, chain.step) != "none"]


def split(segments: Sequence[Segment]) -> tuple[Sequence[Segment], Sequence[Segment], Sequence[Segment]]:
    """Return what is before, from the first to the last, and after the logs that may change a key that was
    there."""
    rough = [i for i, s in enumerate(segments) if not s.fresh]
    first, last = (rough[0], rough[-1] + 1) if rough else (len(segments), len(segments))
    return segments[:first], segments[first:last], segments[last:]


def cover(segment: Segment, after: int, upto: int) -> Cover:
    """Return how many of the segment's rows have a step in ``(after, upto]``. Pending ones always count."""
    if segment.upto >= PENDING or (
        after < segment.upto <= upto and (not segment.stepped or after <= segment.after)
    ):
        return "all"
    if not segment.stepped or segment.upto <= after or segment.after >= upto:
        return "none"
    return "some"


def may_hold(segment: Segment, lower: Key | None, upper: Key | None) -> bool:
    """Return whether keys between the bounds may be in the segment."""
    if segment.min_key is None or segment.max_key is None:
        return False
    below = lower is not None and order(segment.max_key[: len(lower)]) < order(lower)
    above = upper is not None and order(segment.min_key[: len(upper)]) > order(upper)
    return not (below or above)


def trailing_logs(segments: Sequence[Segment], rows: int, after: int = 0) -> list[Segment]:
    """Return the trailing logs that have at most so many rows each, all of steps later than ``after``."""
    found: list[Segment] = []
    for segment in reversed(segments):
        if segment.role != "log" or segment.rows > rows or segment.after < after:
            break
        found.append(segment)
    return found[::-1]
