"""What compaction leaves of a chain, and what it makes anew."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import Digest, Segment

__all__ = ["Compacted", "is_good_size"]

GOOD_SIZE = 4
"""A file of at least one part in so many of the target size is large enough to be left alone."""


@dataclass(frozen=True)
class Compacted:
    """New base segments, the segments of the chain that they replace, and the digest of the state that the
    chain has then, computed from what is in the files."""

    new: tuple[Segment, ...]
    old: tuple[Segment, ...]
    digest: Digest


def is_good_size(segment: Segment, target_bytes: int) -> bool:
    """Return whether a file is large enough to be left alone."""
    return segment.bytes * GOOD_SIZE >= target_bytes
