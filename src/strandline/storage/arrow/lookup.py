"""Look up rows by key; find the keys that logs change."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import (
    BEGINNING,
    OP,
    PENDING,
    STEP,
    Key,
    Segment,
    State,
    TableSchema,
    cover,
    order,
    visible,
)
from strandline.storage.arrow.directory import directory_of
from strandline.storage.arrow.row_filter import empty, rows_in
from strandline.storage.footer import Footer
from strandline.storage.keys import Ints, Wanted, keys_of, match_sorted, to_mask
from strandline.storage.rows import Row
from strandline.storage.segment import ERASE, footer_of, in_window, is_small, read_segment, row_index
from strandline.storage.segment_cache import SegmentCache
from strandline.types.arrays import column_to_python

__all__ = ["begins_like", "lookup", "overlaps", "rows_at", "rows_beginning", "touched_keys"]

BATCH_ROWS = 1 << 17
"""Approximate number of rows of one batch of row groups. Batches are decoded in parallel."""
FEW_GROUPS = 32
"""Maximum number of row groups of a search whose decoded columns are cached."""


def rows_at(
    cache: SegmentCache, state: State, wanted: Wanted, columns: Sequence[str] | None = None
) -> tuple[Ints, pa.Table]:
    """Return the rows of the wanted keys, and for each row the position of its key in ``wanted``.

    Args:
        columns: names of the columns to read. None: all columns.
    """
    schema, chain = state.schema, state.chain
    names = list(schema.names if columns is None else columns)
    found = []
    for segment in reversed(_segments_for(cache, state, wanted)):  # The newest segment with a key decides.
        hits = _find(cache, schema, segment, wanted, [*names, OP], upto=chain.step)
        if hits is not None:
            wanted.mark_found(hits[0])
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
    cache: SegmentCache, state: State, keys: Collection[Key], columns: Sequence[str] | None = None
) -> dict[Key, Row]:
    """Return the rows of the given keys as canonical values, by key. Keys without a row are left out.

    Args:
        columns: names of the columns to read. None: all columns, in the schema's order.
    """
    schema = state.schema
    if not keys or not state.chain.segments:
        return {}
    wanted = Wanted.of(schema, keys)
    positions, rows = rows_at(cache, state, wanted, columns)
    values = zip(
        *(column_to_python(schema[name].type, rows.column(name)) for name in rows.column_names), strict=True
    )
    return dict(zip((wanted.keys[i] for i in positions.tolist()), values, strict=True))


def touched_keys(
    cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], after: int
) -> set[Key]:
    """Return the keys that log segments change after the step ``after``."""
    return {
        key
        for segment in segments
        for rows in rows_in(cache, schema, segment, schema.key, after=after, upto=PENDING)
        for key in keys_of(schema, rows)
    }


def overlaps(
    cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], keys: Collection[Key]
) -> bool:
    """Return True if a segment has a row with one of the keys."""
    if not keys:
        return False
    wanted = Wanted.of(schema, keys)
    return any(_find(cache, schema, s, wanted, schema.key[:1], upto=PENDING) is not None for s in segments)


def rows_beginning(
    cache: SegmentCache,
    short: TableSchema,
    segments: Sequence[Segment],
    wanted: Wanted,
    columns: Sequence[str],
    *,
    upto: int,
) -> pa.Table:
    """Return ``columns`` of all rows whose key starts with a wanted prefix, in the order of ``segments``.

    Args:
        short: the schema of the table, but with only the first columns of its key as the key.
        wanted: the prefixes: keys of ``short``.
        upto: read only rows up to this step.
    """
    width, found = len(short.key), []
    for segment in segments:
        covered = cover(segment, BEGINNING, upto)
        lower, upper = (None if end is None else end[:width] for end in (segment.min_key, segment.max_key))
        if covered == "none" or not wanted.may_be_in(lower, upper):
            continue
        window = None if covered == "all" else (BEGINNING, upto)
        if not is_small(segment):
            found += _search(cache, short, segment, wanted, columns, window=window)
        elif not wanted.left.isdisjoint(row_index(cache, short, segment)):
            here = wanted.between(lower or (), upper or ())
            found.append(_pick(cache, short, segment, here, columns, window=window, groups=None))
    return pa.concat_tables([empty(short, columns), *(rows for _, rows in found)])


def begins_like(
    cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], keys: Collection[Key], width: int
) -> bool:
    """Return True if a key in the segments has the same first ``width`` values as one of ``keys``.

    Keys with NULL among these values are ignored: NULL equals no value.
    """
    heads = {key[:width] for key in keys if None not in key[:width]}
    if not heads:
        return False
    short = replace(schema, key=schema.key[:width])
    wanted = Wanted.of(short, heads)
    return bool(rows_beginning(cache, short, segments, wanted, short.key, upto=PENDING).num_rows)


def _segments_for(cache: SegmentCache, state: State, wanted: Wanted) -> Sequence[Segment]:
    """Return the segments of a state that may hold a wanted key, oldest first."""
    directory = directory_of(cache, state)
    if directory is None or wanted.ends is None:
        return visible(state.chain)
    pending = state.chain.segments[len(directory.segments) :]
    return [*directory.segments_between(*map(order, wanted.ends)), *pending]


# --- in one segment ---------------------------------------------------------------------------------------


def _find(
    cache: SegmentCache,
    schema: TableSchema,
    segment: Segment,
    wanted: Wanted,
    columns: Sequence[str],
    *,
    upto: int,
) -> tuple[Ints, pa.Table] | None:
    """Find the last row up to the step ``upto`` of each wanted key in one segment.

    Return the positions of the found keys in ``wanted``, and ``columns`` of their rows; None if no key was
    found.
    """
    window = (BEGINNING, upto)
    covered = cover(segment, *window)
    if covered == "none" or not wanted.may_be_in(segment.min_key, segment.max_key):
        return None
    if covered == "all" and is_small(segment):
        index = row_index(cache, schema, segment)
        common = list(index.keys() & wanted.left)
        if not common:
            return None
        rows = read_segment(cache, schema, segment, columns).take(
            pa.array([index[key] for key in common], pa.int64())
        )
        return np.array([wanted.position[key] for key in common], np.int64), rows
    if is_small(segment):
        here = wanted.between(segment.min_key or (), segment.max_key or ())
        parts = [_pick(cache, schema, segment, here, columns, window=window, groups=None)]
    else:
        only = None if covered == "all" else window
        parts = _search(cache, schema, segment, wanted, columns, window=only)
    positions = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0, np.int64)
    if not len(positions):
        return None
    rows = pa.concat_tables([part[1] for part in parts])
    # A key may have several rows, ordered by step, perhaps in several row groups. The last row counts.
    _, from_end = np.unique(positions[::-1], return_index=True)
    last = len(positions) - 1 - from_end
    return positions[last], rows if len(last) == len(positions) else rows.take(last)


def _search(
    cache: SegmentCache,
    schema: TableSchema,
    segment: Segment,
    wanted: Wanted,
    columns: Sequence[str],
    *,
    window: tuple[int, int] | None,
) -> list[tuple[Ints, pa.Table]]:
    footer = footer_of(cache, segment)
    here = wanted.between(segment.min_key or (), segment.max_key or ())

    found = footer.groups_with(schema, here[1])
    if not found:
        return []
    if len(found) <= FEW_GROUPS:
        return [_pick(cache, schema, segment, here, columns, window=window, groups=found, keep=True)]
    batches = list(_batches(footer, found))

    def pick(groups: list[int]) -> tuple[Ints, pa.Table]:
        return _pick(cache, schema, segment, here, columns, window=window, groups=groups, threads=False)

    # Decode batches in parallel. Arrow alone would only decode the columns of one batch in parallel, but one
    # column often has most of the bytes.
    with ThreadPoolExecutor(min(len(batches), os.cpu_count() or 1)) as pool:
        return list(pool.map(pick, batches))


def _pick(
    cache: SegmentCache,
    schema: TableSchema,
    segment: Segment,
    wanted: tuple[Ints, list[pa.Array]],
    columns: Sequence[str],
    *,
    window: tuple[int, int] | None,
    groups: list[int] | None,
    threads: bool = True,
    keep: bool = False,
) -> tuple[Ints, pa.Table]:
    """Return the rows of wanted keys in some row groups, and the positions of their keys.

    Reads the key columns first, then the other columns of only the row groups with a wanted key.

    Args:
        wanted: keys and their positions.
        window: read only rows with steps in this window ``(after, upto]``. None: all rows.
        groups: numbers of the row groups. None: the whole segment.
        threads: whether Arrow may decode columns in parallel.
        keep: whether to cache the decoded columns.
    """
    first = [*schema.key, *((STEP,) if window else ())]
    rest = [name for name in dict.fromkeys(columns) if name not in first]
    positions, arrays = wanted
    table = read_segment(cache, schema, segment, first, groups, threads=threads, keep=keep)
    rows, hits = match_sorted([table.column(name) for name in schema.key], arrays)
    if window and len(rows):
        seen = in_window(table.select([STEP]).take(rows), *window)
        rows, hits = rows[seen], hits[seen]
    found = table.take(rows)
    if rest:
        if groups is not None:
            starts = np.concatenate([[0], np.cumsum(footer_of(cache, segment).rows[groups])])
            where = np.searchsorted(starts, rows, "right") - 1
            needed = np.unique(where)
            lengths = (starts[1:] - starts[:-1])[needed]
            rows = rows - starts[where] + (np.cumsum(lengths) - lengths)[np.searchsorted(needed, where)]
            groups = [groups[i] for i in needed.tolist()]
        others = read_segment(cache, schema, segment, rest, groups, threads=threads, keep=keep).take(rows)
        found = pa.table([*found.columns, *others.columns], [*first, *rest])
    return positions[hits], found.select(list(columns))


def _batches(footer: Footer, groups: list[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for group in groups:
        batch.append(group)
        size += int(footer.rows[group])
        if size >= BATCH_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
