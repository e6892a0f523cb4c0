"""Stream the rows of a state or of a key range. All reads of whole states in this process use this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from strandline.model import BEGINNING, OP, Key, Segment, State, TableSchema, order, split, visible
from strandline.storage.arrow.row_filter import empty, latest, rows_in, without
from strandline.storage.keys import Wanted, compare, keys_of, sort_indices
from strandline.storage.segment_cache import SegmentCache

__all__ = ["changed_keys", "held_in_memory", "stream"]

BLOCK_ROWS = 1 << 16
"""Maximum number of rows of a block that is concatenated from small tables.

Overwritten keys are removed from a whole block at once.
"""


def stream(
    cache: SegmentCache, state: State, columns: Sequence[str] | None = None, *, ordered: bool = False
) -> Iterator[pa.Table]:
    """Yield ``columns`` of the rows of a state in small tables.

    Args:
        columns: names of the columns to read; STEP is possible. None: all columns of the schema.
        ordered: yield the rows in the order of their keys. ``columns`` must then include the key.
    """
    schema, upto, within = state.schema, state.chain.step, state.within
    names = list(schema.names if columns is None else columns)
    streamed, held, new = _divide(state, ordered=ordered)
    left, touched, asked = empty(schema, names), None, names

    def rows_of(segments: Iterable[Segment], names: Sequence[str]) -> Iterator[pa.Table]:
        for segment in segments:
            yield from rows_in(cache, schema, segment, names, after=BEGINNING, upto=upto, within=within)

    if held:
        asked = [*names, *(name for name in schema.key if name not in names)]
        found = [empty(schema, [*asked, OP]), *rows_of(held, [*asked, OP])]
        touched, log = latest(schema, pa.concat_tables(found))
        left = log.select(names)
        if ordered:
            left = _sort(schema, left)
        else:
            yield left
    wanted: Wanted | None = None
    for rows, is_sorted in _blocks(rows_of(streamed, asked), ordered):
        last: Key | None = None
        if touched is not None:
            wanted = wanted or Wanted(schema, touched)
            first, last = keys_of(schema, rows.take([0, rows.num_rows - 1]))
            rows = without(schema, rows, wanted.between(first, last)[1] if is_sorted else touched)
        rows = rows.select(names)
        if ordered and last is not None and left.num_rows:
            later = compare(schema, [left.column(name) for name in schema.key], last)[1]
            if due := left.num_rows - int(np.count_nonzero(later)):
                rows, left = _sort(schema, pa.concat_tables([rows, left.slice(0, due)])), left.slice(due)
        yield rows
    if ordered:
        yield left
    yield from rows_of(new, names)


def held_in_memory(state: State, *, ordered: bool = False) -> Sequence[Segment]:
    """Return the segments whose rows ``stream`` holds in memory all at once."""
    return _divide(state, ordered=ordered)[1]


def changed_keys(cache: SegmentCache, state: State) -> pa.Table | None:
    """Return the keys whose rows in old segments are superseded: columns ``c0``, ``c1`` and so on.

    Returns None if no key of an old segment is changed later.
    """
    schema = state.schema
    old, held, _ = _divide(state, ordered=False)
    if not old or not held:
        return None
    names = [*schema.key, OP]
    upto, within = state.chain.step, state.within
    found = (
        rows
        for segment in held
        for rows in rows_in(cache, schema, segment, names, after=BEGINNING, upto=upto, within=within)
    )
    keys, _ = latest(schema, pa.concat_tables([empty(schema, names), *found]))
    return pa.table(keys, [f"c{i}" for i in range(len(keys))])


def _divide(state: State, *, ordered: bool) -> tuple[Sequence[Segment], Sequence[Segment], Sequence[Segment]]:
    """Divide the segments of a state by how ``stream`` reads them.

    Return three lists:

    1. Old segments to stream, without the rows whose keys are in the second list.
    2. Segments whose rows are held in memory and folded.
    3. New segments to stream unchanged; empty if ``ordered``.

    If ``ordered``, the first list has only old segments whose key ranges do not overlap.
    """
    segments = visible(state.chain)
    old, middle, new = split(segments)
    if not ordered:
        return old, middle, new
    streamed: list[Segment] = []
    for segment in sorted(old, key=lambda s: order(s.min_key or ())):
        if not streamed or order(streamed[-1].max_key or ()) < order(segment.min_key or ()):
            streamed.append(segment)
    chosen = set(map(id, streamed))
    return streamed, [s for s in segments if id(s) not in chosen], ()


def _blocks(tables: Iterable[pa.Table], ordered: bool) -> Iterator[tuple[pa.Table, bool]]:
    """Concatenate small tables up to ``BLOCK_ROWS``; yield each with a flag: True if it is sorted by key."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        if waiting and size + table.num_rows > BLOCK_ROWS:
            yield pa.concat_tables(waiting), ordered or len(waiting) == 1
            waiting, size = [], 0
        if table.num_rows:
            waiting.append(table)
            size += table.num_rows
    if waiting:
        yield pa.concat_tables(waiting), ordered or len(waiting) == 1


def _sort(schema: TableSchema, rows: pa.Table) -> pa.Table:
    return rows.take(sort_indices([rows.column(name) for name in schema.key]))
