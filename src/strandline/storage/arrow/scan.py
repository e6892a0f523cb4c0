"""Read a state, or a key range of it, as one Arrow table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strandline.model import State
from strandline.storage.arrow.row_filter import empty
from strandline.storage.arrow.stream import stream
from strandline.storage.segment_cache import SegmentCache

__all__ = ["scan"]


def scan(cache: SegmentCache, state: State, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a state as one table, in no particular order.

    Args:
        columns: names of the columns to read; STEP is possible. None: all columns of the schema.
    """
    names = list(state.schema.names if columns is None else columns)
    return pa.concat_tables([empty(state.schema, names), *stream(cache, state, names)])
