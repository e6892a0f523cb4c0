"""Backups of a collection: one operation over all its tables and their synchronous indexes, cut at one step.

A full backup is a consistent copy by reference, with streams of one name on everything it copies;
``increment`` has the other kind. Either is recorded in the body of the backup's path with all that a restore
and a check need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection

from strandline.backups.collection import (
    STREAM_SUFFIX,
    BackupKind,
    Collection,
    CollectionRequest,
    next_name,
    stream_name,
)
from strandline.backups.inventory import require_collection
from strandline.backups.record import BackupRecord, IndexRecord, SliceRecord, TableRecord
from strandline.catalog import board, chains, paths, sizes
from strandline.catalog.operations import CREATED_STATES
from strandline.catalog.paths import Path, require_id
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import TableInfo
from strandline.catalog.versions import unit_above
from strandline.catalog.writer import Writer
from strandline.errors import PreconditionFailed
from strandline.model import Digest
from strandline.operations.copy import CopyRequest, copy_handlers, plan_copy
from strandline.operations.kind import Body, G, Kind, Plan, Planning, Run
from strandline.operations.streams import StreamSpec
from strandline.records import Nothing, Record

STREAM_MODE = "NEW_IMAGE"


def member_tables(conn: Connection, collection: Collection) -> list[Path]:
    """The tables that a backup taken now would hold."""
    if collection.tables is not None:
        return [paths.require(conn, path, "table") for path in collection.tables]
    everywhere = paths.user_tables(conn, paths.require(conn, "/"))
    # Those that an operation is about to create are not there yet.
    return [path for path in everywhere if path.state not in CREATED_STATES]


def owned_streams(conn: Connection, collection: Path) -> list[Path]:
    """The streams that belong to a collection. Ownership is recorded in the stream, never guessed from its
    name."""
    return [p for p in paths.streams(conn) if p.record(StreamBody).owner == collection.id]


def outdated_streams(conn: Connection, run: Planning[Any], collection: Path) -> list[str]:
    """The collection's streams that the backup replaces. One that was left on a table which is no longer a
    member, and which another operation works on at the moment, goes with a later backup: it must not make
    this one fail by chance."""
    found = []
    for stream in owned_streams(conn, collection):
        table = require_id(conn, stream.parent_id)
        if all(
            p.state == paths.READY or p.operation_id == run.id
            for p in (stream, table, *unit_above(conn, table))
        ):
            found.append(stream.path)
    return found


@dataclass(frozen=True, kw_only=True)
class BackupBody(Body):
    """``members``: the ids of the tables, by path. ``step``: where all of them are cut."""

    backup_id: int
    step: int
    members: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class BackupResult(Record):
    """``tables`` and ``rows`` count, ``rows`` without those of indexes."""

    backup: str
    step: int
    tables: int
    rows: int
    bytes: int


B = TypeVar("B", bound=BackupBody)


class Backup(Kind[CollectionRequest, B, G]):
    """What both kinds share: the collection is locked, the backup gets its name, its path and, at the end,
    its record."""

    kind: BackupKind
    request = CollectionRequest

    def _begin(self, tx: Writer, run: Planning[CollectionRequest]) -> tuple[Path, Collection, list[Path]]:
        path = require_collection(tx.conn, run.request.collection)
        collection = path.record(Collection)
        members = member_tables(tx.conn, collection)
        if not members:
            raise PreconditionFailed(
                f"the collection {path.name!r} has no tables", "Create a table, or add one to the collection."
            )
        run.lock(tx, [path], "copying")
        return path, collection, members

    def _make_backup(
        self,
        tx: Writer,
        run: Planning[CollectionRequest],
        collection: Path,
        members: list[Path],
        step: int,
    ) -> Path:
        """The path of the backup, which has no record before it is finished."""
        sources = [
            i
            for member in members
            for i in (member.id, *(ref.impl_id for ref in TableInfo.of(member).indexes))
        ]
        taken = [name for name in paths.names_below(tx.conn, sources) if name.endswith(STREAM_SUFFIX)]
        name = next_name(self.kind, tx.now, paths.names_below(tx.conn, [collection.id]), taken)
        return paths.add(
            tx,
            collection,
            name,
            "backup",
            body=Nothing(),
            step=step,
            state="creating",
            operation_id=run.id,
        )

    def _record(self, tx: Writer, backup: Path, record: BackupRecord) -> BackupResult:
        paths.set_body(tx, backup.id, record)
        return BackupResult(
            backup=record.name,
            step=record.step,
            tables=len(record.tables),
            rows=record.rows,
            bytes=record.bytes,
        )


FullRun: TypeAlias = Run[CollectionRequest, BackupBody, Nothing]


class FullBackup(Backup[BackupBody, Nothing]):
    """All tables of a collection as they are."""

    name = "backup"
    kind = "full"
    body, progress = BackupBody, Nothing

    def __init__(self) -> None:
        self.handlers = copy_handlers()

    def plan(self, tx: Writer, run: Planning[CollectionRequest]) -> Plan[BackupBody, Nothing]:
        path, collection, members = self._begin(tx, run)
        step = board.current_step(tx.conn)
        backup = self._make_backup(tx, run, path, members, step)
        stream = (
            StreamSpec(stream_name(backup.name), STREAM_MODE, "JSON", path.id)
            if collection.incremental
            else None
        )
        request = CopyRequest(
            tuple((member.path, f"{backup.path}{member.path}") for member in members),
            stream,
            collection.omit_indexes,
            tuple(outdated_streams(tx.conn, run, path)),
        )
        parts = plan_copy(tx, run, request, step)
        body = BackupBody(backup_id=backup.id, step=step, members={m.path: m.id for m in members})
        return Plan(parts, body, Nothing())

    def finish(self, tx: Writer, run: FullRun) -> BackupResult:
        backup = require_id(tx.conn, run.body.backup_id)
        collection = require_id(tx.conn, backup.parent_id).record(Collection)
        record = BackupRecord(
            name=backup.name,
            kind="full",
            parent=None,
            after_step=0,
            step=run.body.step,
            time=run.operation.created,
            stream=stream_name(backup.name) if collection.incremental else None,
            tables={
                path: self._table(tx.conn, run, backup, path, source_id)
                for path, source_id in run.body.members.items()
            },
        )
        return self._record(tx, backup, record)

    def _table(self, conn: Connection, run: FullRun, backup: Path, path: str, source_id: int) -> TableRecord:
        source = require_id(conn, source_id)
        target = TableInfo.of(paths.require(conn, f"{backup.path}{path}", "table"))
        originals = {ref.definition.name: ref for ref in TableInfo.of(source).indexes}
        indexes = []
        for ref in target.indexes:
            impl = require_id(conn, originals[ref.definition.name].impl_id)
            version = run.registry.effective(conn, impl, run.operation.id)
            slice_ = None if ref.omitted else self._slice(conn, run, impl, ref.impl_id)
            indexes.append(IndexRecord.of(ref.definition, version, slice_))
        return TableRecord(
            schema=target.schema, slice=self._slice(conn, run, source, target.id), indexes=tuple(indexes)
        )

    def _slice(self, conn: Connection, run: FullRun, source: Path, target_id: int) -> SliceRecord:
        digest = chains.state(conn, target_id).digest
        size = sizes.bytes_of(conn, target_id)
        version = run.registry.effective(conn, source, run.operation.id)
        return SliceRecord(
            source_id=source.id,
            target_id=target_id,
            version=version,
            whole=True,
            before=Digest(),
            after=digest,
            delta=digest,
            rows=digest.rows,
            tombstones=0,
            bytes=size,
        )
