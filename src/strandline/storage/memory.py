"""Estimate how much memory the rows of a file take.

The size of the file is no measure: a long text that is repeated a thousand times is stored about once.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.model import Segment
from strandline.storage.segment import columns_of, footer_of
from strandline.storage.segment_cache import SegmentCache

__all__ = ["memory_of"]


def memory_of(cache: SegmentCache, segment: Segment, most: int, groups: Iterable[int] | None = None) -> int:
    """Return approximately how many bytes the rows of a segment, or of some row groups, take in memory.

    Counting stops above ``most``. Only columns whose footer does not tell enough are read, a few row groups
    at a time.
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
