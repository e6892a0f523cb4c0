"""Reading chains in the process: a few rows by key, a range, or all of it; and what logs say happened.

The order of a chain is the order of time. ``split`` says how a state is put together: the state = (rows
before the first overwriting log, minus the keys that it and the following logs up to the last overwriting one
touch) + the last change of each of those keys, unless it is an erase + the rows of the logs after that, whose
keys are all new.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import OP, PENDING, STEP, WAS_HI, WAS_LO, Chain, Key, Segment, TableSchema, order
from strandline.storage.files import Files
from strandline.storage.find import cover, find, in_window
from strandline.storage.keys import (
    Ints,
    Wanted,
    compare,
    firsts_and_lasts,
    keys_of,
    match,
    sort_indices,
    to_mask,
)
from strandline.storage.segment import ERASE, META, footer_of, is_small, read_segment
from strandline.types.arrays import column_to_python

__all__ = [
    "BEGINNING",
    "changes",
    "fold_logs",
    "lookup",
    "may_hold",
    "overlaps",
    "rows_at",
    "scan",
    "split",
    "touched",
    "visible",
]

BEGINNING = -1
"""Before every step."""


def visible(chain: Chain) -> list[Segment]:
    """The segments that have a part in the state, oldest first."""
    return [s for s in chain.segments if s.rows and cover(s, BEGINNING, chain.step) != "none"]


def split(segments: Sequence[Segment]) -> tuple[Sequence[Segment], Sequence[Segment], Sequence[Segment]]:
    """Before, from the first to the last, and after the logs that may change a key that was there."""
    rough = [i for i, s in enumerate(segments) if not s.fresh]
    first, last = (rough[0], rough[-1] + 1) if rough else (len(segments), len(segments))
    return segments[:first], segments[first:last], segments[last:]


def rows_at(
    files: Files, schema: TableSchema, chain: Chain, wanted: Wanted, columns: Sequence[str] | None = None
) -> tuple[Ints, pa.Table]:
    """``columns`` (None: all) of the rows of wanted keys that are in the state, and the position of each
    among the wanted ones."""
    names = list(schema.names if columns is None else columns)
    found = []
    for segment in reversed(visible(chain)):  # The newest that has the key decides.
        hits = find(files, schema, segment, wanted, [*names, OP], BEGINNING, chain.step)
        if hits is not None:
            wanted.found(hits[0])
            found.append(hits)
    if not found:
        return np.zeros(0, np.int64), _empty(schema, names)
    rows = pa.concat_tables([table for _, table in found])
    positions = np.concatenate([positions for positions, _ in found])
    there = to_mask(pc.not_equal(rows.column(OP), ERASE))
    if not there.all():
        rows, positions = rows.filter(pa.array(there)), positions[there]
    return positions, rows.select(names)


def lookup(
    files: Files,
    schema: TableSchema,
    chain: Chain,
    keys: Collection[Key],
    columns: Sequence[str] | None = None,
) -> dict[Key, tuple[object, ...]]:
    """The rows of those keys that are in the state, as canonical values of ``columns`` (None: all, in the
    order of the schema)."""
    if not keys:
        return {}
    wanted = Wanted.of(schema, keys)
    positions, rows = rows_at(files, schema, chain, wanted, columns)
    values = zip(
        *(column_to_python(schema[name].type, rows.column(name)) for name in rows.column_names), strict=True
    )
    return dict(zip((wanted.keys[i] for i in positions.tolist()), values, strict=True))


def scan(
    files: Files,
    schema: TableSchema,
    chain: Chain,
    columns: Sequence[str] | None = None,
    lower: Key | None = None,
    upper: Key | None = None,
) -> pa.Table:
    """The rows of the state whose key begins with something from ``lower`` to ``upper`` (prefixes of keys,
    both included; None: no limit), in no particular order."""
    names = list(schema.names if columns is None else columns)
    old, middle, new = split(visible(chain))
    with_key = [*names, *(name for name in schema.key if name not in names and middle)]

    def read(segments: Sequence[Segment], asked: Sequence[str]) -> pa.Table:
        parts = [
            _part(files, schema, segment, asked, BEGINNING, chain.step, lower, upper) for segment in segments
        ]
        return pa.concat_tables([_empty(schema, asked), *parts])

    state = read(old, with_key)
    if middle:
        log = read(middle, [*with_key, OP])
        _, lasts = firsts_and_lasts([log.column(name) for name in schema.key])
        log = log.take(lasts)
        gone, _ = match(
            [state.column(n) for n in schema.key], [log.column(n).combine_chunks() for n in schema.key]
        )
        if len(gone):
            keep = np.full(state.num_rows, True)
            keep[gone] = False
            state = state.filter(pa.array(keep))
        log = log.filter(pc.not_equal(log.column(OP), ERASE))
        state = pa.concat_tables([state.select(names), log.select(names)])
    return pa.concat_tables([state, read(new, names)])


def fold_logs(
    files: Files,
    schema: TableSchema,
    segments: Sequence[Segment],
    step: int,
    *,
    after: int = BEGINNING,
) -> pa.Table:
    """The last change in ``(after, step]`` of each key, with its STEP, and with the hash of the row that was
    there before the first of them. ``segments`` are logs, oldest first."""
    log = _log(files, schema, segments, after, step)
    firsts, lasts = firsts_and_lasts([log.column(name) for name in schema.key])
    folded = log.take(lasts)
    for name in (WAS_HI, WAS_LO):
        folded = folded.set_column(folded.column_names.index(name), name, log.column(name).take(firsts))
    return folded


def changes(
    files: Files, schema: TableSchema, segments: Sequence[Segment], after: int, upto: int
) -> pa.Table:
    """All changes in ``(after, upto]`` in the order of step, then key. ``segments`` are logs."""
    log = _log(files, schema, segments, after, upto)
    return log.take(sort_indices([log.column(name) for name in (STEP, *schema.key)]))


def touched(files: Files, schema: TableSchema, segments: Sequence[Segment], after: int) -> set[Key]:
    """The keys that logs change at steps greater than ``after``."""
    parts = (
        _part(files, schema, s, schema.key, after, PENDING)
        for s in segments
        if cover(s, after, PENDING) != "none"
    )
    return {key for part in parts for key in keys_of(schema, part)}


def overlaps(
    files: Files,
    schema: TableSchema,
    segments: Sequence[Segment],
    keys: Collection[Key],
    after: int = BEGINNING,
) -> bool:
    """Whether a row of one of the keys, at a step greater than ``after``, is in one of the segments."""
    if not keys:
        return False
    wanted = Wanted.of(schema, keys)
    return any(find(files, schema, s, wanted, schema.key[:1], after, PENDING) is not None for s in segments)


def _log(files: Files, schema: TableSchema, segments: Sequence[Segment], after: int, upto: int) -> pa.Table:
    columns = [*schema.names, OP, WAS_HI, WAS_LO, STEP]
    parts = [
        _part(files, schema, s, columns, after, upto) for s in segments if cover(s, after, upto) != "none"
    ]
    return pa.concat_tables([_empty(schema, columns), *parts])


def _part(
    files: Files,
    schema: TableSchema,
    segment: Segment,
    columns: Sequence[str],
    after: int,
    upto: int,
    lower: Key | None = None,
    upper: Key | None = None,
) -> pa.Table:
    """The rows of one segment that are in ``(after, upto]`` and between the bounds."""
    if not may_hold(segment, lower, upper):
        return _empty(schema, columns)
    limited = lower is not None or upper is not None
    partly = cover(segment, after, upto) == "some"
    needed = dict.fromkeys([*columns, *(schema.key if limited else ()), *((STEP,) if partly else ())])
    groups = (
        footer_of(files, segment).groups_between(schema, lower, upper)
        if limited and not is_small(segment)
        else None
    )
    table = read_segment(files, schema, segment, list(needed), groups)
    keep = np.full(table.num_rows, True)
    key_columns = [table.column(name) for name in schema.key] if limited else []
    if lower is not None:
        keep &= ~compare(schema, key_columns, lower)[0]
    if upper is not None:
        keep &= ~compare(schema, key_columns, upper)[1]
    if partly:
        keep &= in_window(table, after, upto)
    table = table.select(list(columns))
    return table if keep.all() else table.filter(pa.array(keep))


def may_hold(segment: Segment, lower: Key | None, upper: Key | None) -> bool:
    """Whether keys between the bounds may be in the segment."""
    if segment.min_key is None or segment.max_key is None:
        return False
    below = lower is not None and order(segment.max_key[: len(lower)]) < order(lower)
    above = upper is not None and order(segment.min_key[: len(upper)]) > order(upper)
    return not (below or above)


def _empty(schema: TableSchema, columns: Sequence[str]) -> pa.Table:
    return pa.table(
        {name: pa.array([], schema[name].type.arrow if name in schema else META[name]) for name in columns}
    )
