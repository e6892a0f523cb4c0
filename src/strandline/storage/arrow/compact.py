"""Compaction: a chain folded into base segments."""

from __future__ import annotations

from strandline.model import STEP, State
from strandline.storage.arrow.base import write_base
from strandline.storage.arrow.merge import Objects
from strandline.storage.arrow.scan import scan
from strandline.storage.arrow.slices import by_shard, evenly
from strandline.storage.compacted import Compacted
from strandline.storage.digest import digest_of, row_hashes
from strandline.storage.rows import Written
from strandline.storage.shelf import Shelf

__all__ = ["compact", "fold"]


def compact(
    shelf: Shelf, state: State, name: str, *, least: int = 1, into: Objects | None = None
) -> Compacted:
    """Fold all of a chain, shard by shard, into ``least`` files at least. Rows keep the step of their last
    change. Files are written as ``name-<n>.parquet``; they are durable when this returns, and gone when it
    raises. ``into``: they become objects of a repository, which stay there."""
    schema, chain = state.schema, state.chain
    rows = scan(shelf, state, [*schema.names, STEP])
    digest = digest_of(*row_hashes(schema, {n: rows[n] for n in schema.names}))
    pieces = by_shard(schema, rows) if schema.bounds else evenly(schema, rows, least)
    made = write_base(shelf, schema, pieces, name, upto=chain.step, into=into)
    return Compacted(made, chain.segments, digest)


def fold(shelf: Shelf, state: State, name: str, into: Objects | None = None) -> Written:
    """Write all rows of a state, which may be a part of a table, as base segments; ``into``: as objects of a
    repository."""
    made = compact(shelf, state, name, into=into)
    return Written(made.new, made.digest)
