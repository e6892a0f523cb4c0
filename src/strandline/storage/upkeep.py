"""When the logs of a table are worth merging or compacting."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.model import Chain, Segment
from strandline.settings import Settings
from strandline.storage.compacted import is_good_size

__all__ = ["MEDIUM_ROWS", "MEDIUM_SEGMENTS", "trailing_logs", "wants_compaction"]

MEDIUM_ROWS = 200_000
"""Merged logs up to this size are merged again, MEDIUM_SEGMENTS at a time; larger ones wait for
compaction."""
MEDIUM_SEGMENTS = 16


def trailing_logs(segments: Sequence[Segment], rows: int, most: int, after: int = 0) -> list[Segment]:
    """Return the trailing logs that have at most so many rows each and at most so many bytes together, all of
    steps later than ``after``: they are merged in the process, and longer ones wait for compaction."""
    found: list[Segment] = []
    for segment in reversed(segments):
        most -= segment.bytes
        if segment.role != "log" or segment.rows > rows or segment.after < after or most < 0:
            break
        found.append(segment)
    return found[::-1]


def wants_compaction(chain: Chain, settings: Settings) -> bool:
    """Return whether too many rows have to be folded, or too many segments looked at. Large logs of new keys
    read like a base."""
    fresh = sum(s.rows for s in chain.segments if s.fresh)
    changes = sum(s.rows for s in chain.segments if not s.fresh)
    crumbs = [
        s
        for s in chain.segments
        if s.role == "log" and not (s.fresh and is_good_size(s, settings.target_file_bytes))
    ]
    return len(crumbs) > settings.compact_log_segments or changes > max(
        fresh * settings.compact_log_rows, settings.inline_rows
    )
