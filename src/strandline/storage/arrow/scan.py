"""A state, or a range of it, as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import BEGINNING, OP, Segment, State, TableSchema, order, split, visible
from strandline.storage.arrow.parts import empty, part
from strandline.storage.arrow.parts import pieces as part_pieces
from strandline.storage.keys import Wanted, compare, firsts_and_lasts, keys_of, match, sort_indices
from strandline.storage.segment import ERASE
from strandline.storage.shelf import Shelf

__all__ = ["in_order", "passing", "pieces", "scan"]


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
        touched, log = _folded(schema, read(middle, [*with_key, OP]))
        rows = pa.concat_tables([_without(schema, rows, touched).select(names), log.select(names)])
    return pa.concat_tables([rows, read(new, names)])


def pieces(shelf: Shelf, state: State, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the same rows, so few at a time that they take little memory; only logs that may change others
    are in memory as a whole."""
    schema, chain, within = state.schema, state.chain, state.within
    old, middle, new = split(visible(chain))
    names, wanted = list(columns), None
    with_key = [*names, *(name for name in schema.key if name not in names and middle)]
    if middle:
        asked, window = [*with_key, OP], {"after": BEGINNING, "upto": chain.step}
        logs = [part(shelf, schema, segment, asked, **window, within=within) for segment in middle]
        touched, log = _folded(schema, pa.concat_tables([empty(schema, asked), *logs]))
        wanted = Wanted(schema, touched)
        yield log.select(names)
    for segment in old:
        for rows in part_pieces(shelf, schema, segment, with_key, upto=chain.step, within=within):
            if wanted is not None and rows.num_rows:
                ends = keys_of(schema, rows.take([0, rows.num_rows - 1]))
                rows = _without(schema, rows, wanted.between(*ends)[1])
            yield rows.select(names)
    for segment in new:
        yield from part_pieces(shelf, schema, segment, names, upto=chain.step, within=within)


def in_order(shelf: Shelf, state: State, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the same rows in the order of their keys, which are among the columns, if those of each segment
    are. What is not ``passing`` is in memory as a whole."""
    schema, chain, within = state.schema, state.chain, state.within
    names, asked = list(columns), [*columns, OP]
    through = passing(state)
    logs = [
        part(shelf, schema, segment, asked, after=BEGINNING, upto=chain.step, within=within)
        for segment in visible(chain)
        if segment not in through
    ]
    touched, log = _folded(schema, pa.concat_tables([empty(schema, asked), *logs]))
    wanted, left = Wanted(schema, touched), _sorted(schema, log.select(names))
    for segment in through:
        for rows in part_pieces(shelf, schema, segment, names, upto=chain.step, within=within):
            if not rows.num_rows:
                continue
            first, last = keys_of(schema, rows.take([0, rows.num_rows - 1]))
            rows = _without(schema, rows, wanted.between(first, last)[1])
            later = compare(schema, [left.column(name) for name in schema.key], last)[1]
            if due := left.num_rows - int(np.count_nonzero(later)):
                rows = _sorted(schema, pa.concat_tables([rows, left.slice(0, due)]))
                left = left.slice(due)
            yield rows
    yield left


def passing(state: State) -> list[Segment]:
    """Return segments whose rows can pass in the order of their keys, one segment after the other, while all
    that may change them is in memory: the first ones of the chain, as far as their ranges of keys do not
    meet."""
    found: list[Segment] = []
    for segment in sorted(split(visible(state.chain))[0], key=lambda s: order(s.min_key or ())):
        if not found or order(found[-1].max_key or ()) < order(segment.min_key or ()):
            found.append(segment)
    return found


def _sorted(schema: TableSchema, rows: pa.Table) -> pa.Table:
    return rows.take(sort_indices([rows.column(name) for name in schema.key]))


def _folded(schema: TableSchema, log: pa.Table) -> tuple[list[pa.Array], pa.Table]:
    """The keys that changes touch, and what becomes of those that are not erased."""
    _, lasts = firsts_and_lasts([log.column(name) for name in schema.key])
    log = log.take(lasts)
    touched = [log.column(name).combine_chunks() for name in schema.key]
    return touched, log.filter(pc.not_equal(log.column(OP), ERASE))


def _without(schema: TableSchema, rows: pa.Table, keys: Sequence[pa.Array]) -> pa.Table:
    """The rows that do not have one of the keys."""
    gone, _ = match([rows.column(name) for name in schema.key], keys)
    if not len(gone):
        return rows
    keep = np.full(rows.num_rows, True)
    keep[gone] = False
    return rows.filter(pa.array(keep))
