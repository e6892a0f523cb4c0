"""Names and records of backups.

The record of a backup has all metadata that is needed to restore and check it. This module also reads the
finished backups of a collection from the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import BackupKind
from strandline.catalog import bulk_paths, chains, paths, recycle_bin
from strandline.catalog.paths import Path
from strandline.catalog.streams import StreamBody
from strandline.errors import Corrupted, PathNotFound
from strandline.model import Digest, IndexDef, Segment, TableSchema
from strandline.names import did_you_mean
from strandline.records import Record, later
from strandline.sql.tokens import word

ROOT = names.COLLECTIONS
META = "__ydb_backup_meta"
STREAM_SUFFIX = "_continuousBackupImpl"
TIME = "%Y%m%d%H%M%SZ"
"""Format of the time in the names of backups and their streams."""

BACKUP_NAME = r"[0-9]{14}Z_(?:full|incremental)"
"""Pattern of backup names."""
_NAME = re.compile(BACKUP_NAME, re.ASCII)
_STREAM = re.compile(rf"[0-9]{{14}}Z{STREAM_SUFFIX}", re.ASCII)

Holds: TypeAlias = Literal["data", "definition"]
"""The content of an index in a backup: its entries, or only its definition.

Asynchronous and omitted indexes have only their definition in a backup.
"""


@dataclass(frozen=True, kw_only=True)
class SliceRecord:
    """The part of a backup that belongs to one table or index.

    Attributes:
        source_id: Id of the table or implementation table that was backed up.
        target_id: Id of the path in the backup that holds the segments.
        whole: The slice holds the whole state, not only the changes since the parent.
        before: Digest of the state at the parent's step. If ``whole``: the digest of an empty state.
        after: Digest of the state at this backup's step.
        delta: Digest of the slice's own rows: before + delta = after. None: a column was dropped since the
            parent, which changes the hashes of rows that the slice does not hold.
        continues: ``source_id`` of the parent's slice, if a restore has replaced that source by this one.
            None: the source is still the same, or the slice does not continue another one.
    """

    source_id: int
    target_id: int
    version: int
    whole: bool
    before: Digest
    after: Digest
    delta: Digest | None
    rows: int
    tombstones: int
    bytes: int
    continues: int | None = later()


@dataclass(frozen=True, kw_only=True)
class Changefeed:
    """A user's own stream on a table. Its position is not part of a backup."""

    name: str
    mode: str
    format: str


@dataclass(frozen=True, kw_only=True)
class IndexRecord:
    """An index of a backed-up table.

    Attributes:
        version: Version of the index and of its implementation table.
        slice: Slice of the index. None: the backup holds only the definition.
    """

    definition: IndexDef
    version: int
    holds: Holds
    slice: SliceRecord | None

    @staticmethod
    def of(definition: IndexDef, version: int, slice_: SliceRecord | None) -> IndexRecord:
        holds: Holds = "definition" if slice_ is None else "data"
        return IndexRecord(definition=definition, version=version, holds=holds, slice=slice_)


