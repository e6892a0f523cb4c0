"""Compaction: fold a chain into base segments."""

from __future__ import annotations

from itertools import count

from strandline.model import STEP, State
from strandline.storage.arrow.base_segments import write_base
from strandline.storage.arrow.merge_logs import ObjectSink
from strandline.storage.arrow.scan import scan
from strandline.storage.arrow.stream import stream
from strandline.storage.compaction_result import Compacted
from strandline.storage.keys import by_shard, evenly
from strandline.storage.rows import Written
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.sorted_segments import FileSink, Form, write_in_order

__all__ = ["compact", "fold"]


def compact(cache: SegmentCache, state: State, name: str, *, least: int = 1) -> Compacted:
    """Fold a whole chain, shard by shard, into base segments of about the target size.

    Rows keep the step of their last change. The files ``name-<n>.parquet`` are durable when this function
    returns, and deleted when it raises.

    Args:
        least: minimum number of files of a table without shards.
    """
    schema, chain = state.schema, state.chain
    rows = scan(cache, state, [*schema.names, STEP])
    pieces = by_shard(schema, rows) if schema.bounds else evenly(schema, rows, least)
    made = write_base(cache, schema, pieces, name, upto=chain.step)
    return Compacted(made.segments, chain.segments, made.delta)


def fold(
    cache: SegmentCache, state: State, name: str, *, most: int, into: ObjectSink | None = None
) -> Written:
    """Write all rows of a state as base segments of about ``most`` bytes each.

    The state may be a key range of a table. Rows of segments that do not overlap are streamed; all other rows
    are held in memory.

    Args:
        most: approximate size of a segment in bytes.
        into: writes the segments as objects of a repository. None: write files of the warehouse.
    """
    form = Form(
        schema=state.schema, role="base", stepped=True, after=0, upto=state.chain.step, file_bytes=most
    )
    rows = stream(cache, state, [*state.schema.names, STEP], ordered=True)
    if into is not None:
        made = write_in_order(form, rows, into, None)
    else:
        number = count()
        sink = FileSink(cache.files, lambda: f"{name}-{next(number)}.parquet")
        made = write_in_order(form, rows, sink, cache.files.remove)
    return Written(made.segments, made.now)
