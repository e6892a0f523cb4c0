"""Stream the rows of a state. Only segments that may change older rows are held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from strandline.model import BEGINNING, OP, Segment, State, TableSchema, order, split, visible
from strandline.storage.arrow.row_filter import empty, latest, part, without
from strandline.storage.arrow.row_filter import pieces as part_pieces
from strandline.storage.keys import Wanted, compare, keys_of, sort_indices
from strandline.storage.segment_cache import SegmentCache

__all__ = ["in_order", "passing", "pieces"]


def pieces(cache: SegmentCache, state: State, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of a state in small tables. Only logs that may change older rows are held in memory."""
    schema, chain, within = state.schema, state.chain, state.within
    old, middle, new = split(visible(chain))
    names, wanted = list(columns), None
    with_key = [*names, *(name for name in schema.key if name not in names and middle)]
    if middle:
        asked, window = [*with_key, OP], {"after": BEGINNING, "upto": chain.step}
        logs = [part(cache, schema, segment, asked, **window, within=within) for segment in middle]
        touched, log = latest(schema, pa.concat_tables([empty(schema, asked), *logs]))
        wanted = Wanted(schema, touched)
        yield log.select(names)
    for segment in old:
        for rows in part_pieces(cache, schema, segment, with_key, upto=chain.step, within=within):
            if wanted is not None and rows.num_rows:
                ends = keys_of(schema, rows.take([0, rows.num_rows - 1]))
                rows = without(schema, rows, wanted.between(*ends)[1])
            yield rows.select(names)
    for segment in new:
        yield from part_pieces(cache, schema, segment, names, upto=chain.step, within=within)


def in_order(cache: SegmentCache, state: State, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of a state in key order, in small tables; ``columns`` must include the key.

    Assumes that each segment is sorted. Segments that are not ``passing`` are held in memory.
    """
    schema, chain, within = state.schema, state.chain, state.within
    names, asked = list(columns), [*columns, OP]
    through = passing(state)
    logs = [
        part(cache, schema, segment, asked, after=BEGINNING, upto=chain.step, within=within)
        for segment in visible(chain)
        if segment not in through
    ]
    touched, log = latest(schema, pa.concat_tables([empty(schema, asked), *logs]))
    wanted, left = Wanted(schema, touched), _sort(schema, log.select(names))
    for segment in through:
        for rows in part_pieces(cache, schema, segment, names, upto=chain.step, within=within):
            if not rows.num_rows:
                continue
            first, last = keys_of(schema, rows.take([0, rows.num_rows - 1]))
            rows = without(schema, rows, wanted.between(first, last)[1])
            later = compare(schema, [left.column(name) for name in schema.key], last)[1]
            if due := left.num_rows - int(np.count_nonzero(later)):
                rows = _sort(schema, pa.concat_tables([rows, left.slice(0, due)]))
                left = left.slice(due)
            yield rows
    yield left


def passing(state: State) -> list[Segment]:
    """Return the base segments that can be streamed one after the other in key order.

    They are the chain's oldest segments, as far as their key ranges do not overlap. All others must be in
    memory.
    """
    found: list[Segment] = []
    for segment in sorted(split(visible(state.chain))[0], key=lambda s: order(s.min_key or ())):
        if not found or order(found[-1].max_key or ()) < order(segment.min_key or ()):
            found.append(segment)
    return found


def _sort(schema: TableSchema, rows: pa.Table) -> pa.Table:
    return rows.take(sort_indices([rows.column(name) for name in schema.key]))
