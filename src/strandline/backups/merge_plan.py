"""Which increments of a chain become one, and what is folded for it: the slices that they hold of each table
and index, worked out for all of them at once.

A slice of which only one of them holds anything is not folded: it is shared. Any other is folded shard by
shard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from strandline.backups.compact_plan import FoldedShard, FoldedSource, HeldSlice, is_at
from strandline.backups.manifest import ObjectRecord
from strandline.backups.record import BackupRecord, SliceRecord, TableRecord
from strandline.model import Digest
from strandline.records import Record, later


@dataclass(frozen=True, kw_only=True)
class MergedShard(Record):
    """A shard of what increments hold, folded to the changes after the step ``after`` or, if it is ``whole``,
    to all rows. ``rows`` and ``tombstones``: what came of it."""

    shard: FoldedShard
    after: int
    whole: bool
    rows: int = later(0)
    tombstones: int = later(0)


@dataclass(frozen=True, kw_only=True)
class StandingSlice:
    """What the path ``target_id`` is to hold, as a merge that was undone has left it in the repository."""

    target_id: int
    rows: int
    tombstones: int
    objects: tuple[ObjectRecord, ...]


@dataclass(frozen=True, kw_only=True)
class MergedManifest(Record):
    """The manifest of ``backup``, after the merge. ``standing``: if there is one already, what it says."""

    backup: str
    standing: tuple[StandingSlice, ...] = later(())


def runs(chain: Sequence[BackupRecord], kept: Collection[str], first: str | None) -> list[list[BackupRecord]]:
    """Return the increments of a chain that become one each, two of them at least. One that is ``kept`` for
    its own sake ends a run, so that it is not swallowed. Where a column was dropped, rows have changed that
    no slice holds, so that the sums would prove nothing: such an increment stays alone. ``first``: those
    before it are left alone."""
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
    """Return the increment that alone holds changes of a table or an index, or none of them does: what it has
    is shared. None: they are to be folded."""
    first = source.held[0]
    holding = [each for each in source.held if each.segments]
    found = holding[0] if holding else first
    if len(holding) > 1 or not all(is_at(segment, root) for segment in found.segments):
        return None
    # A whole slice has no tombstones.
    return None if first.slice.whole and found is not first else found


def merged_shards(
    source: FoldedSource, staging_id: int, shard_bytes: int, after: int
) -> Iterator[MergedShard]:
    """Yield the parts in which the changes of a table or an index are folded."""
    whole = source.held[0].slice.whole
    for shard in source.shards(staging_id, shard_bytes):
        # The rows of a whole slice may be older than the increments.
        yield MergedShard(shard=shard, after=0 if whole else after, whole=whole)


def before(source: FoldedSource) -> Digest:
    """Return the digest from which the changes of a table or an index lead to the last one."""
    first = source.held[0].slice
    return Digest() if first.whole else first.before


@dataclass(frozen=True)
class Amount:
    """What a slice holds."""

    rows: int
    tombstones: int
    bytes: int


def merged_slice(source: FoldedSource, amount: Amount) -> SliceRecord:
    """Return what the increments hold of a table or an index, as one slice."""
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


def merged_record(run: Sequence[BackupRecord], slices: dict[int, SliceRecord]) -> BackupRecord:
    """Return the last of some increments when it has swallowed the others. ``slices``: what it holds then, by
    the paths that have it."""

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
    """Return the path that a table has in the parent of some increments, if it is another one than in the
    last."""
    name = path
    for record in reversed(run):
        table = record.tables.get(name)
        if table is None or table.slice.whole:
            return None  # No earlier backup has it.
        name = table.was or name
    return None if name == path else name
