"""The rows of segments, cut to a window of steps and a range of keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.model import STEP, Key, Segment, State, TableSchema, cover, may_hold
from strandline.storage.keys import compare
from strandline.storage.memory import memory_of
from strandline.storage.segment import META, footer_of, in_window, is_small, read_segment
from strandline.storage.shelf import Shelf

__all__ = ["between", "empty", "part"]


def part(
    shelf: Shelf,
    schema: TableSchema,
    segment: Segment,
    columns: Sequence[str],
    *,
    after: int,
    upto: int,
    lower: Key | None = None,
    upper: Key | None = None,
) -> pa.Table:
    """Return the rows of one segment that are in ``(after, upto]`` and between the bounds."""
    if not may_hold(segment, lower, upper):
        return empty(schema, columns)
    limited = lower is not None or upper is not None
    partly = cover(segment, after, upto) == "some"
    needed = dict.fromkeys([*columns, *(schema.key if limited else ()), *((STEP,) if partly else ())])
    groups = (
        footer_of(shelf, segment).groups_between(schema, lower, upper)
        if limited and not is_small(segment)
        else None
    )
    table = read_segment(shelf, schema, segment, list(needed), groups)
    keep = np.full(table.num_rows, True)
    key_columns = [table.column(name) for name in schema.key] if limited else []
    if lower is not None:
        keep &= ~compare(schema, key_columns, lower)[0]
    if upper is not None:
        keep &= ~compare(schema, key_columns, upper)[1]
    if partly:
        keep &= in_window(table, after, upto)
    table = table.select(list(columns))
    return table if keep.all() else table.filter(pa.array(keep))


def empty(schema: TableSchema, columns: Sequence[str]) -> pa.Table:
    """Return no rows, in the physical types."""
    return pa.table(
        {name: pa.array([], schema[name].type.arrow if name in schema else META[name]) for name in columns}
    )


def between(shelf: Shelf, state: State, lower: Key | None, upper: Key | None, most: int) -> tuple[int, int]:
    """Return how many rows have to be decoded, at most, to find the keys between two bounds, and about how
    many bytes they take; if more than ``most``, then not how many more."""
    rows = size = 0
    for segment in state.chain.segments:
        if is_small(segment):
            rows, size = rows + segment.rows, size + segment.bytes
        elif may_hold(segment, lower, upper):
            footer = footer_of(shelf, segment)
            groups = footer.groups_between(state.schema, lower, upper)
            rows += sum(int(footer.rows[g]) for g in groups)
            size += memory_of(shelf, segment, most - size, groups)
    return rows, size
