"""Plan of a merge: which increments are merged, and what is folded for each table and index.

If only one of the merged increments holds changes of a table or index, its slice is shared and not folded.
Every other slice is folded shard by shard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from strandline.backups.fold.compact_plan import FoldedShard, FoldedSource, HeldSlice, is_at
from strandline.backups.record import BackupRecord, SliceRecord, TableRecord
from strandline.backups.repository.manifest import ObjectRecord
from strandline.model import Digest
from strandline.records import Record, later


@dataclass(frozen=True, kw_only=True)
class MergedShard(Record):
    """A shard of the slices that are merged.

    Attributes:
        after: The step after which the folded changes begin.
        whole: Fold to all rows, not to changes.
        rows: Number of rows in the result.
        tombstones: Number of tombstones in the result.
    """

    shard: FoldedShard
    after: int
    whole: bool
    rows: int = later(0)
    tombstones: int = later(0)


@dataclass(frozen=True, kw_only=True)
class StandingSlice:
    """Content of a path that an earlier, rolled-back merge has already written to the repository."""

    target_id: int
    rows: int
    tombstones: int
    objects: tuple[ObjectRecord, ...]


@dataclass(frozen=True, kw_only=True)
class MergedManifest(Record):
    """The manifest of a backup after the merge.

    Attributes:
        standing: What the manifest lists, if an earlier merge has already written it.
    """

    backup: str
    standing: tuple[StandingSlice, ...] = later(())


def runs(chain: Sequence[BackupRecord], kept: Collection[str], first: str | None) -> list[list[BackupRecord]]:
    """Return the runs of increments of a chain that are merged into one each. A run has at least two.

    An increment in ``kept`` ends its run, so it is not merged into a later one. An increment before which a
    column was dropped stays alone: dropping a column changes the hashes of rows that no slice holds, so the
    digests would prove nothing.

    Args:
        first: Backups before this one are not merged.
    """
    names = [record.name for record in chain]
    found: list[list[BackupRecord]] = [[]]
    for record in chain[max(1, 0 if first is None else names.index(first)) :]:
        alone = any(slice_.delta is None for slice_ in record.slices)
        if alone:
            found.append([])
        found[-1].append(record)
        if alone or record.name in kept:
            found.append([])
    return [run for run in found if len(run) > 1]


def holder(source: FoldedSource, root: str | None) -> HeldSlice | None:
    """Return the slice that can be shared, or None if the slices must be folded.

    A slice can be shared if at most one increment holds changes of the table or index, and its segments are
    in ``root``.
    """
    first = source.held[0]
    holding = [each for each in source.held if each.segments]
    found = holding[0] if holding else first
    if len(holding) > 1 or not all(is_at(segment, root) for segment in found.segments):
        return None
    # The merged slice is whole, so it must not have tombstones, which a later increment may have.
    return None if first.slice.whole and found is not first else found


def merge_shards(
    source: FoldedSource, staging_id: int, shard_bytes: int, after: int
) -> Iterator[MergedShard]:
    """Yield the parts in which the changes of a table or an index are folded."""
    whole = source.held[0].slice.whole
    for shard in source.shards(staging_id, shard_bytes):
        # The rows of a whole slice may be older than the increments.
        yield MergedShard(shard=shard, after=0 if whole else after, whole=whole)


def before(source: FoldedSource) -> Digest:
    """Return the digest with which the merged slice begins."""
    first = source.held[0].slice
    return Digest() if first.whole else first.before


@dataclass(frozen=True)
class Amount:
    """Size of a slice."""

    rows: int
    tombstones: int
    bytes: int


def merge_slices(source: FoldedSource, amount: Amount) -> SliceRecord:
    """Return the merged slice of a table or an index."""
    first, last = source.held[0].slice, source.last
    origin = first.source_id if first.continues is None else first.continues
    return replace(
        last,
        whole=first.whole,
        before=before(source),
        delta=last.after - before(source),
        rows=amount.rows,
        tombstones=amount.tombstones,
        bytes=amount.bytes,
        continues=None if first.whole or origin == last.source_id else origin,
    )


def merge_records(run: Sequence[BackupRecord], slices: dict[int, SliceRecord]) -> BackupRecord:
    """Return the record of the last increment of a run after the others were merged into it.

    Args:
        slices: What it holds after the merge, by the id of the path that holds it.
    """

    def table(path: str, of: TableRecord) -> TableRecord:
        indexes = tuple(
            i if i.slice is None else replace(i, slice=slices[i.slice.target_id]) for i in of.indexes
        )
        return replace(of, slice=slices[of.slice.target_id], indexes=indexes, was=_was(run, path))

    first, last = run[0], run[-1]
    return replace(
        last,
        parent=first.parent,
        after_step=first.after_step,
        merged=tuple(name for each in run[:-1] for name in (*each.merged, each.name)) + last.merged,
        tables={path: table(path, each) for path, each in last.tables.items()},
    )


def _was(run: Sequence[BackupRecord], path: str) -> str | None:
    """Return the path of a table in the parent of a run. None if it is the same, or the table is new."""
    name = path
    for record in reversed(run):
        table = record.tables.get(name)
        if table is None or table.slice.whole:
            return None  # No earlier backup has it.
        name = table.was or name
    return None if name == path else name
