"""A state, or a range of it, as an Arrow table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import BEGINNING, OP, Segment, State, split, visible
from strandline.storage.arrow.parts import empty, part
from strandline.storage.keys import firsts_and_lasts, match
from strandline.storage.segment import ERASE
from strandline.storage.shelf import Shelf

__all__ = ["scan"]


def scan(shelf: Shelf, state: State, columns: Sequence[str] | None = None) -> pa.Table:
    """Return ``columns`` (None: all of the schema; STEP may be among them) of the rows of the state, in no
    particular order."""
    schema, chain = state.schema, state.chain
    names = list(schema.names if columns is None else columns)
    old, middle, new = split(visible(chain))
    with_key = [*names, *(name for name in schema.key if name not in names and middle)]

    def read(segments: Sequence[Segment], asked: Sequence[str]) -> pa.Table:
        parts = [
            part(shelf, schema, segment, asked, after=BEGINNING, upto=chain.step, within=state.within)
            for segment in segments
        ]
        return pa.concat_tables([empty(schema, asked), *parts])

    rows = read(old, with_key)
    if middle:
        log = read(middle, [*with_key, OP])
        _, lasts = firsts_and_lasts([log.column(name) for name in schema.key])
        log = log.take(lasts)
        gone, _ = match(
            [rows.column(n) for n in schema.key], [log.column(n).combine_chunks() for n in schema.key]
        )
        if len(gone):
            keep = np.full(rows.num_rows, True)
            keep[gone] = False
            rows = rows.filter(pa.array(keep))
        log = log.filter(pc.not_equal(log.column(OP), ERASE))
        rows = pa.concat_tables([rows.select(names), log.select(names)])
    return pa.concat_tables([rows, read(new, names)])
