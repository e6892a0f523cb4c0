"""Compaction: fold a chain into base segments."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from strandline.model import STEP, Digest, State
from strandline.storage.arrow.base_segments import write_base, write_in_order
from strandline.storage.arrow.merge_logs import ObjectSink
from strandline.storage.arrow.scan import scan
from strandline.storage.arrow.stream import stream
from strandline.storage.compaction_result import Compacted
from strandline.storage.digest import digest_of, row_digests, row_hashes
from strandline.storage.keys import by_shard, evenly
from strandline.storage.rows import Written
from strandline.storage.segment_cache import SegmentCache

__all__ = ["compact", "fold"]


def compact(cache: SegmentCache, state: State, name: str, *, least: int = 1) -> Compacted:
    """Fold a whole chain, shard by shard, into at least ``least`` files.

    Rows keep the step of their last change. Files are written as ``name-<n>.parquet``; they are durable when
    this returns, and deleted when it raises.
    """
    schema, chain = state.schema, state.chain
    rows = scan(cache, state, [*schema.names, STEP])
    digest = digest_of(*row_hashes(schema, {n: rows[n] for n in schema.names}))
    pieces = by_shard(schema, rows) if schema.bounds else evenly(schema, rows, least)
    return Compacted(write_base(cache, schema, pieces, name, upto=chain.step), chain.segments, digest)


def fold(
    cache: SegmentCache, state: State, name: str, *, most: int, into: ObjectSink | None = None
) -> Written:
    """Write all rows of a state as base segments of about ``most`` bytes each.

    The state may be a part of a table. Rows of segments that do not overlap are streamed, all others are
    held in memory. ``into``: write objects of a repository instead of files of the warehouse.
    """
    schema, total = state.schema, [Digest()]

    def hashed() -> Iterator[pa.Table]:
        for rows in stream(cache, state, [*schema.names, STEP], ordered=True):
            total.extend(row_digests([schema], {n: rows[n] for n in schema.names}))
            yield rows

    made = write_in_order(cache, schema, hashed(), name, upto=state.chain.step, most=most, into=into)
    return Written(made, sum(total, Digest()))
