"""Slices of few rows, cut at a table's shard boundaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import OP, STEP, WAS_HI, WAS_LO, Segment, State, TableSchema, order
from strandline.storage.arrow.changes import fold
from strandline.storage.arrow.scan import scan
from strandline.storage.digest import digest_of, row_hashes, unsigned
from strandline.storage.keys import keys_of, sort_indices
from strandline.storage.segment import ERASE, Inline, write_segment
from strandline.storage.shelf import Shelf
from strandline.storage.slices import Slice, Window

__all__ = ["write_slice"]


def write_slice(shelf: Shelf, schema: TableSchema, window: Window, name: str, inline: Inline) -> Slice:
    """Fold the window, and make it durable under the fresh name ``name``. No file is left when it raises."""
    rows = _rows(shelf, schema, window)
    segments: list[Segment] = []
    try:
        for number, part in enumerate(by_shard(schema, rows)):
            fresh = part[WAS_HI].null_count == part.num_rows and not pc.any(pc.equal(part[OP], ERASE)).as_py()
            segments.append(
                write_segment(
                    shelf.files,
                    schema,
                    part,
                    name=f"{name}-{number}.parquet",
                    role="log",
                    fresh=fresh,
                    stepped=True,
                    after=window.after,
                    upto=window.upto,
                    inline=inline,
                )
            )
    except BaseException:
        shelf.discard(segments)
        raise
    written = rows.filter(pc.invert(pc.equal(rows[OP], ERASE)))
    now = digest_of(*row_hashes(schema, {n: written[n] for n in schema.names}))
    was = digest_of(*(unsigned(rows[n].drop_null().to_numpy()) for n in (WAS_HI, WAS_LO)))
    return Slice(tuple(segments), rows.num_rows, rows.num_rows - written.num_rows, now - was)


def _rows(shelf: Shelf, schema: TableSchema, window: Window) -> pa.Table:
    if window.chain is None:
        return fold(shelf, schema, window.logs, after=window.after, upto=window.upto, within=window.within)
    rows = scan(shelf, State(schema, window.chain, window.within), [*schema.names, STEP])
    nothing = pa.nulls(rows.num_rows, pa.int64())
    rows = rows.append_column(OP, pa.array(["U"] * rows.num_rows, pa.string()))
    return rows.append_column(WAS_HI, nothing).append_column(WAS_LO, nothing)


def evenly(schema: TableSchema, rows: pa.Table, pieces: int) -> Iterator[pa.Table]:
    """Yield the rows in so many ranges of keys with about the same number of rows each."""
    if pieces > 1:
        rows = rows.take(sort_indices([rows.column(name) for name in schema.key]))
    ends = [rows.num_rows * i // pieces for i in range(pieces + 1)]
    for first, end in pairwise(ends):
        if first < end:
            yield rows.slice(first, end - first)


def by_shard(schema: TableSchema, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each shard that has any."""
    if not rows.num_rows:
        return
    if not schema.bounds:
        yield rows
        return
    rows = rows.take(sort_indices([rows.column(name) for name in schema.key]))

    def key(row: int) -> Any:
        return order(keys_of(schema, rows.slice(row, 1))[0])

    # A bound may be the beginning of a key, and then it sorts before it.
    firsts = [bisect_left(range(rows.num_rows), order(bound), key=key) for bound in schema.bounds]
    for first, end in pairwise([0, *firsts, rows.num_rows]):
        if first < end:
            yield rows.slice(first, end - first)
