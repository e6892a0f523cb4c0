"""Plan of a compaction: which tables and indexes are folded, from which slices.

A table or index without a change in the increments is not folded: its slice of the full backup is shared. All
others are folded shard by shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
from strandline.catalog import paths
from strandline.errors import Corrupted
from strandline.model import Digest, KeyRange, Segment, TableSchema, is_elsewhere
from strandline.records import Record, later
from strandline.settings import Limits
from strandline.storage.shards import cuts, ranges, segments_by_shard, spread


@dataclass(frozen=True, kw_only=True)
class FoldedShard(Record):
    """A shard that is folded.

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


@dataclass(frozen=True)
class HeldSlice:
    """What one backup of the chain holds of a table or an index."""

    step: int
    slice: SliceRecord
    segments: Sequence[Segment]


@dataclass(frozen=True, kw_only=True)
class FoldedSource:
    """A table or an index at the end of a chain.

    Attributes:
        index: Name of the index, or None for the table.
        least: Minimum number of shards, if the segments allow it.
        last: Its slice in the last backup.
        held: The slices that add up to it, oldest first.
    """

    path: str
    index: str | None
    schema: TableSchema
    least: int
    last: SliceRecord
    held: Sequence[HeldSlice]

    @property
    def target_id(self) -> int:
        """Id of the path that has it in the last backup."""
        return self.last.target_id

    @property
    def name(self) -> str:
        return self.path if self.index is None else f"{self.path}/{self.index}"

    def is_shared(self, root: str | None) -> bool:
        """Return True if it need not be folded, because the first backup's slice can be shared.

        So only the first backup holds rows of it, and its segments are in ``root``.
        """
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
    """Yield index name, columns, minimum number of shards and slice of a table and its indexes."""
    yield None, table.schema, 1, table.slice
    for index in table.indexes:
        if index.slice is not None:
            definition = index.definition
            schema = definition.impl_schema(table.schema)
            yield definition.name, schema, len(table.schema.bounds) + 1, index.slice


def to_full_backup(record: BackupRecord, bytes_: dict[int, int]) -> BackupRecord:
    """Return the record of an increment as a full backup. ``bytes_``: size of each path's segments."""

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
