"""Find the positions in Parquet files of the rows that have given keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.model import Segment, TableSchema
from strandline.storage.keys import Ints, Wanted, match
from strandline.storage.segment import footer_of, read_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.threads import in_parallel

__all__ = ["find_positions"]

FILES = 64
FILE_ROWS = 1 << 25
READ_ROWS = 1 << 23
"""Maximum number of files, of rows in each file, and of keys that are read from all files together."""

BATCH_ROWS = 1 << 20
"""Approximate number of keys in memory per thread."""
THREADS = 8


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
