"""Read a state, or a range of it, as one Arrow table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strandline.model import State
from strandline.storage.arrow.row_filter import empty
from strandline.storage.arrow.stream import stream
from strandline.storage.segment_cache import SegmentCache

__all__ = ["scan"]


def scan(cache: SegmentCache, state: State, columns: Sequence[str] | None = None) -> pa.Table:
    """Return ``columns`` of the rows of a state, in no particular order.

    ``columns`` None: all columns of the schema; STEP may be among them.
    """
    names = list(state.schema.names if columns is None else columns)
    return pa.concat_tables([empty(state.schema, names), *stream(cache, state, names)])
