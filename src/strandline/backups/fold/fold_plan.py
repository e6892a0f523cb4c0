"""Plan of a fold: a run of neighbouring backups of a chain becomes one backup, the last of them.

A run that begins with a full backup is folded to all rows, and its last backup becomes a full one. A run of
increments is folded to the last change of each key, and its last backup stays an increment: its tombstones
stay, because earlier backups may have the keys.

Each table and index is folded shard by shard, with two exceptions:

1. If at most one backup of the run holds rows of the table or index, the segments of that backup are shared.
2. If the full backup holds many rows and the increments hold few, the segments of the full backup are shared.
   Only the increments are folded, to a log behind these segments.
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
        target_id: Id of the path that will hold the result.
        staging_id: Id of the staging path, which holds the new segments until the end of the operation.
        slices: The slices to fold, oldest first, as pairs of path id and step of the backup.
        within: Key range of the shard.
        bytes: Size of the segments that begin in the shard.
        digest: Digest of the folded rows. None: not folded yet.
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
        """Return the shard with the digest of its folded rows."""
        return replace(self, digest=made.delta)


@dataclass(frozen=True, kw_only=True)
class MergedShard(Record):
    """A shard of increments that is folded to the last change of each key.

    Attributes:
        shard: The slices to fold, their key range, and the path for the result.
        after: The step after which the folded changes begin.
        whole: The increments hold all rows of the table or index. Fold to these rows, and store them as
            changes, without tombstones.
        rows: Number of rows in the result.
        tombstones: Number of tombstones in the result.
    """

    shard: FoldedShard
    after: int
    whole: bool
    rows: int = later(0)
    tombstones: int = later(0)

    def finish(self, made: Slice) -> MergedShard:
        """Return the shard with row count, tombstones and digest of its result."""
        return replace(self, shard=self.shard.finish(made), rows=made.rows, tombstones=made.tombstones)


@dataclass(frozen=True, kw_only=True)
class StandingSlice:
    """Content of a table or index in the repository, written by an operation that was rolled back.

    Attributes:
        target_id: Id of the path that will hold the content.
    """

    target_id: int
    rows: int
    tombstones: int
    objects: tuple[ObjectRecord, ...]


@dataclass(frozen=True, kw_only=True)
class FoldedManifest(Record):
    """The manifest of a backup after the fold.

    Attributes:
        backup: Name of the backup. None: the backup that ``CompactBody`` names.
        standing: Slices in a manifest of this backup that an earlier operation has written with other
            objects. Empty: there is no such manifest.
    """

    backup: str | None = later()
    standing: tuple[StandingSlice, ...] = later(())


Keeps: TypeAlias = Callable[[Sequence[Segment], Sequence[Segment]], bool]
"""Function of base segments and changes that returns True if the base segments need not be rewritten.

