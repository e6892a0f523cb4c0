"""Estimate how much memory rows take.

The size of a file does not show this: a file stores a long text that is repeated a thousand times about once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.model import Segment, State, may_hold
from strandline.storage.budget import Budget
from strandline.storage.segment import columns_of, footer_of, is_small
from strandline.storage.segment_cache import SegmentCache

__all__ = ["Estimate", "estimate", "fits_memory", "stored_bytes"]


class Estimate(NamedTuple):
    """Estimate of the work of reading a state.

    Attributes:
        rows: maximum number of rows that must be decoded.
        fits: True: all these rows may be in memory at once.
    """

    rows: int
    fits: bool


def stored_bytes(segments: Iterable[Segment]) -> int:
    """Return the size of the files of these segments."""
    return sum(s.bytes for s in segments if s.file is not None)


def fits_memory(cache: SegmentCache, segments: Sequence[Segment], budget: Budget) -> bool:
    """Return True if the rows of these segments may all be in memory at once."""
    rows = sum(s.rows for s in segments)
    if not budget.fits(rows=rows, bytes=stored_bytes(segments)):
        return False
    inline = sum(s.bytes for s in segments if s.file is None)
    return budget.fits(bytes=inline + sum(_memory_of(cache, s, budget.bytes) for s in segments if s.file))


def estimate(cache: SegmentCache, state: State, budget: Budget) -> Estimate:
    """Estimate the work of reading a state.

    For a large file, only the row groups in the state's range of keys count.
    """
    if not state.within.is_limited:
        segments = state.chain.segments
        return Estimate(sum(s.rows for s in segments), fits_memory(cache, segments, budget))
    rows = size = 0
    for segment in state.chain.segments:
        if is_small(segment):
            rows, size = rows + segment.rows, size + segment.bytes
        elif may_hold(segment, state.within):
            footer = footer_of(cache, segment)
            groups = footer.groups_between(state.schema, state.within)
            rows += sum(int(footer.rows[g]) for g in groups)
            size += _memory_of(cache, segment, budget.bytes - size, groups)
    return Estimate(rows, budget.fits(rows=rows, bytes=size))


def _memory_of(cache: SegmentCache, segment: Segment, most: int, groups: Iterable[int] | None = None) -> int:
    """Return approximately how many bytes the rows of a file, or of some row groups, take in memory.

    Counting stops above ``most``. Only columns whose size the footer does not tell are read, a few rows at a
    time.
    """
    footer = footer_of(cache, segment)
    chosen = list(range(footer.groups) if groups is None else groups)
    total, vague = footer.memory(chosen)
    if vague and total <= most:
        for few in columns_of(cache, segment, sorted(vague), chosen):
            total += few.nbytes
            if total > most:
                break
    return total
