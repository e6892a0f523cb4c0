"""The rows of segments, cut to a window of steps and a range of keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.model import EVERYWHERE, STEP, KeyRange, Segment, State, TableSchema, cover, may_hold
from strandline.storage.keys import compare
from strandline.storage.memory import memory_of
from strandline.storage.segment import META, footer_of, in_window, is_small, read_segment
from strandline.storage.shelf import Shelf

__all__ = ["empty", "needed", "part"]


def part(
    shelf: Shelf,
    schema: TableSchema,
    segment: Segment,
    columns: Sequence[str],
    *,
    after: int,
    upto: int,
    within: KeyRange = EVERYWHERE,
) -> pa.Table:
    """Return the rows of one segment that are in ``(after, upto]`` and whose keys are ``within`` a range."""
    limited = within.is_limited
    if limited and not may_hold(segment, within):
        return empty(schema, columns)
    partly = cover(segment, after, upto) == "some"
    needed = dict.fromkeys([*columns, *(schema.key if limited else ()), *((STEP,) if partly else ())])
    groups = (
        footer_of(shelf, segment).groups_between(schema, within)
        if limited and not is_small(segment)
        else None
    )
    table = read_segment(shelf, schema, segment, list(needed), groups)
    keep = np.full(table.num_rows, True)
    key_columns = [table.column(name) for name in schema.key] if limited else []
    if within.lower is not None:
        keep &= ~compare(schema, key_columns, within.lower)[0]
    if within.upper is not None:
        before, after_all = compare(schema, key_columns, within.upper)
        keep &= ~after_all if within.closed else before
    if partly:
        keep &= in_window(table, after, upto)
    table = table.select(list(columns))
    return table if keep.all() else table.filter(pa.array(keep))


def empty(schema: TableSchema, columns: Sequence[str]) -> pa.Table:
    """Return no rows, in the physical types."""
    return pa.table(
        {name: pa.array([], schema[name].type.arrow if name in schema else META[name]) for name in columns}
    )


def needed(shelf: Shelf, state: State, most: int) -> tuple[int, int]:
    """Return how many rows have to be decoded, at most, to find those of the state, and about how many bytes
    they take; if more than ``most``, then not how many more."""
    rows = size = 0
    for segment in state.chain.segments:
        if is_small(segment):
            rows, size = rows + segment.rows, size + segment.bytes
        elif may_hold(segment, state.within):
            footer = footer_of(shelf, segment)
            groups = footer.groups_between(state.schema, state.within)
            rows += sum(int(footer.rows[g]) for g in groups)
            size += memory_of(shelf, segment, most - size, groups)
    return rows, size
