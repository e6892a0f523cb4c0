"""Result of a compaction, and which files it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import Digest, Segment

__all__ = ["Compacted", "is_good_size"]

GOOD_SIZE = 4
"""A file of at least 1/GOOD_SIZE of the target size is left alone."""


@dataclass(frozen=True)
class Compacted:
    """New base segments and the segments that they replace.

    ``digest`` is that of the state afterwards, computed from the rows in the files. None: the replaced rows
    add up to the new ones, and other files were not read.
    """

    new: tuple[Segment, ...]
    old: tuple[Segment, ...]
    digest: Digest | None


def is_good_size(segment: Segment, target_bytes: int) -> bool:
    """Return True if a file is large enough to be left alone by compaction."""
    return segment.bytes * GOOD_SIZE >= target_bytes
