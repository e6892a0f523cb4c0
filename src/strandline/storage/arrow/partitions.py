"""Partitions of a state that any process can read independently, with no catalog and little memory.

A partition names the files of the segments that may hold keys of its range. It contains the rows of segments
that are inline in the catalog. Its reader folds small key ranges one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.model import EVERYWHERE, Chain, Key, KeyRange, Segment, State, may_hold, order
from strandline.storage.arrow.feed import feed
from strandline.storage.arrow.lookup import rows_at
from strandline.storage.arrow.scan import scan
from strandline.storage.feed import Feed
from strandline.storage.files import Files
from strandline.storage.keys import Wanted
from strandline.storage.partition_plan import MOST_RANGES
from strandline.storage.segment import footer_of, is_small
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.shards import MOST, cuts, ranges, segments_in, spread
from strandline.storage.task_reports import Sizes, sizes_of
from strandline.types.arrays import column_to_python

__all__ = ["FeedPartition", "StatePartition", "between", "by_row_group", "partition_feed", "partition_state"]

PARTITION_BYTES = 32 << 20
"""Approximate size of the files in one partition."""
PIECE_BYTES = 8 << 20
"""Approximate size of the files of one key range that is folded in memory at a time."""
LOOKED_INTO = 64
"""Maximum number of files whose footers are read, to cut a state between row groups.

A state with more files is cut only between files.
"""


@dataclass(frozen=True, kw_only=True)
class StatePartition:
    """A partition of a state's rows.

    Attributes:
        state: a key range of a table or an index.
        columns: names of the columns that the partition returns.
        behind: the table of the index, to read the columns that the index does not have. None: the state has
            all columns.
    """

    files: Files
    state: State
    columns: tuple[str, ...]
    behind: State | None = None

    @property
    def sizes(self) -> Sizes:
        """The files that the rows are read from, with their sizes."""
        return [each for s in (self.state, self.behind) if s for each in sizes_of(s.chain.segments)]

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows in blocks, in no particular order."""
        cache = SegmentCache(self.files)
        for within in between(self.state.within, _limits(cache, self.state, PIECE_BYTES)):
            piece = self.state.narrow(within)
            found = scan(cache, piece, self._read) if piece.chain.segments else None
            if found is not None and found.num_rows:
                yield self._whole(cache, found)

    @property
    def _read(self) -> list[str]:
        """The columns to read from ``state``; the others are read from ``behind``."""
        schema = self.state.schema
        if self.behind is None:
            return list(self.columns)
        return list(dict.fromkeys([*self.behind.schema.key, *(n for n in self.columns if n in schema)]))

    def _whole(self, cache: SegmentCache, entries: pa.Table) -> pa.Table:
        if self.behind is None:
            return entries
        table = self.behind.schema
        rest = [name for name in self.columns if name not in entries.column_names]
        keys = [entries.column(name).combine_chunks() for name in table.key]
        wanted = Wanted(table, keys)
        positions, rows = rows_at(cache, self.behind, wanted, rest)
        # Values in the index entry take precedence: an asynchronous index may be older than its table.
        found = entries.take(pa.array(wanted.places[positions]))
        for name in rest:
            found = found.append_column(name, rows.column(name))
        return found.select(list(self.columns))


@dataclass(frozen=True, kw_only=True)
class FeedPartition:
    """A partition of a stream's records: the records with keys in the range ``within``."""

    files: Files
    window: Feed
    within: KeyRange

    @property
    def sizes(self) -> Sizes:
        """The files that the records are read from, with their sizes."""
        return sizes_of(self.window.logs)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the records in blocks. The records of one key are in the order of their steps."""
        cache = SegmentCache(self.files)
        for within in _cut_feed(cache, self.window, self.within, PIECE_BYTES):
            found = feed(cache, self.window, within)
            if found.num_rows:
                yield found


def partition_feed(cache: SegmentCache, window: Feed, *, most: int) -> list[FeedPartition]:
    """Divide a stream's window into partitions of at most about ``most`` bytes."""
    found = []
    for within in _cut_feed(cache, window, EVERYWHERE, min(most, PARTITION_BYTES)):
        logs = tuple(s for s in window.logs if s.rows and may_hold(s, within))
        before = None if window.before is None else window.before.narrow(within)
        if logs:
            part = replace(window, logs=logs, before=before)
            found.append(FeedPartition(files=cache.files, window=part, within=within))
    return found


