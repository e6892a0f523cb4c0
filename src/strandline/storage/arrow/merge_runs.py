"""Merge sorted runs of staged rows in the order of their keys, with bounded memory.

1. A run is a list of files with ascending keys. For each run that may hold the next keys, one or more row
   groups are in memory.
2. Each run has a last key in memory. All rows with keys below the smallest of these last keys are in memory:
   they are yielded next.
3. If the row groups of all overlapping runs do not fit into memory, groups of neighbouring runs are first
   merged into longer runs. Each such round reads and writes all rows once more.

Rows with the same key are yielded in the order of their runs.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

from strandline.model import Key, Segment, TableSchema, order
from strandline.storage.keys import compare, keys_of
from strandline.storage.segment import ROW_GROUP_ROWS, footer_of, read_segment, write_segment
from strandline.storage.segment_cache import SegmentCache

__all__ = ["MergeRun", "merge_runs", "pieces_of"]

BUFFER_BYTES = 128 << 20
"""Approximate total size in memory of the row groups of all runs that are merged at the same time."""
GROUP_BYTES = 4 << 20
"""Size in memory at which no further row groups of a run are read ahead.

A row group of wide rows is smaller, so several row groups of such a run are in memory.
"""
PIECE_BYTES = 128 << 20
"""Size in memory at which ``pieces_of`` yields the rows that it has collected."""
LEAST = 8
"""Minimum number of runs that are merged at the same time, even if they exceed ``BUFFER_BYTES``."""

MergeRun = Sequence[Segment]
"""Files with ascending keys. Each key is in only one of the files."""
Fold = Callable[[pa.Table], pa.Table]


class _Cursor:
    """The position in a run, and the rows of the run that were read but not yielded yet."""

    def __init__(self, cache: SegmentCache, schema: TableSchema, number: int, run: MergeRun) -> None:
        self.number = number
        self.first: Key = ()
        self._last: Key = ()
        self._cache, self._schema = cache, schema
        self._rows: pa.Table | None = None
        self._coming = (
            (segment, group) for segment in run for group in range(footer_of(cache, segment).groups)
        )
        self._next = next(self._coming, None)
        self.fill()

    @property
    def last(self) -> Key | None:
        """The last key in memory. None: all remaining rows of the run are in memory."""
        return None if self._next is None else self._last

    @property
    def is_done(self) -> bool:
        return self._next is None and self._rows is None

    def fill(self, limit: Key | None = None) -> None:
        """Read row groups until ``ROW_GROUP_ROWS`` rows or ``GROUP_BYTES`` bytes are in memory.

        Args:
            limit: a key. If it is the last key in memory, more row groups are read, until a later key is in
                memory. None: there is no such key.
        """
        while self._next is not None and (self._needs_more() or self._last == limit):
            segment, group = self._next
            names = self._schema.names
            rows = read_segment(self._cache, self._schema, segment, names, [group], threads=False)
            self._next = next(self._coming, None)
            if rows.num_rows:
                (self._last,) = keys_of(self._schema, rows.slice(rows.num_rows - 1))
                self._keep(rows if self._rows is None else pa.concat_tables([self._rows, rows]))

    def _needs_more(self) -> bool:
        rows = self._rows
        return rows is None or (rows.num_rows < ROW_GROUP_ROWS and rows.nbytes < GROUP_BYTES)

    def _keep(self, rows: pa.Table) -> None:
        self._rows = rows if rows.num_rows else None
        if rows.num_rows:
            (self.first,) = keys_of(self._schema, rows.slice(0, 1))

    def take(self, limit: Key | None) -> pa.Table | None:
        """Remove and return the rows in memory with keys below the limit; None if there are none.

        Args:
            limit: a key. None: take all rows in memory.
        """
        rows = self._rows
        if rows is None or limit is None:
            self._rows = None
            return rows
        if order(self.first) >= order(limit):
            return None
        columns = [rows.column(name) for name in self._schema.key]
        count = int(compare(self._schema, columns, limit)[0].sum())
        self._keep(rows.slice(count))
        return rows.slice(0, count)


def merge_runs(cache: SegmentCache, schema: TableSchema, runs: Sequence[MergeRun]) -> Iterator[pa.Table]:
    """Yield all rows in tables. The keys of each table are greater than those of the tables before it."""
    numbered = [(number, run) for number, run in enumerate(runs) if run]
    waiting = sorted(numbered, key=lambda each: order(_begin(each[1])), reverse=True)
    active: list[_Cursor] = []
    while waiting or active:
        limit = min((c.last for c in active if c.last is not None), key=order, default=None)
        if waiting and (limit is None or order(_begin(waiting[-1][1])) < order(limit)):
            limit = _begin(waiting[-1][1])
            if not any(order(cursor.first) < order(limit) for cursor in active):
                active.append(_Cursor(cache, schema, *waiting.pop()))
                continue
        taken = [(cursor.number, cursor.take(limit)) for cursor in active]
        found = [rows for _, rows in sorted(taken, key=lambda each: each[0]) if rows is not None]
        for cursor in active:
            cursor.fill(limit)
        active = [cursor for cursor in active if not cursor.is_done]
        if found:
            yield pa.concat_tables(found)


def _begin(run: MergeRun) -> Key:
    return run[0].min_key or ()


def pieces_of(
    cache: SegmentCache, schema: TableSchema, runs: Sequence[MergeRun], *, most: int, memory: int, fold: Fold
) -> Iterator[pa.Table]:
    """Yield all rows in tables of about ``most`` rows. Each key is in only one table.

    Args:
        memory: size that all rows together would have in memory, in bytes.
        fold: removes rows that a later row with the same key replaces. Used only if there are so many runs
            that groups of them are merged first.
    """
    rows = max(1, sum(segment.rows for run in runs for segment in run))
    at_once = max(LEAST, BUFFER_BYTES * rows // max(1, memory) // ROW_GROUP_ROWS)
    while _depth(runs) > at_once:
        runs = [
            _merge(cache, schema, runs[n : n + at_once], most, fold) for n in range(0, len(runs), at_once)
        ]
    yield from _join(merge_runs(cache, schema, runs), most)


def _depth(runs: Sequence[MergeRun]) -> int:
    """Return the maximum number of runs whose key ranges overlap."""
    ends = [(order(_begin(run)), 0, 1) for run in runs if run]
    ends += [(order(run[-1].max_key or ()), 1, -1) for run in runs if run]
    return max(accumulate(change for _, _, change in sorted(ends)), default=0)


def _merge(
    cache: SegmentCache, schema: TableSchema, runs: Sequence[MergeRun], most: int, fold: Fold
) -> MergeRun:
    """Merge neighbouring runs into one run. The new files are in the folder of the old ones."""
    if len(runs) == 1:
        return runs[0]
    made = []
    for rows in _join(merge_runs(cache, schema, runs), most):
        name = f"{os.path.dirname(runs[0][0].file or '')}/{uuid.uuid4().hex}.parquet"
        made.append(
            write_segment(cache.files, schema, fold(rows), name=name, role="base", fresh=False, stepped=False)
        )
    return made  # Keep the old files: a retried commit reads them again.


def _join(tables: Iterator[pa.Table], most: int) -> Iterator[pa.Table]:
    """Concatenate tables until they have about ``most`` rows or ``PIECE_BYTES`` bytes."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(t.num_rows for t in waiting) >= most or sum(t.nbytes for t in waiting) >= PIECE_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
