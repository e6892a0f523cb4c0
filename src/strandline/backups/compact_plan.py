"""What is folded when an increment becomes a full backup: its tables and indexes with all that the chain
holds of them, worked out for all of them at once.

One of which the increments hold no change is not folded: what the full backup at the beginning holds of it is
shared. Any other is folded shard by shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline.backups.collection import Collection, CompactRequest
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
from strandline.catalog import paths
from strandline.errors import Corrupted
from strandline.model import Digest, KeyRange, Segment, TableSchema, is_elsewhere
from strandline.records import Record, later
from strandline.settings import Limits
from strandline.storage.shards import cuts, ranges, segments_by_shard, spread


@dataclass(frozen=True, kw_only=True)
class FoldedShard(Record):
    """A shard (``within``) of what the path ``target_id`` is to hold. The new segments wait in the chain of
    ``staging_id``. ``slices``: what is folded, oldest first: paths, each with the step of its backup.
    ``digest``: what came of it."""

    target_id: int
    staging_id: int
    slices: tuple[tuple[int, int], ...]
    within: KeyRange
    bytes: int
    digest: Digest | None = later()


@dataclass(frozen=True)
class HeldSlice:
    """What one backup of the chain holds of a table or an index."""

    step: int
    slice: SliceRecord
    segments: Sequence[Segment]


@dataclass(frozen=True, kw_only=True)
class FoldedSource:
    """A table, or an index (by its name), at the end of a chain. ``last``: what the last backup says of it.
    ``held``: what adds up to it, oldest first. ``least``: how many shards it has, if its segments allow
    it."""

    path: str
    index: str | None
    schema: TableSchema
    least: int
    last: SliceRecord
    held: Sequence[HeldSlice]

    @property
    def target_id(self) -> int:
        """The path that has it in the last backup."""
        return self.last.target_id

    @property
    def name(self) -> str:
        return self.path if self.index is None else f"{self.path}/{self.index}"

    def is_shared(self, root: str | None) -> bool:
        """Return whether nothing is to be folded: no backup but the first holds anything of it, and that is
        where it should be, in the repository at ``root`` or in the warehouse."""
        first, *others = self.held
        return (
            not any(each.segments for each in others)
            and first.slice.after == self.last.after
            and all(is_at(segment, root) for segment in first.segments)
        )

    def shards(self, staging_id: int, shard_bytes: int) -> Iterator[FoldedShard]:
        """Yield the parts in which it is folded."""
        segments = [segment for each in self.held for segment in each.segments]
        limits = cuts(self.schema.bounds, spread(segments), shard_bytes, self.least)
        beginning = segments_by_shard(limits, segments)
        for number, within in enumerate(ranges(limits)):
            yield FoldedShard(
                target_id=self.target_id,
                staging_id=staging_id,
                slices=tuple((each.slice.target_id, each.step) for each in self.held),
                within=within,
                bytes=sum(s.bytes for s in beginning.get(number, ())),
            )


def is_at(segment: Segment, root: str | None) -> bool:
    """Return whether a segment is in the repository at ``root``; None: in the warehouse."""
    if root is None:
        return segment.file is None or not is_elsewhere(segment.file)
    return segment.file is not None and segment.file.startswith(f"{root.rstrip('/')}/")


def sources(conn: Connection, chain: Sequence[BackupRecord], since: int = 0) -> list[FoldedSource]:
    """Return all that the last backup of a chain holds data of, with what the backups from the place
    ``since`` on hold of it. CORRUPTED if what was recorded does not add up."""
    listed = [
        (path, index, schema, least, last, [s for s in slices_of(chain, path, index) if s[0] >= since])
        for path, table in chain[-1].tables.items()
        for index, schema, least, last in _slices(table)
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
            last=last,
            held=[HeldSlice(chain[at].step, s, segments[at][s.target_id]) for at, s in slices],
        )
        for path, index, schema, least, last, slices in listed
    ]


def _slices(table: TableRecord) -> Iterator[tuple[str | None, TableSchema, int, SliceRecord]]:
    """Yield what a backup holds of a table and its indexes: the index, the columns, how many shards at
    least."""
    yield None, table.schema, 1, table.slice
    for index in table.indexes:
        if index.slice is not None:
            definition = index.definition
            schema = definition.impl_schema(table.schema)
            yield definition.name, schema, len(table.schema.bounds) + 1, index.slice


def made_full(record: BackupRecord, bytes_: dict[int, int]) -> BackupRecord:
    """Return an increment as the full backup that it becomes; ``bytes_``: what its paths hold then."""

    def whole(of: SliceRecord) -> SliceRecord:
        return replace(
            of,
            whole=True,
            before=Digest(),
            delta=of.after,
            rows=of.after.rows,
            tombstones=0,
            bytes=bytes_[of.target_id],
        )

    def table(of: TableRecord) -> TableRecord:
        indexes = tuple(i if i.slice is None else replace(i, slice=whole(i.slice)) for i in of.indexes)
        return replace(of, slice=whole(of.slice), indexes=indexes, was=None)

    return replace(
        record,
        kind="full",
        parent=None,
        after_step=0,
        synthetic=True,
        tables={path: table(each) for path, each in record.tables.items()},
    )


def compaction(conn: Connection, name: str, limits: Limits) -> tuple[str, Record] | None:
    """Return the operation that folds the chain of a collection's last backup, if the collection wants it and
    it is time. A chain that cannot be folded, because others are at it or it is damaged, is left to COMPACT,
    which says so: the backup that was just taken is none the worse for it."""
    path = require_collection(conn, name)
    settings, last = path.record(Collection).settings, last_backup(conn, path)
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
