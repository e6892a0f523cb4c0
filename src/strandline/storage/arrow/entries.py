"""Build all entries of an index from the rows of its table."""

from __future__ import annotations

import pyarrow as pa

from strandline.model import STEP, State, TableSchema
from strandline.storage.arrow.base_segments import write_base
from strandline.storage.arrow.scan import scan
from strandline.storage.keys import evenly
from strandline.storage.rows import Written
from strandline.storage.segment_cache import SegmentCache

__all__ = ["entries"]


def entries(cache: SegmentCache, state: State, impl: TableSchema, name: str) -> Written:
    """Write the entries of an index for a state of its table as base segments.

    The step of each entry is the step of the state. The index gets as many segments as the table has shards,
    so that it can be divided into as many shards.

    Args:
        impl: schema of the index's implementation table.
        name: fresh name, the prefix of the files.
    """
    rows = scan(cache, state, impl.names)
    stepped = rows.append_column(STEP, pa.array([state.chain.step] * rows.num_rows, pa.int64()))
    pieces = evenly(impl, stepped, len(state.schema.bounds) + 1)
    return write_base(cache, impl, pieces, name, upto=state.chain.step)
