"""How many bytes of memory the rows of a file would take. A segment knows those of the file, which are
packed: a thousand times the same long text is not much longer there than once."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.model import Segment
from strandline.storage.segment import columns_of, footer_of
from strandline.storage.shelf import Shelf

__all__ = ["memory_of"]


def memory_of(shelf: Shelf, segment: Segment, most: int, groups: Iterable[int] | None = None) -> int:
    """Return about how many bytes the rows of a segment, or of some row groups of it, take; counting ends
    where they are more than ``most``. Only long texts are looked at themselves, a few at a time."""
    footer = footer_of(shelf, segment)
    chosen = list(range(footer.groups) if groups is None else groups)
    total, vague = footer.memory(chosen)
    if vague and total <= most:
        for few in columns_of(shelf, segment, sorted(vague), chosen):
            total += few.nbytes
            if total > most:
                break
    return total
