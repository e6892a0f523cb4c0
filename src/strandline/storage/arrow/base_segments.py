"""Write few rows as base segments, in this process."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pyarrow as pa

from strandline.model import TableSchema
from strandline.storage.keys import neighbours, sort_indices
from strandline.storage.rows import Written
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.sorted_segments import FileSink, Form, Sorted, write_in_order

__all__ = ["write_base"]


def write_base(
    cache: SegmentCache, schema: TableSchema, pieces: Iterable[pa.Table], name: str, *, upto: int
) -> Written:
    """Write rows as base segments in files ``name-<n>.parquet``.

    The files are durable when this function returns, and deleted when it raises.

    Args:
        pieces: the rows, with the column STEP. Each table has the rows of one range of keys.
        name: fresh name, the prefix of the files.
        upto: step of the state that the rows belong to.
    """
    form = Form(schema=schema, role="base", stepped=True, after=0, upto=upto, file_bytes=cache.target_bytes)
    number = count()
    sink = FileSink(cache.files, lambda: f"{name}-{next(number)}.parquet")
    made: list[Sorted] = []
    try:
        for piece in pieces:
            made.append(write_in_order(form, [_sort(schema, piece)], sink, cache.files.remove))
    except BaseException:
        cache.discard(segment for each in made for segment in each.segments)
        raise
    whole = Sorted.total(made)
    return Written(whole.segments, whole.now)


def _sort(schema: TableSchema, rows: pa.Table) -> pa.Table:
    by = [rows.column(name) for name in schema.key]
    # Sort only rows that are not in order: checking the order costs a tenth of sorting.
    return rows.take(sort_indices(by)) if neighbours(by)[0].any() else rows
