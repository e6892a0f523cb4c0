"""Write any number of rows from sorted, staged files, one range of keys after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.model import BEGINNING, EVERYWHERE, PENDING, Chain, Digest, Segment, State, TableSchema
from strandline.storage.arrow.partitions import between, by_row_group
from strandline.storage.arrow.row_filter import empty, rows_in
from strandline.storage.arrow.write import write
from strandline.storage.rows import Mode, Outcome, Target, Written
from strandline.storage.segment import Inline
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.shards import cuts
from strandline.storage.staged_files import Staged

__all__ = ["Given", "write_staged"]

PIECE_ROWS = 1_000_000
PIECE_BYTES = 128 << 20
"""Limits of the rows and bytes that are written at a time."""


@dataclass(frozen=True)
class Given:
    """The staged rows of several tasks.

    Of two rows with the same key the later one counts: of a later task, or of a later file of the same task.
    """

    schema: TableSchema
    staged: Sequence[Staged]

    @property
    def segments(self) -> list[Segment]:
        return [segment for each in self.staged for segment in each.segments]

    def pieces(self, cache: SegmentCache) -> Iterator[pa.Table]:
        """Yield the rows of one range of keys after the other."""
        segments = self.segments
        rows, memory = sum(s.rows for s in segments), sum(each.memory for each in self.staged)
        most = max(1, min(PIECE_ROWS, PIECE_BYTES * rows // max(memory, 1)))
        state = State(self.schema, Chain(tuple(segments), PENDING))
        weighed = (replace(s, bytes=s.rows) for s in by_row_group(cache, state, segments))
        for within in between(EVERYWHERE, cuts((), weighed, most)):
            names, found = self.schema.names, [empty(self.schema, self.schema.names)]
            for segment in segments:
                found += rows_in(
                    cache, self.schema, segment, names, after=BEGINNING, upto=PENDING, within=within
                )
            yield pa.concat_tables(found)


def write_staged(cache: SegmentCache, target: Target, mode: Mode, given: Given, inline: Inline) -> Outcome:
    """Apply all rows according to ``mode``. Files are durable on return, and deleted on an error."""
    made: list[Outcome] = []
    try:
        for piece in given.pieces(cache) if given.segments else ():
            if piece.num_rows:
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
