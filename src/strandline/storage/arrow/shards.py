"""Rows cut at a table's shard boundaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from strandline.model import TableSchema, order
from strandline.storage.keys import keys_of, sort_indices

__all__ = ["by_shard"]


def by_shard(schema: TableSchema, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each shard that has any."""
    if not rows.num_rows:
        return
    if not schema.bounds:
        yield rows
        return
    rows = rows.take(sort_indices([rows.column(name) for name in schema.key]))
    keys = [order(key) for key in keys_of(schema, rows)]
    # A bound may be the beginning of a key, and then it sorts before it.
    firsts = [bisect_left(keys, order(bound)) for bound in schema.bounds]
    for first, end in pairwise([0, *firsts, rows.num_rows]):
        if first < end:
            yield rows.slice(first, end - first)
