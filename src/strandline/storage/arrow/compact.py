"""Compaction: a chain folded into base segments."""

from __future__ import annotations

from strandline.model import STEP, Segment, State
from strandline.storage.arrow.scan import scan
from strandline.storage.arrow.slices import by_shard
from strandline.storage.compacted import Compacted
from strandline.storage.digest import digest_of, row_hashes
from strandline.storage.segment import write_segment
from strandline.storage.shelf import Shelf

__all__ = ["compact"]


def compact(shelf: Shelf, state: State, name: str) -> Compacted:
    """Fold all of a chain, shard by shard. Rows keep the step of their last change. Files are written as
    ``name-<n>.parquet``; they are durable when this returns, and gone when it raises."""
    schema, chain = state.schema, state.chain
    rows = scan(shelf, state, [*schema.names, STEP])
    digest = digest_of(*row_hashes(schema, {n: rows[n] for n in schema.names}))
    new: list[Segment] = []
    try:
        for number, part in enumerate(by_shard(schema, rows)):
            new.append(
                write_segment(
                    shelf.files,
                    schema,
                    part,
                    name=f"{name}-{number}.parquet",
                    role="base",
                    fresh=True,
                    stepped=True,
                    upto=chain.step,
                )
            )
    except BaseException:
        shelf.discard(new)
        raise
    return Compacted(tuple(new), chain.segments, digest)
