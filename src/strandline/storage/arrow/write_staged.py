"""Write any number of rows from sorted, staged files. One range of keys is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from strandline.model import Digest, TableSchema
from strandline.storage.arrow.merge_runs import PIECE_BYTES, pieces_of
from strandline.storage.arrow.write import write
from strandline.storage.rows import Mode, Outcome, Target, Written
from strandline.storage.segment import Inline
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.staged_files import Staged, last_of_keys

__all__ = ["Given", "write_staged"]

PIECE_ROWS = 1_000_000
"""Maximum number of rows that are in memory and written at a time."""


@dataclass(frozen=True)
class Given:
    """The staged rows of several tasks.

    If two rows have the same key, the row of the later task counts, or the row of the later file of one task.
    """

    schema: TableSchema
    staged: Sequence[Staged]

    def pieces(self, cache: SegmentCache, mode: Mode) -> Iterator[pa.Table]:
        """Yield the rows in tables, in the order of their keys. Each key is in only one table."""
        runs = [[segment] for each in self.staged for segment in each.segments]
        rows, memory = sum(run[0].rows for run in runs), sum(each.memory for each in self.staged)
        most = max(1, min(PIECE_ROWS, PIECE_BYTES * rows // max(memory, 1)))
        fold = partial(last_of_keys, self.schema, mode)
        yield from pieces_of(cache, self.schema, runs, most=most, memory=memory, fold=fold)


def write_staged(cache: SegmentCache, target: Target, mode: Mode, given: Given, inline: Inline) -> Outcome:
    """Apply all staged rows to a table according to ``mode``, and update its indexes.

    The files are durable when this function returns, and deleted when it raises.
    """
    made: list[Outcome] = []
    try:
        for piece in given.pieces(cache, mode):
            made.append(write(cache, target, mode, piece, inline))
    except BaseException:
        cache.discard(s for each in made for w in (each.table, *each.indexes.values()) for s in w.segments)
        raise
    names = dict.fromkeys(name for each in made for name in each.indexes)
    return Outcome(
        _join([each.table for each in made]),
        {name: _join([each.indexes[name] for each in made if name in each.indexes]) for name in names},
    )


def _join(parts: Sequence[Written]) -> Written:
    return Written(tuple(s for each in parts for s in each.segments), sum((p.delta for p in parts), Digest()))