@dataclass(frozen=True, kw_only=True)
class TableRecord:
    """A table at the backup's step.

    Attributes:
        was: Path of the table in the parent. None: the table was not renamed since.
    """

    schema: TableSchema
    slice: SliceRecord
    indexes: tuple[IndexRecord, ...] = ()
    changefeeds: tuple[Changefeed, ...] = later(())
    was: str | None = later()

    def index(self, name: str) -> IndexRecord | None:
        return next((i for i in self.indexes if i.definition.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """Restored tables and indexes that have replaced the ones in a backup. The next increment reads these.

    Attributes:
        step: The step of the restore. At this step, the restored tables and indexes were equal to the backup.
        sources: A pair of ids for each table and index of the backup: the id of the source that was backed
            up, and the id of the restored path that has replaced it.
    """

    step: int
    sources: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class BackupHead(Record):
    """Record of a backup without its tables. The backup holds the changes in ``(after_step, step]``.

    A full backup has ``after_step`` 0 and no parent.

    Attributes:
        stream: Name of the streams from which the next increment reads. None: the backup was taken without
            streams, so no increment can continue it.
        pinned: Neither this backup nor the backups that it builds on may be removed.
        stored: Location of the repository that has the backup. None: the backup is in the warehouse.
        synthetic: The backup was taken as an increment, and was compacted into a full backup.
        merged: Increments that were merged into this one, oldest first. They no longer exist as backups.
    """

    name: str
    kind: BackupKind
    parent: str | None
    after_step: int
    step: int
    time: float
    stream: str | None
    pinned: bool = later(False)
    stored: str | None = later()
    synthetic: bool = later(False)
    merged: tuple[str, ...] = later(())

    @property
    def builds_on(self) -> str | None:
        """Name of the parent. None: this is a full backup.

        Raises CORRUPTED if the parent is not an earlier backup, so that following the parents always ends.
        """
        if self.parent is not None and self.parent >= self.name:
            raise Corrupted(
                f"the backup {self.name} builds on {self.parent}, which is not earlier",
                "Drop the collection, and attach its repository again.",
            )
        return self.parent


@dataclass(frozen=True, kw_only=True)
class BackupRecord(BackupHead):
    """One backup.

    Attributes:
        tables: Its tables, by path.
        continued: Set by a restore if the next increment continues from the restored tables.
    """

    tables: Mapping[str, TableRecord] = field(default_factory=dict)
    continued: Continuation | None = later()

    @property
    def slices(self) -> list[SliceRecord]:
        """All slices with data."""
        found = []
        for table in self.tables.values():
            found += [table.slice, *(i.slice for i in table.indexes if i.slice is not None)]
        return found

    @property
    def shaped_slices(self) -> list[tuple[SliceRecord, TableSchema]]:
        """All slices with data, each with the columns of its rows."""
        found = []
        for table in self.tables.values():
            found.append((table.slice, table.schema))
            for index in table.indexes:
                if index.slice is not None:
                    found.append((index.slice, index.definition.impl_schema(table.schema)))
        return found

    @property
    def rows(self) -> int:
        return sum(t.slice.rows for t in self.tables.values())

    @property
    def bytes(self) -> int:
        return sum(s.bytes for s in self.slices)

    def for_a_repository(self) -> BackupRecord:
        """Return the record without the fields that are local to one warehouse."""
        return replace(self, pinned=False, stored=None, continued=None)


def collection_path(name: str) -> str:
    return f"{ROOT}/{name}"


def next_name(kind: BackupKind, now: float, backups: Iterable[str], streams: Iterable[str] = ()) -> str:
    """Return a name for a backup taken now.

    Names have a resolution of one second and must sort in the order of the backups. If the second of ``now``
    or a later one is already used, the name has the first free second after it.

    Args:
        now: Time in seconds since the epoch.
        backups: Names of the collection's backups.
        streams: Names of streams that already exist on the tables.
    """
    moment = datetime.fromtimestamp(now, timezone.utc).replace(microsecond=0)
    earlier = [time_of(name) for name in backups]
    if earlier and max(earlier) >= moment:
        moment = max(earlier) + timedelta(seconds=1)
    taken = set(streams)
    while stream_name(name := f"{moment.strftime(TIME)}_{kind}") in taken:
        moment += timedelta(seconds=1)
    return name


def is_backup_name(name: str) -> bool:
    """Return True if a text is the name of a backup with a valid time."""
    if _NAME.fullmatch(name) is None:
        return False
    try:
        time_of(name)
    except ValueError:
        return False
    return True


def is_stream_name(name: str) -> bool:
    """Return True if a text has the form of a backup stream's name."""
    return _STREAM.fullmatch(name) is not None


def time_of(backup: str) -> datetime:
    """Return the time in a backup's name."""
    return datetime.strptime(backup.split("_", 1)[0], TIME).replace(tzinfo=timezone.utc)


def stream_name(backup: str) -> str:
    """Return the name of the streams that a backup creates."""
    return backup.split("_", 1)[0] + STREAM_SUFFIX


def collections(conn: Connection) -> list[Path]:
    """Return all backup collections, sorted by name."""
    root = paths.find(conn, ROOT)
    below = paths.children(conn, root) if root is not None else []
    return [path for path in below if path.type == "backup_collection"]


def require_collection(conn: Connection, name: str) -> Path:
    """Return the path of a collection. Raise PATH_NOT_FOUND, with a hint, if it does not exist."""
    names.check_text(name)
    found = paths.find(conn, collection_path(name))
    if found is None or found.type != "backup_collection":
        similar = did_you_mean(name, [path.name for path in collections(conn)])
        is_dropped = recycle_bin.find(conn, collection_path(name)) is not None
        raise PathNotFound(
            f"there is no backup collection {name!r}",
            f"It is in the bin. Bring it back with UNDROP BACKUP COLLECTION {word(name)}."
            if is_dropped
            else similar or "List the collections with SHOW BACKUP COLLECTIONS.",
        )
    return found


def require_backup(conn: Connection, collection: Path, there: Collection[str], name: str) -> None:
    """Refuse a backup name that does not exist.

    If the backup was merged, the error says which backup has its changes.

    Args:
        there: Names of the existing backups.
    """
    if name in there:
        return
    for _, head in backup_heads(conn, collection):
        if name in head.merged:
            raise PathNotFound(
                f"the backup {name} was merged into {head.name}, which holds its changes and those after it",
                f"Name {head.name} instead, or the backup before it.",
            )
    raise PathNotFound(
        f"the collection {collection.name!r} has no backup {name!r}",
        did_you_mean(name, list(there)) or "List them with SHOW BACKUPS IN collection.",
    )


HEAD = 2000
"""Number of characters to read from the start of a backup's record.

In most records they contain all fields of ``BackupHead``. Otherwise the whole record is read.
"""


def backup_heads(conn: Connection, collection: Path) -> list[tuple[Path, BackupHead]]:
    """Return the finished backups of a collection, oldest first, without their tables.

    A backup can have very many tables. A record stores them after the fields of ``BackupHead``, so only the
    beginning of each record is read.
    """
    return backup_heads_of(conn, [collection])[collection.id]


def backup_heads_of(
    conn: Connection, collections: Sequence[Path]
) -> dict[int, list[tuple[Path, BackupHead]]]:
    """Return the finished backups of several collections, as ``backup_heads``, by id of the collection."""
    found = paths.backups_of(conn, collections, most=HEAD)
    heads = {path.id: _head(path) for listed in found.values() for path in listed}
    unread = paths.by_ids(conn, [path_id for path_id, head in heads.items() if head is None])
    whole = {path.id: path.record(BackupRecord) for path in unread}
    return {
        collection_id: [(path, heads[path.id] or whole[path.id]) for path in listed]
        for collection_id, listed in found.items()
    }


def ancestors(conn: Connection, collection: Path, backup: BackupHead) -> list[str]:
    """Return the names of the backups that a backup builds on, its parent first."""
    parents = {head.name: head.parent for _, head in backup_heads(conn, collection)}
    found: list[str] = []
    name = backup.parent
    while name is not None and name not in found:
        found.append(name)
        name = parents.get(name)
    return found


def _head(path: Path) -> BackupHead | None:
    """Return the head of a backup from the beginning of its record. None: read the whole record."""
    first, found, _ = path.body.partition(', "tables": ')
    if found:
        try:
            return path._replace(body=first + "}").record(BackupHead)
        except Corrupted:
            pass  # The whole record reports the damage.
    return None


def backup_records(conn: Connection, collection: Path) -> list[BackupRecord]:
    """Return the finished backups of a collection, oldest first."""
    return [path.record(BackupRecord) for path in paths.backups(conn, collection)]


def last_backup(conn: Connection, collection: Path) -> BackupRecord | None:
    """Return the last finished backup of a collection."""
    found = paths.backups(conn, collection, last=True)
    return found[0].record(BackupRecord) if found else None


def slice_segments(
    conn: Connection, backup: BackupRecord, slices: Iterable[SliceRecord]
) -> dict[int, Sequence[Segment]]:
    """Return the segments of slices of a backup, by ``target_id``.

    Raise CORRUPTED if the size of a slice's segments is not the recorded size.
    """
    wanted = {slice_.target_id: slice_.bytes for slice_ in slices}
    found = chains.segments_of_backups(conn, wanted, backup.step)
    for target_id, size in wanted.items():
        if sum(s.bytes for s in found.get(target_id, ())) != size:
            raise Corrupted(
                f"{backup.name} does not hold the {size} bytes that it recorded", "Restore an earlier backup."
            )
    return {i: found.get(i, ()) for i in wanted}


def chain_to(records: Sequence[BackupRecord], name: str) -> list[BackupRecord]:
    """Return the chain of the backup ``name``: a full backup and increments, in order.

    Raise CORRUPTED if a backup of the chain is missing, or does not begin where its parent ends.
    """
    by_name = {record.name: record for record in records}
    found: list[BackupRecord] = []
    here: str | None = name
    while here is not None:
        record = by_name.get(here)
        if record is None:
            raise Corrupted(
                f"the backup {here}, on which {found[-1].name if found else name} builds, is missing",
                "Restore an earlier backup.",
            )
        found.append(record)
        here = record.builds_on
    found.reverse()
    _check_links(found)
    return found


def _check_links(chain: Sequence[BackupRecord]) -> None:
    first = chain[0]
    if first.kind != "full":
        raise Corrupted(
            f"the chain of {chain[-1].name} begins with the increment {first.name}",
            "Restore an earlier full backup.",
        )
    for parent, child in pairwise(chain):
        check_link(parent, child)


def check_link(parent: BackupRecord, child: BackupRecord) -> None:
    """Refuse an increment that does not begin where its parent ends."""
    if child.kind != "incremental" or child.after_step != parent.step:
        raise Corrupted(
            f"{child.name} begins after step {child.after_step}, but its parent {parent.name} ends at "
            f"step {parent.step}",
            f"Restore {parent.name} or an earlier backup.",
        )
    for path, table in child.tables.items():
        if (table.was or path) not in parent.tables and not table.slice.whole:
            raise Corrupted(
                f"{path} is in {child.name} but not in its parent {parent.name}",
                f"Restore {parent.name}.",
            )


def slices_of(
    chain: Sequence[BackupRecord], path: str, index: str | None = None
) -> list[tuple[int, SliceRecord]]:
    """Return the slices that add up to a table or index at the end of a chain.

    The result has pairs of a backup's position in the chain and its slice, oldest first. It begins with a
    whole slice. Raise CORRUPTED if the recorded digests do not lead from each slice to the next one.

    Args:
        path: Path of the table at the end of the chain.
        index: Name of the index. None: the table itself.
    """
    found: list[tuple[int, SliceRecord]] = []
    for place, record, table in _through(chain, path):
        slice_ = _slice_in(table, index)
        if slice_ is None:
            continue
        check_slice(path, record, slice_, found[-1][1] if found else None)
        if slice_.whole:
            found.clear()
        found.append((place, slice_))
    return found


def _through(chain: Sequence[BackupRecord], path: str) -> list[tuple[int, BackupRecord, TableRecord]]:
    """Return the records of a table in the backups of a chain, following renames.

    Each item has the position of the backup in the chain, the backup, and its record of the table, oldest
    first. The result begins at the last whole slice, or after the last backup without the table.
    """
    found: list[tuple[int, BackupRecord, TableRecord]] = []
    for place in reversed(range(len(chain))):
        table = chain[place].tables.get(path)
        if table is None:
            break
        found.append((place, chain[place], table))
        if table.slice.whole:
            break  # Earlier backups may have a different table of this name.
        path = table.was or path
    return found[::-1]


def _follows(earlier: SliceRecord, later_: SliceRecord) -> bool:
    """Return True if two slices have the same source, and ``later_`` begins where ``earlier`` ends."""
    source_id = later_.source_id if later_.continues is None else later_.continues
    return earlier.after == later_.before and earlier.source_id == source_id


def changefeeds_of(conn: Connection, tables: Sequence[Path]) -> dict[int, tuple[Changefeed, ...]]:
    """Return the users' streams on tables, by table id. Tables without users' streams are left out."""
    found: dict[int, list[Changefeed]] = {}
    for table_id, stream in bulk_paths.streams_below(conn, tables):
        body = stream.record(StreamBody)
        feed = Changefeed(name=stream.name, mode=body.mode, format=body.format)
        found.setdefault(table_id, []).append(feed)
    return {table_id: tuple(feeds) for table_id, feeds in found.items()}


def check_slice(path: str, record: BackupRecord, slice_: SliceRecord, before: SliceRecord | None) -> None:
    """Refuse a slice whose digests do not add up, or that does not continue the slice before it.

    Args:
        path: Path of the table, for the error message.
        record: The backup that has the slice.
        before: The slice of the same table or index in the backup before. None: there is none.
    """
    if slice_.whole:
        pass  # A whole slice begins with an empty state.
    elif before is None:
        raise Corrupted(
            f"{path}: {record.name} continues something that no earlier backup has",
            "Restore an earlier backup.",
        )
    elif not _follows(before, slice_):
        raise Corrupted(
            f"{path}: {record.name} begins with the digest {slice_.before.hex}, but the backup before it "
            f"ends with {before.after.hex}",
            "Restore an earlier backup.",
        )
    check_sum(path, record, slice_)


def check_sum(path: str, record: BackupRecord, slice_: SliceRecord) -> None:
    """Refuse a slice unless before + delta = after. See ``SliceRecord``."""
    if slice_.delta is not None and slice_.before + slice_.delta != slice_.after:
        raise Corrupted(
            f"{path}: the digests that {record.name} recorded do not add up", "Restore an earlier backup."
        )


def _slice_in(table: TableRecord | None, index: str | None) -> SliceRecord | None:
    if table is None or index is None:
        return None if table is None else table.slice
    record = table.index(index)
    return None if record is None else record.slice