The changes then become a log behind the base segments (``Store.keeps_base``).
"""


@dataclass(frozen=True)
class HeldSlice:
    """The slice of a table or index in one backup of the run, with its segments.

    Attributes:
        step: Step of the backup.
    """

    step: int
    slice: SliceRecord
    segments: Sequence[Segment]


@dataclass(frozen=True, kw_only=True)
class FoldedSource:
    """A table or an index at the end of a run.

    Attributes:
        path: Path of the table.
        index: Name of the index. None: the table itself.
        least: Wanted minimum number of shards. A source with few segments may get fewer shards.
        is_full: The run begins with a full backup.
        after: The step after which the changes of the run begin.
        held: Slices of the table or index in the run, oldest first. Slices before the last whole slice are
            left out.
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
        """The slice of the last backup of the run."""
        return self.held[-1].slice

    @property
    def target_id(self) -> int:
        """Id of the path that holds the table or index in the last backup of the run."""
        return self.last.target_id

    @property
    def name(self) -> str:
        return self.path if self.index is None else f"{self.path}/{self.index}"

    @property
    def is_whole(self) -> bool:
        """Whether the run holds all rows of the table or index, so that no earlier backup is needed."""
        return self.held[0].slice.whole

    @property
    def before(self) -> Digest:
        """Digest of the table or index before the changes of the run."""
        return Digest() if self.is_whole else self.held[0].slice.before

    @property
    def segments(self) -> list[Segment]:
        return [segment for each in self.held for segment in each.segments]

    def is_shared(self, root: str | None) -> bool:
        """Return True if the source need not be folded, because one slice has all its segments.

        The source must be folded if a column was dropped during the run: this changes the hashes of rows that
        no later slice holds, so all rows must be read.

        Args:
            root: Repository that must hold the segments. None: the warehouse.
        """
        first, *others = self.held
        holding = [each for each in self.held if each.segments]
        # A whole slice must not have tombstones. So share a later increment, which may have some, only in a
        # run that does not hold all rows.
        may_be_later = not self.is_whole or not holding
        return (
            len(holding) <= 1
            and (may_be_later or holding == [first])
            and all(each.slice.delta is not None for each in others)
            and all(is_at(segment, root) for segment in self.segments)
        )

    def to_fold(self, root: str | None, keeps: Keeps) -> FoldedSource | None:
        """Return the source with the slices that must be folded: all, or only the increments.

        None: nothing must be folded, because all segments are shared.

        Args:
            root: Repository of the backups. None: the warehouse.
            keeps: See ``Keeps``.
        """
        folded = self.behind_base if self.keeps_base(root, keeps) else self
        return None if folded.is_shared(root) else folded

    def keeps_base(self, root: str | None, keeps: Keeps) -> bool:
        """Return True if the segments of the full backup are shared, with a log of all changes behind them.

        Args:
            root: Repository of the backups. None: the warehouse.
        """
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
        """The source with only the slices of the increments, without the slice of the full backup."""
        first, *others = self.held
        return replace(self, is_full=False, after=first.step, held=others)

    def shards(self, staging_id: int, shard_bytes: int) -> Iterator[tuple[str, FoldedShard | MergedShard]]:
        """Yield kind and body of each part that folds a shard of the source."""
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
            # Begin at step 0 for a whole slice, because its rows may be older than the run.
            after = 0 if self.is_whole else self.after
            yield "merge", MergedShard(shard=shard, after=after, whole=self.is_whole)

    def fold(self, rows: int, tombstones: int, size: int) -> SliceRecord:
        """Return the slice record of the source after the fold.

        Args:
            rows: Number of changes after the fold. Used only if the slice is not whole.
            tombstones: Number of tombstones after the fold. Used only if the slice is not whole.
            size: Number of bytes after the fold.
        """
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
    """Return True if a segment is stored in a repository, or in the warehouse.

    Args:
        root: Location of a repository. None: the warehouse.
    """
    if root is None:
        return segment.file is None or not is_elsewhere(segment.file)
    return segment.file is not None and segment.file.startswith(f"{root.rstrip('/')}/")


def sources(conn: Connection, chain: Sequence[BackupRecord], since: int = 0) -> list[FoldedSource]:
    """Return the tables and indexes at the end of a chain, with the slices that add up to them.

    Raise CORRUPTED if the recorded digests do not add up.

    Args:
        since: Position in the chain at which the run begins. Slices of earlier backups are left out.
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
    """Yield index name, columns and wanted minimum number of shards of a table and its indexes with data.

    The first item is for the table. Its index name is None.
    """
    yield None, table.schema, 1
    for index in table.indexes:
        if index.slice is not None:
            definition = index.definition
            yield definition.name, definition.impl_schema(table.schema), len(table.schema.bounds) + 1


def runs(chain: Sequence[BackupRecord], kept: Collection[str], first: str | None) -> list[list[BackupRecord]]:
    """Return the runs of neighbouring increments of a chain. Each run is merged into its last increment.

    A run has at least two increments. If a column was dropped between an increment and its parent, the
    increment is in no run: dropping a column changes the hashes of rows that no slice holds, so the digest
    of a merged increment could not be checked.

    Args:
        kept: Names of backups that must not be merged into a later one. Each ends its run.
        first: Backups before this one are not merged. None: all increments may be merged.
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
    """Return the record of the last backup of a run after the other backups were folded into it.

    Args:
        slices: Slice of each table and index after the fold, by the id of the path that holds it.
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
    """Return the path of a table in the parent of a run. None: the same path, or the table is new.

    Args:
        path: Path of the table at the end of the run.
    """
    name = path
    for record in reversed(run):
        table = record.tables.get(name)
        if table is None or table.slice.whole:
            return None  # No earlier backup has this table.
        name = table.was or name
    return None if name == path else name


def compaction(conn: Connection, name: str, limits: Limits) -> tuple[str, Record] | None:
    """Return name and request of the operation that compacts a collection's last chain.

    None: COMPACT_CHAIN is off, or the chain is shorter than MAX_CHAIN, damaged, or locked by an operation.
    A damaged or locked chain does not make the new backup fail; a COMPACT statement reports the reason.
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
