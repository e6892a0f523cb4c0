"""Read the rows of a segment in a window of steps and a range of keys; fold rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import (
    EVERYWHERE,
    OP,
    STEP,
    KeyRange,
    Segment,
    TableSchema,
    cover,
    may_hold,
    order,
)
from strandline.storage.keys import compare, firsts_and_lasts, match
from strandline.storage.segment import (
    ERASE,
    META,
    footer_of,
    in_window,
    is_small,
    read_pieces,
    read_segment,
    rows_between,
)
from strandline.storage.segment_cache import SegmentCache

__all__ = ["empty", "latest", "rows_in", "without"]


def rows_in(
    cache: SegmentCache,
    schema: TableSchema,
    segment: Segment,
    columns: Sequence[str],
    *,
    after: int,
    upto: int,
    within: KeyRange = EVERYWHERE,
) -> Iterator[pa.Table]:
    """Yield the rows of one segment that are in a window of steps and in a range of keys, in small tables.

    Args:
        after: the rows have later steps than this.
        upto: the rows have steps up to this.
        within: range of the keys.
    """
    if cover(segment, after, upto) == "none" or (within.is_limited and not may_hold(segment, within)):
        return
    inside = _Inside(schema, segment, columns, (after, upto), within)
    if inside.is_searched:
        rows = rows_between(cache, schema, segment, within)
        if rows.start < rows.stop:
            found = read_segment(cache, schema, segment, inside.needed)
            yield inside.of(found.slice(rows.start, rows.stop - rows.start))
        return
    for rows in read_pieces(cache, schema, segment, inside.needed, inside.groups(cache)):
        yield inside.of(rows)


class _Inside:
    """Filter of a segment's rows by a window ``(after, upto]`` and a range of keys."""

    def __init__(
        self,
        schema: TableSchema,
        segment: Segment,
        columns: Sequence[str],
        window: tuple[int, int],
        within: KeyRange,
    ) -> None:
        self._schema, self._segment, self._columns = schema, segment, list(columns)
        self._window, self._within = window, within
        self._partly = cover(segment, *window) == "some"
        if _is_within(segment, within):
            self._within = EVERYWHERE  # The whole segment is in the range: no row needs a comparison.
        self.is_searched = self._within.is_limited and is_small(segment)
        if self.is_searched:
            self._within = EVERYWHERE  # A search in the sorted keys finds the rows in the range.
        more = [*(schema.key if self._within.is_limited else ()), *((STEP,) if self._partly else ())]
        self.needed = list(dict.fromkeys([*columns, *more]))

    def groups(self, cache: SegmentCache) -> list[int] | None:
        """Return the numbers of the row groups that may have matching rows. None: all row groups."""
        if not self._within.is_limited or is_small(self._segment):
            return None
        return footer_of(cache, self._segment).groups_between(self._schema, self._within)

    def of(self, table: pa.Table) -> pa.Table:
        """Return the rows of ``table`` that match."""
        schema, within = self._schema, self._within
        if not within.is_limited and not self._partly:
            return table
        keep = np.full(table.num_rows, True)
        key_columns = [table.column(name) for name in schema.key] if within.is_limited else []
        if within.lower is not None:
            keep &= ~compare(schema, key_columns, within.lower)[0]
        if within.upper is not None:
            before, after_all = compare(schema, key_columns, within.upper)
            keep &= ~after_all if within.closed else before
        if self._partly:
            keep &= in_window(table, *self._window)
        table = table.select(self._columns)
        return table if keep.all() else table.filter(pa.array(keep))


def _is_within(segment: Segment, within: KeyRange) -> bool:
    first, last = segment.min_key or (), segment.max_key or ()
    lower, upper = within.lower, within.upper
    if lower is not None and order(first) < order(lower):
        return False
    if upper is None:
        return True
    return order(last[: len(upper)]) <= order(upper) if within.closed else order(last) < order(upper)


def empty(schema: TableSchema, columns: Sequence[str]) -> pa.Table:
    """Return a table without rows, whose columns have the physical types."""
    return pa.table(
        {name: pa.array([], schema[name].type.arrow if name in schema else META[name]) for name in columns}
    )


def latest(schema: TableSchema, log: pa.Table) -> tuple[list[pa.Array], pa.Table]:
    """Fold changes: return the changed keys, and the resulting rows. An erased key has no row."""
    _, lasts = firsts_and_lasts([log.column(name) for name in schema.key])
    log = log.take(lasts)
    touched = [log.column(name).combine_chunks() for name in schema.key]
    return touched, log.filter(pc.not_equal(log.column(OP), ERASE))


def without(schema: TableSchema, rows: pa.Table, keys: Sequence[pa.Array]) -> pa.Table:
    """Return the rows whose key is not in ``keys``."""
    gone, _ = match([rows.column(name) for name in schema.key], keys)
    if not len(gone):
        return rows
    keep = np.full(rows.num_rows, True)
    keep[gone] = False
    return rows.filter(pa.array(keep))
