"""Plan of a fold: a run of neighbouring backups of a chain becomes one backup, the last of them.

A run that begins with a full backup is folded to all rows, and its last backup becomes a full one. A run of
increments is folded to the last change of each key, and its last backup stays an increment: its tombstones
stay, because earlier backups may have the keys.

Each table and index is folded shard by shard, with two exceptions:

1. If at most one backup of the run holds rows of it, its segments are shared.
2. If the full backup holds many rows and the increments few, its segments are shared as well. Only the
   increments are folded, to a log behind them: a full backup is a chain, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlalchemy import Connection

from strandline.backups.collection import CollectionRecord, CompactRequest
from strandline.backups.record import (
    BackupRecord,
    SliceRecord,
    TableRecord,
    backup_records,
    chain_to,
    last_backup,
    require_collection,
    slice_segments,
    slices_of,
)
from strandline.backups.repository.manifest import ObjectRecord
from strandline.catalog import paths
from strandline.errors import Corrupted
from strandline.model import Digest, KeyRange, Segment, TableSchema, is_elsewhere
from strandline.records import Record, later
from strandline.settings import Limits
from strandline.storage.chain_slices import Slice
from strandline.storage.shards import cuts, ranges, segments_by_shard, spread


@dataclass(frozen=True, kw_only=True)
class FoldedShard(Record):
    """A shard that is folded to all of its rows.

    Attributes:
        target_id: Id of the path that will hold it.
        staging_id: Id of the path in which the new segments wait.
        slices: What is folded, oldest first: path ids, each with the step of its backup.
        within: Key range of the shard.
        digest: Digest of the result, once it is folded.
    """

    target_id: int
    staging_id: int
    slices: tuple[tuple[int, int], ...]
    within: KeyRange
    bytes: int
    digest: Digest | None = later()

    @property
    def shard(self) -> FoldedShard:
        return self

    def finish(self, made: Slice) -> FoldedShard:
        """Return the shard with its result."""
        return replace(self, digest=made.delta)


@dataclass(frozen=True, kw_only=True)
class MergedShard(Record):
    """A shard of increments that is folded to changes.

    Attributes:
        after: The step after which the folded changes begin.
        whole: Fold to all rows, which are stored as changes.
        rows: Number of rows in the result.
        tombstones: Number of tombstones in the result.
    """

    shard: FoldedShard
    after: int
    whole: bool
    rows: int = later(0)
    tombstones: int = later(0)

    def finish(self, made: Slice) -> MergedShard:
        """Return the shard with its result."""
        return replace(self, shard=self.shard.finish(made), rows=made.rows, tombstones=made.tombstones)


@dataclass(frozen=True, kw_only=True)
class StandingSlice:
    """Content of a path that an earlier, rolled-back fold has already written to the repository."""

    target_id: int
    rows: int
    tombstones: int
    objects: tuple[ObjectRecord, ...]


@dataclass(frozen=True, kw_only=True)
class FoldedManifest(Record):
    """The manifest of a backup after the fold.

    Attributes:
        backup: Name of the backup. None: that of the operation.
        standing: What the manifest lists, if an earlier fold has already written it.
    """

    backup: str | None = later()
    standing: tuple[StandingSlice, ...] = later(())


Keeps: TypeAlias = Callable[[Sequence[Segment], Sequence[Segment]], bool]
"""Whether base segments are kept, with a log of these changes behind them (``Store.keeps_base``)."""


@dataclass(frozen=True)
class HeldSlice:
    """What one backup of the run holds of a table or an index."""

    step: int
    slice: SliceRecord
    segments: Sequence[Segment]


@dataclass(frozen=True, kw_only=True)
class FoldedSource:
    """A table or an index at the end of a run.

    Attributes:
        index: Name of the index, or None for the table.
        least: Minimum number of shards, if the segments allow it.
        is_full: The run begins with a full backup.
        after: Step after which the run begins.
        held: The slices that add up to it, oldest first.
    """

    path: str
    index: str | None
    schema: TableSchema
    least: int
    is_full: bool
    after: int
    held: Sequence[HeldSlice]

    @property
    def last(self) -> SliceRecord:
        """Its slice in the last backup."""
        return self.held[-1].slice

    @property
    def target_id(self) -> int:
        """Id of the path that has it in the last backup."""
        return self.last.target_id

    @property
    def name(self) -> str:
        return self.path if self.index is None else f"{self.path}/{self.index}"

    @property
    def is_whole(self) -> bool:
        """Whether the run holds all of its rows."""
        return self.held[0].slice.whole

    @property
    def before(self) -> Digest:
        """The digest with which the run begins."""
        return Digest() if self.is_whole else self.held[0].slice.before

    @property
    def segments(self) -> list[Segment]:
        return [segment for each in self.held for segment in each.segments]

    def is_shared(self, root: str | None) -> bool:
        """Return True if it need not be folded, because all its segments are those of one slice in ``root``.

        A dropped column changes the hashes of rows that no later slice holds, so these are read.
        """
        first, *others = self.held
        holding = [each for each in self.held if each.segments]
        # A whole slice must not have tombstones, which a later increment may have.
        may_be_later = not self.is_whole or not holding
        return (
            len(holding) <= 1
            and (may_be_later or holding == [first])
            and all(each.slice.delta is not None for each in others)
            and all(is_at(segment, root) for segment in self.segments)
        )

    def to_fold(self, root: str | None, keeps: Keeps) -> FoldedSource | None:
        """Return what of it must be folded: all of it, or what is behind its base. None: nothing."""
        folded = self.behind_base if self.keeps_base(root, keeps) else self
        return None if folded.is_shared(root) else folded

    def keeps_base(self, root: str | None, keeps: Keeps) -> bool:
        """Return True if a log of all changes is put behind the segments of the full backup."""
        first, *others = self.held
        return (
            self.is_full
            and len(others) > 0
            and all(each.slice.delta is not None for each in others)
            and all(is_at(segment, root) for segment in first.segments)
            and keeps(first.segments, self.behind_base.segments)
        )

    @property
    def behind_base(self) -> FoldedSource:
        """The increments of the run."""
        first, *others = self.held
        return replace(self, is_full=False, after=first.step, held=others)

    def shards(self, staging_id: int, shard_bytes: int) -> Iterator[tuple[str, FoldedShard | MergedShard]]:
        """Yield kind and body of the parts in which it is folded."""
        limits = cuts(self.schema.bounds, spread(self.segments), shard_bytes, self.least)
        beginning = segments_by_shard(limits, self.segments)
        for number, within in enumerate(ranges(limits)):
            shard = FoldedShard(
                target_id=self.target_id,
                staging_id=staging_id,
                slices=tuple((each.slice.target_id, each.step) for each in self.held),
                within=within,
                bytes=sum(s.bytes for s in beginning.get(number, ())),
            )
            if self.is_full:
                yield "fold", shard
                continue
            # The rows of a whole slice may be older than the run.
            after = 0 if self.is_whole else self.after
            yield "merge", MergedShard(shard=shard, after=after, whole=self.is_whole)

    def fold(self, rows: int, tombstones: int, size: int) -> SliceRecord:
        """Return its slice after the fold, given the number of changes and the bytes."""
        first = self.held[0].slice
        origin = first.source_id if first.continues is None else first.continues
        return replace(
            self.last,
            whole=self.is_whole,
            before=self.before,
            delta=self.last.after - self.before,
            rows=self.last.after.rows if self.is_whole else rows,
            tombstones=0 if self.is_whole else tombstones,
            bytes=size,
            continues=None if self.is_whole or origin == self.last.source_id else origin,
        )


def is_at(segment: Segment, root: str | None) -> bool:
    """Return True if a segment is in the repository at ``root``, or, for None, in the warehouse."""
    if root is None:
        return segment.file is None or not is_elsewhere(segment.file)
    return segment.file is not None and segment.file.startswith(f"{root.rstrip('/')}/")


def sources(conn: Connection, chain: Sequence[BackupRecord], since: int = 0) -> list[FoldedSource]:
    """Return the tables and indexes at the end of a chain, with the slices that add up to them.

    CORRUPTED if the recorded digests do not add up.

    Args:
        since: Leave out slices of backups before this position in the chain.
    """
    listed = [
        (path, index, schema, least, [s for s in slices_of(chain, path, index) if s[0] >= since])
        for path, table in chain[-1].tables.items()
        for index, schema, least in _shapes(table)
    ]
    wanted: list[list[SliceRecord]] = [[] for _ in chain]
    for *_, slices in listed:
        for place, slice_ in slices:
            wanted[place].append(slice_)
    segments = [slice_segments(conn, *each) for each in zip(chain, wanted, strict=True)]
    return [
        FoldedSource(
            path=path,
            index=index,
            schema=schema,
            least=least,
            is_full=since == 0,
            after=chain[since].after_step,
            held=[HeldSlice(chain[at].step, s, segments[at][s.target_id]) for at, s in slices],
        )
        for path, index, schema, least, slices in listed
    ]


def _shapes(table: TableRecord) -> Iterator[tuple[str | None, TableSchema, int]]:
    """Yield index name, columns and minimum number of shards of a table and its indexes with data."""
    yield None, table.schema, 1
    for index in table.indexes:
        if index.slice is not None:
            definition = index.definition
            yield definition.name, definition.impl_schema(table.schema), len(table.schema.bounds) + 1


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


def fold_records(run: Sequence[BackupRecord], slices: Mapping[int, SliceRecord]) -> BackupRecord:
    """Return the record of the last backup of a run after the others were folded into it.

    Args:
        slices: What it holds after the fold, by the id of the path that holds it.
    """

    def table(path: str, of: TableRecord) -> TableRecord:
        indexes = tuple(
            i if i.slice is None else replace(i, slice=slices[i.slice.target_id]) for i in of.indexes
        )
        return replace(of, slice=slices[of.slice.target_id], indexes=indexes, was=_was(run, path))

    first, last = run[0], run[-1]
    tables = {path: table(path, each) for path, each in last.tables.items()}
    made = replace(last, parent=first.parent, after_step=first.after_step, tables=tables)
    if first.kind == "full":
        return replace(made, kind="full", synthetic=True)
    merged = [name for each in run[:-1] for name in (*each.merged, each.name)]
    return replace(made, merged=(*merged, *last.merged))


def _was(run: Sequence[BackupRecord], path: str) -> str | None:
    """Return the path of a table in the parent of a run. None if it is the same, or the table is new."""
    name = path
    for record in reversed(run):
        table = record.tables.get(name)
        if table is None or table.slice.whole:
            return None  # No earlier backup has it.
        name = table.was or name
    return None if name == path else name


def compaction(conn: Connection, name: str, limits: Limits) -> tuple[str, Record] | None:
    """Return the operation that compacts the collection's last chain, if COMPACT_CHAIN asks for it now.

    A chain that is damaged or under an operation is skipped: COMPACT reports that, and the new backup is not
    affected.
    """
    path = require_collection(conn, name)
    settings, last = path.record(CollectionRecord).settings, last_backup(conn, path)
    if not settings.compact_chain or settings.max_chain is None or last is None:
        return None
    try:
        chain = chain_to(backup_records(conn, path), last.name)
        if not 1 < len(chain) >= settings.max_chain:
            return None
        sources(conn, chain)
    except Corrupted:
        return None
    names = {record.name for record in chain}
    if any(p.state != paths.READY for p in paths.backups(conn, path) if p.name in names):
        return None
    return "compact backups", CompactRequest(collection=name, backup=last.name, limits=limits)