def _cut_feed(cache: SegmentCache, window: Feed, within: KeyRange, size: int) -> list[KeyRange]:
    state = State(window.schema, Chain(window.logs, window.upto), within)
    return between(within, cuts(window.schema.bounds, by_row_group(cache, state, _full(state)), size))


def partition_state(
    cache: SegmentCache, state: State, columns: Sequence[str], *, most: int, behind: State | None = None
) -> list[StatePartition]:
    """Divide a state into partitions of at most about ``most`` bytes.

    Key ranges that overlap no segment get no partition.

    Args:
        columns: names of the columns that the partitions return.
        behind: see ``StatePartition``.
    """
    size = min(most, PARTITION_BYTES)
    narrowed = state.narrow(state.within)
    # With ``behind``, each partition names all files of the table.
    shards = MOST_RANGES if behind is None else MOST
    few = sum(not is_small(s) for s in narrowed.chain.segments) <= LOOKED_INTO
    limits = (
        _limits(cache, narrowed, size)
        if few
        else cuts(state.schema.bounds, spread(narrowed.chain.segments), size, most=shards)
    )
    withins = between(state.within, limits)
    return [
        StatePartition(
            files=cache.files,
            state=State(state.schema, Chain(tuple(segments), state.chain.step), within),
            columns=tuple(columns),
            behind=behind,
        )
        for within, segments in zip(withins, segments_in(withins, narrowed.chain.segments), strict=True)
        if any(s.rows for s in segments)
    ]


def _limits(cache: SegmentCache, state: State, size: int) -> list[Key]:
    """Return the keys that divide a state into parts of about ``size`` bytes."""
    return cuts(state.schema.bounds, by_row_group(cache, state, spread(_full(state))), size)


def _full(state: State) -> list[Segment]:
    return [segment for segment in state.chain.segments if segment.rows]


def by_row_group(cache: SegmentCache, state: State, segments: Iterable[Segment]) -> Iterator[Segment]:
    """Yield a pseudo-segment for each row group of the large segments, for the choice of cuts.

    Only the first key, the size and the number of rows of a pseudo-segment are right; its other attributes
    are those of the whole segment. Row groups outside the state's range are left out. Small segments are
    yielded as they are.
    """
    first = state.schema.key_columns[0]
    for segment in segments:
        if is_small(segment):
            yield segment
            continue
        footer = footer_of(cache, segment)
        lows = column_to_python(first.type, footer.lows(first))
        for group in footer.groups_between(state.schema, state.within):
            rows = int(footer.rows[group])
            share = segment.bytes * rows // max(segment.rows, 1)
            # A truncated or unknown bound is not the key of a row, but can be compared with keys.
            key = segment.min_key if lows[group] is None else (lows[group],)
            yield replace(segment, min_key=key, bytes=share, rows=rows)


def between(within: KeyRange, limits: Sequence[Key]) -> list[KeyRange]:
    """Divide a range at the keys ``limits``; keys outside the range are ignored."""
    inside = [key for key in limits if _is_inside(key, within)]
    if not inside:
        return [within]
    found = ranges(inside)
    found[0] = replace(found[0], lower=within.lower)
    found[-1] = replace(found[-1], upper=within.upper, closed=within.closed)
    return found


def _is_inside(key: Key, within: KeyRange) -> bool:
    lower, upper = within.lower, within.upper
    return (lower is None or order(key) > order(lower)) and (upper is None or order(key) < order(upper))
