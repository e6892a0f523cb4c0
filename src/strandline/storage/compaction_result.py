"""Result of a compaction, and the rules by which a compaction leaves files unchanged."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import Digest, Segment
from strandline.storage.partition_plan import LEAST_FILE_BYTES

__all__ = ["GOOD_SIZE", "Compacted", "is_good_size", "is_too_large"]

GOOD_SIZE = 4
"""A file between 1/GOOD_SIZE and GOOD_SIZE times the target size is left unchanged."""
DIVISIBLE_ROWS = 4096
"""Maximum number of rows of a file that is never split. Its few row groups cannot be divided further."""


@dataclass(frozen=True)
class Compacted:
    """New base segments and the segments that they replace.

    Attributes:
        new: the new base segments.
        old: the segments that they replace.
        digest: the digest of the state after the compaction, computed from the rows in the files. None: it
            was not computed, because the unchanged files were not read. Instead, the compaction has checked
            that the new rows have the same digest as the rows that they replace.
    """

    new: tuple[Segment, ...]
    old: tuple[Segment, ...]
    digest: Digest | None


def is_good_size(segment: Segment, target_bytes: int) -> bool:
    """Return True if compaction leaves a file unchanged: its size is neither too small nor too large."""
    return segment.bytes * GOOD_SIZE >= target_bytes and not is_too_large(segment, target_bytes)


def is_too_large(segment: Segment, target_bytes: int) -> bool:
    """Return True if compaction splits a file."""
    most = GOOD_SIZE * max(target_bytes, LEAST_FILE_BYTES)
    return segment.bytes > most and segment.rows > DIVISIBLE_ROWS
