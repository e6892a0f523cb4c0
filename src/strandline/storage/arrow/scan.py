"""Read a state, or a range of it, as an Arrow table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strandline.model import BEGINNING, OP, Segment, State, split, visible
from strandline.storage.arrow.row_filter import empty, latest, part, without
from strandline.storage.segment_cache import SegmentCache

__all__ = ["scan"]


def scan(cache: SegmentCache, state: State, columns: Sequence[str] | None = None) -> pa.Table:
    """Return ``columns`` of the rows of a state, in no particular order.

    ``columns`` None: all columns of the schema; STEP may be among them.
    """
    schema, chain = state.schema, state.chain
    names = list(schema.names if columns is None else columns)
    old, middle, new = split(visible(chain))
    with_key = [*names, *(name for name in schema.key if name not in names and middle)]

    def read(segments: Sequence[Segment], asked: Sequence[str]) -> pa.Table:
        parts = [
            part(cache, schema, segment, asked, after=BEGINNING, upto=chain.step, within=state.within)
            for segment in segments
        ]
        return pa.concat_tables([empty(schema, asked), *parts])

    rows = read(old, with_key)
    if middle:
        touched, log = latest(schema, read(middle, [*with_key, OP]))
        rows = pa.concat_tables([without(schema, rows, touched).select(names), log.select(names)])
    return pa.concat_tables([rows, read(new, names)])
