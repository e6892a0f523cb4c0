"""The rows of some keys, and which keys a log touches."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import BEGINNING, OP, PENDING, Key, Segment, State, TableSchema, cover, visible
from strandline.storage.arrow.find import find
from strandline.storage.arrow.parts import empty, part
from strandline.storage.keys import Ints, Wanted, keys_of, to_mask
from strandline.storage.rows import Row
from strandline.storage.segment import ERASE
from strandline.storage.shelf import Shelf
from strandline.types.arrays import column_to_python

__all__ = ["lookup", "overlaps", "rows_at", "touched"]


def rows_at(
    shelf: Shelf, state: State, wanted: Wanted, columns: Sequence[str] | None = None
) -> tuple[Ints, pa.Table]:
    """Return ``columns`` (None: all) of the rows of wanted keys that are in the state, and the position of
    each among the wanted ones."""
    schema, chain = state.schema, state.chain
    names = list(schema.names if columns is None else columns)
    found = []
    for segment in reversed(visible(chain)):  # The newest that has the key decides.
        hits = find(shelf, schema, segment, wanted, [*names, OP], after=BEGINNING, upto=chain.step)
        if hits is not None:
            wanted.found(hits[0])
            found.append(hits)
    if not found:
        return np.zeros(0, np.int64), empty(schema, names)
    rows = pa.concat_tables([table for _, table in found])
    positions = np.concatenate([positions for positions, _ in found])
    there = to_mask(pc.not_equal(rows.column(OP), ERASE))
    if not there.all():
        rows, positions = rows.filter(pa.array(there)), positions[there]
    return positions, rows.select(names)


def lookup(
    shelf: Shelf, state: State, keys: Collection[Key], columns: Sequence[str] | None = None
) -> dict[Key, Row]:
    """Return the rows of those keys that are in the state, as canonical values of ``columns`` (None: all, in
    the order of the schema)."""
    schema = state.schema
    if not keys or not state.chain.segments:
        return {}
    wanted = Wanted.of(schema, keys)
    positions, rows = rows_at(shelf, state, wanted, columns)
    values = zip(
        *(column_to_python(schema[name].type, rows.column(name)) for name in rows.column_names), strict=True
    )
    return dict(zip((wanted.keys[i] for i in positions.tolist()), values, strict=True))


def touched(shelf: Shelf, schema: TableSchema, segments: Sequence[Segment], after: int) -> set[Key]:
    """Return the keys that logs change at steps greater than ``after``."""
    parts = (
        part(shelf, schema, s, schema.key, after=after, upto=PENDING)
        for s in segments
        if cover(s, after, PENDING) != "none"
    )
    return {key for found in parts for key in keys_of(schema, found)}


def overlaps(
    shelf: Shelf,
    schema: TableSchema,
    segments: Sequence[Segment],
    keys: Collection[Key],
    after: int = BEGINNING,
) -> bool:
    """Return whether a row of one of the keys, at a step greater than ``after``, is in one of the
    segments."""
    if not keys:
        return False
    wanted = Wanted.of(schema, keys)
    return any(
        find(shelf, schema, s, wanted, schema.key[:1], after=after, upto=PENDING) is not None
        for s in segments
    )
