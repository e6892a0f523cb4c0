"""Result of a compaction, and which files it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import Digest, Segment
from strandline.storage.partition_plan import LEAST_FILE_BYTES

__all__ = ["GOOD_SIZE", "Compacted", "is_good_size", "is_too_large"]

GOOD_SIZE = 4
"""A file between 1/GOOD_SIZE and GOOD_SIZE times the target size is left alone."""
DIVISIBLE_ROWS = 4096
"""A file with fewer rows is not too large: they are few row groups, which are not divided."""


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
    """Return True if compaction leaves a file alone: it need be neither joined with others nor split."""
    return segment.bytes * GOOD_SIZE >= target_bytes and not is_too_large(segment, target_bytes)


def is_too_large(segment: Segment, target_bytes: int) -> bool:
    """Return True if compaction splits a file."""
    most = GOOD_SIZE * max(target_bytes, LEAST_FILE_BYTES)
    return segment.bytes > most and segment.rows > DIVISIBLE_ROWS
