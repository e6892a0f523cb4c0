"""Fold small logs for a scan on Spark, and find the rows in files that they replace, by their positions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import BEGINNING, OP, Segment, State, TableSchema
from strandline.storage.arrow.changes import fold
from strandline.storage.arrow.row_filter import rows_in, without
from strandline.storage.keys import Ints, Wanted, match
from strandline.storage.segment import ERASE, footer_of, read_segment
from strandline.storage.segment_cache import SegmentCache, identify
from strandline.threads import in_parallel

__all__ = ["ReplacedRows", "find_positions", "find_replaced", "fold_logs"]

FILES = 64
FILE_ROWS = 1 << 25
READ_ROWS = 1 << 23
"""Maximum number of files, of rows in each file, and of keys that are read from all files together."""

BATCH_ROWS = 1 << 20
"""Approximate number of keys in memory per thread."""
THREADS = 8


def fold_logs(
    cache: SegmentCache,
    state: State,
    inline: Sequence[Segment],
    logs: Sequence[Segment],
    columns: Sequence[str],
) -> tuple[pa.Table, pa.Table]:
    """Return the keys that logs change, and the resulting rows. An erased key has no row.

    Args:
        inline: older inline segments, whose other rows are returned, too.
        columns: names of the columns of the rows. The key is among them.
    """
    schema, step = state.schema, state.chain.step
    part = replace(schema, columns=tuple(c for c in schema.columns if c.name in columns))

    def make() -> tuple[pa.Table, pa.Table]:
        folded = fold(cache, part, logs, after=BEGINNING, upto=step)
        keys = folded.select(list(schema.key))
        changed = [column.combine_chunks() for column in keys.columns]
        kept = [
            without(part, rows, changed)
            for segment in inline
            for rows in rows_in(cache, part, segment, columns, after=BEGINNING, upto=step)
        ]
        there = folded.filter(pc.not_equal(folded.column(OP), ERASE)).select(list(columns))
        return keys, pa.concat_tables([*kept, there])

    return cache.folds.get((part, tuple(columns), identify(inline, step), identify(logs, step)), make)


def find_replaced(
    cache: SegmentCache, state: State, stored: Sequence[Segment], logs: Sequence[Segment], keys: pa.Table
) -> Mapping[str, Ints] | None:
    """Return the positions of the rows in files that logs replace or erase, by file.

    Files without such rows are left out. Returns None if too much would be read here.

    Args:
        stored: older segments with files.
        keys: the keys that the logs change.
    """
    schema, same = state.schema, identify(logs, state.chain.step)
    place = tuple((c.physical, c.type) for c in schema.key_columns), tuple(s.file for s in stored)
    known: ReplacedRows | None = cache.replaced.find(place)
    if known is None or known.logs != same:
        known = ReplacedRows(same, keys, _find_more(cache, schema, stored, keys, known))
        cache.replaced.replace(place, known)
    if len(known.positions) < len(stored):
        return None
    return {s.file or "": at for s, at in zip(stored, known.positions, strict=True) if len(at)}


@dataclass(frozen=True)
class ReplacedRows:
    """The positions of the rows in some files that logs replace.

    Attributes:
        logs: identifies the logs.
        keys: the keys that the logs change.
        positions: the positions in each file; empty if the process does not find them.
    """

    logs: Hashable
    keys: pa.Table
    positions: tuple[Ints, ...]

    @property
    def cost(self) -> int:
        """Approximate size in memory, in bytes."""
        return 1000 + int(self.keys.nbytes) + sum(each.nbytes for each in self.positions)


def _find_more(
    cache: SegmentCache,
    schema: TableSchema,
    stored: Sequence[Segment],
    keys: pa.Table,
    known: ReplacedRows | None,
) -> tuple[Ints, ...]:
    """Return what ``find_positions`` does, but look up only keys that are not known from an earlier scan."""
    if known is not None and known.positions:
        again, _ = match(keys.columns, [column.combine_chunks() for column in known.keys.columns])
        if len(again) == known.keys.num_rows:
            is_new = np.full(keys.num_rows, True)
            is_new[again] = False
            more = find_positions(cache, schema, stored, keys.filter(pa.array(is_new)))
            pairs = zip(known.positions, more, strict=True) if more else ()
            return tuple(np.sort(np.concatenate(pair)) for pair in pairs)
    return find_positions(cache, schema, stored, keys)


def find_positions(
    cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], keys: pa.Table
) -> tuple[Ints, ...]:
    """Return for each segment the positions of its rows whose keys are in ``keys``, in ascending order.

    Only row groups that may have one of the keys are read. Returns an empty tuple if that is more than the
    limits of this module.

    Args:
        segments: segments with files.
        keys: distinct keys.
    """
    if len(segments) > FILES or any(s.rows > FILE_ROWS for s in segments):
        return ()
    wanted = Wanted(schema, [column.combine_chunks() for column in keys.columns])

    def find_groups(segment: Segment) -> tuple[list[int], list[pa.Array]]:
        if not wanted.may_be_in(segment.min_key, segment.max_key):
            return [], []
        _, arrays = wanted.between(segment.min_key or (), segment.max_key or ())
        return footer_of(cache, segment).groups_with(schema, arrays), arrays

    found = in_parallel(find_groups, segments, threads=THREADS)
    groups = zip(segments, (groups for groups, _ in found), strict=True)
    if sum(int(footer_of(cache, s).rows[some].sum()) for s, some in groups if some) > READ_ROWS:
        return ()

    def find(segment: Segment, there: tuple[list[int], list[pa.Array]]) -> Ints:
        return _in_groups(cache, schema, segment, *there)

    return tuple(in_parallel(find, segments, found, threads=THREADS))


def _in_groups(
    cache: SegmentCache, schema: TableSchema, segment: Segment, groups: list[int], keys: list[pa.Array]
) -> Ints:
    """Return the positions in the file of the rows with one of the keys, which are in these row groups."""
    positions = [np.zeros(0, np.int64)]
    if groups:
        counts = footer_of(cache, segment).rows
        starts = np.cumsum(counts) - counts
        batches = np.cumsum(counts[groups]) // BATCH_ROWS
        for number in np.unique(batches):
            batch = np.array(groups)[batches == number]
            rows = read_segment(cache, schema, segment, schema.key, batch.tolist(), threads=False)
            at, _ = match(rows.columns, keys)
            ends = np.cumsum(counts[batch])
            which = np.searchsorted(ends, at, "right")
            positions.append(at - (ends - counts[batch])[which] + starts[batch][which])
    return np.concatenate(positions)
