"""Find the segments of a long chain that may hold some keys, without checking each segment.

A process keeps a directory of each long chain that it reads. The directory lists the key ranges of the
segments. Small logs that are stored in the catalog are merged in memory, as ``merge_logs`` merges them in the
warehouse. So the cost of a read does not grow with the number of commits that no writer has merged yet. When
segments are added to a chain, only these are added to its directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from strandline.model import PENDING, Chain, Segment, State, TableSchema, may_hold, order
from strandline.storage.arrow.merge_logs import merge_logs
from strandline.storage.segment import Inline
from strandline.storage.segment_cache import SegmentCache

__all__ = ["Directory", "directory_of", "with_few_segments"]

LONG = 24
"""Minimum number of segments of a chain that gets a directory."""
FAN_IN = 16
"""Number of logs of the same level that are merged into one log of the next level."""
MERGED_ROWS = 1 << 15
"""Maximum number of rows of a merged log."""
_ANY = Inline(1 << 62, 1 << 62)


@dataclass(frozen=True)
class _Part:
    """A segment of the directory.

    Attributes:
        segment: a segment of the chain, or one that was merged from several of its logs.
        level: number of times that the logs in this segment were merged. -1: a segment that is never merged,
            because it is stored in a file or is not a log.
        first: first key of the segment, as a sort key of ``order``.
        last: last key of the segment, as a sort key of ``order``.
    """

    segment: Segment
    level: int
    first: tuple[Any, ...]
    last: tuple[Any, ...]

    @classmethod
    def of(cls, segment: Segment, level: int) -> _Part:
        return cls(segment, level, order(segment.min_key or ()), order(segment.max_key or ()))


@dataclass(frozen=True)
class Directory:
    """The directory of a chain.

    Attributes:
        segments: the segments of the chain.
        parts: a smaller number of segments with the same changes in the same order. Small logs are merged.
    """

    segments: tuple[Segment, ...] = ()
    parts: tuple[_Part, ...] = ()

    @property
    def cost(self) -> int:
        """Approximate size in memory, in bytes."""
        merged = sum(len(part.segment.data or b"") for part in self.parts if part.level > 0)
        return merged + 1000 * len(self.parts) + 8 * len(self.segments)

    def segments_between(self, first: tuple[Any, ...], last: tuple[Any, ...]) -> list[Segment]:
        """Return the segments that overlap a key range.

        Args:
            first: first key of the range, as a sort key of ``order``.
            last: last key of the range, as a sort key of ``order``.
        """
        return [p.segment for p in self.parts if p.first <= last and first <= p.last]

    def plus(self, cache: SegmentCache, schema: TableSchema, added: Sequence[Segment]) -> Directory:
        """Return the directory of the same chain with the segments ``added`` at its end."""
        parts = list(self.parts)
        for segment in added:
            if not segment.rows:
                continue
            is_merged = segment.role == "log" and segment.file is None
            parts.append(_Part.of(segment, 0 if is_merged else -1))
            while _is_due(parts):
                merged = merge_logs(cache, schema, [p.segment for p in parts[-FAN_IN:]], "", inline=_ANY)
                parts[-FAN_IN:] = [_Part.of(merged, parts[-1].level + 1)]
        return Directory((*self.segments, *added), tuple(parts))


def _is_due(parts: Sequence[_Part]) -> bool:
    last = parts[-FAN_IN:]
    return (
        len(last) == FAN_IN
        and last[0].level == last[-1].level >= 0
        and all(part.level == last[0].level for part in last)
        and sum(part.segment.rows for part in last) <= MERGED_ROWS
    )


def directory_of(cache: SegmentCache, state: State) -> Directory | None:
    """Return the directory of a state's committed segments, without the pending ones of a transaction.

    Return None if the chain has fewer than ``LONG`` segments, or if the cache has the directory of a later
    state of the table.
    """
    segments = state.chain.segments
    if (count := len(segments)) < LONG:
        return None
    while count and segments[count - 1].upto >= PENDING:
        count -= 1
    segments = segments[:count]
    key = (segments[0].id if segments else 0, tuple(c.physical for c in state.schema.columns))
    known = cache.directories.find(key) or Directory()
    if segments[: len(known.segments)] != known.segments:
        if segments[-1].upto <= known.segments[-1].upto:
            return None
        known = Directory()  # Logs were merged, or the table was compacted.
    added = segments[len(known.segments) :]
    if added:
        known = known.plus(cache, state.schema, added)
        cache.directories.replace(key, known)
    return known


def with_few_segments(cache: SegmentCache, state: State) -> State:
    """Return the same state with fewer segments.

    Segments outside the state's key range are left out. If the chain has a directory, merged logs replace the
    small logs.
    """
    directory = directory_of(cache, state)
    if directory is None:
        return state.narrow(state.within)
    pending = state.chain.segments[len(directory.segments) :]
    found = [part.segment for part in directory.parts]
    if state.within.is_limited:
        found = [s for s in found if may_hold(s, state.within)]
    return replace(state, chain=Chain((*found, *pending), state.chain.step))
