"""Full backups, and the base class of full and incremental backups.

One operation backs up all tables of a collection and their synchronous indexes. The backup holds their state
at one step. A full backup is a consistent copy by reference. If the collection takes increments, the full
backup also creates a stream on each table and index that it copies; all these streams have the same name. The
module ``incremental`` has the incremental backups.

The catalog stores the record of a backup as the body of the backup's path. The record has all metadata that
a restore and a check need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import (
    CLUSTER,
    BackupKind,
    BackupResult,
    CollectionRecord,
    CollectionRequest,
    SendRequest,
)
from strandline.backups.record import (
    STREAM_SUFFIX,
    BackupRecord,
    IndexRecord,
    SliceRecord,
    TableRecord,
    changefeeds_of,
    collection_path,
    next_name,
    require_collection,
    stream_name,
)
from strandline.backups.retention.expiry import retain
from strandline.backups.verify.damage import find_damaged
from strandline.backups.verify.verification_history import key_of, list_damaged_objects
from strandline.catalog import bulk_paths, chains, paths, sizes
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.operations import CREATED_STATES, OperationRow
from strandline.catalog.paths import Path, require_id
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.catalog.transactions import Writer, current_step
from strandline.errors import PathNotFound, PreconditionFailed
from strandline.model import Digest
from strandline.operations.copy import CopyRequest, copy_handlers, plan_copy
from strandline.operations.engine import Engine
from strandline.operations.kind import Body, G, Kind, Plan, Planning, Run
from strandline.operations.streams import StreamSpec, droppable_streams, plan_drops
from strandline.records import Nothing, Record, later
from strandline.runtime import Runtime
from strandline.sql.constants import constant
from strandline.sql.tokens import word


def backup_stream(name: str, collection: Path) -> StreamSpec:
    """Return the specification of the streams from which the next increment reads."""
    return StreamSpec(name=name, mode="NEW_IMAGE", owner=collection.id)


def member_tables(conn: Connection, path: Path) -> list[Path]:
    """Return the tables that a backup of a collection would hold if it was taken now."""
    collection = path.record(CollectionRecord)
    if collection.tables is not None:
        try:
            return bulk_paths.require_tables(conn, collection.tables)
        except PathNotFound as error:
            there = bulk_paths.find(conn, collection.tables)
            missing = next(t for t in collection.tables if t not in there or there[t].type != "table")
            raise PathNotFound(
                f"{error.message}, a member of the collection",
                "Create, restore or undrop it; or take it out: ALTER BACKUP COLLECTION "
                f"{word(path.name)} DROP TABLE {word(missing.lstrip('/'))}.",
            ) from error
    everywhere = paths.user_tables(conn, paths.require(conn, "/"))
    # Leave out tables that an operation is creating, and tables that a restore has replaced.
    return [
        path for path in everywhere if path.state not in CREATED_STATES and not names.is_replaced(path.path)
    ]


class FullNeeded(PreconditionFailed):
    """Error: an increment is not possible, but a full backup is."""


def take_full(collection: Path) -> str:
    """Return the hint of a ``FullNeeded`` error, which says how to take a full backup."""
    name = word(collection.name)
    return f"Take a full backup first: BACKUP {name}, or BACKUP {name} INCREMENTAL OR FULL."


def full_because(conn: Connection, collection: str) -> str | None:
    """Return why a full backup must be taken instead of an increment. None: take an increment.

    An increment could not be restored if the last backup needs a damaged object. A full backup needs only the
    objects of the tables themselves. If one of these is damaged too, a full backup could not be restored
    either, so the result is None.
    """
    path = paths.find(conn, collection_path(collection))
    if path is None or not (damaged := find_damaged(conn, path)):
        return None
    last = paths.backups(conn, path, last=True)[0].name
    if last not in damaged:
        return None
    tables = [TableInfo.of(member) for member in member_tables(conn, path)]
    ids = [i for table in tables for i in (table.id, *(ref.impl_id for ref in table.indexes))]
    objects = {
        key_of(s) for held in chains.segments_of_backups(conn, ids, current_step(conn)).values() for s in held
    }
    return None if objects & list_damaged_objects(conn) else f"{last} cannot be restored: {damaged[last]}"


def check_ours(path: Path, collection: CollectionRecord) -> None:
    """Refuse to change backups of an attached collection: its repository belongs to another collection."""
    if collection.attached:
        raise PreconditionFailed(
            f"the repository {collection.settings.storage} of the collection {path.name!r} belongs to "
            "another warehouse, or to another collection of this one",
            "Restore from it. If that warehouse is lost, take it over: ATTACH BACKUP COLLECTION "
            f"{word(path.name)} FROM {constant(collection.settings.storage)} WITH (TAKE_OVER = 'true').",
        )


def retention_here(collection: CollectionRecord) -> str | None:
    """Return the retention rules to apply as soon as the backup is taken. None: apply no rules then.

    If the collection has a repository, the result is None, because its rules are applied after the upload.
    """
    return collection.settings.retention if collection.settings.storage == CLUSTER else None


@dataclass(frozen=True, kw_only=True)
class BackupBody(Body):
    """State of the operation.

    Attributes:
        backup_id: Id of the path of the backup.
        step: The step whose state is backed up.
        members: Ids of the tables, by path.
        retention: Retention rules to apply at the end. None: apply no rules.
        warning: Warning for the result.
    """

    backup_id: int
    step: int
    members: dict[str, int]
    retention: str | None = later()
    warning: str | None = later()


B = TypeVar("B", bound=BackupBody)


class CollectionBackup(Kind[CollectionRequest, B, G]):
    """Base of full and incremental backups: locks the collection, names the backup and writes its record."""

    kind: BackupKind
    request = CollectionRequest

    def _begin(
        self, tx: Writer, run: Planning[CollectionRequest]
    ) -> tuple[Path, CollectionRecord, list[tuple[Path, TableInfo]]]:
        path = require_collection(tx.conn, run.request.collection)
        collection = path.record(CollectionRecord)
        members = member_tables(tx.conn, path)
        if not members:
            raise PreconditionFailed(
                f"the collection {path.name!r} has no tables", "Create a table, or add one to the collection."
            )
        check_ours(path, collection)
        run.lock(tx, [path], "copying")
        return path, collection, [(member, TableInfo.of(member)) for member in members]

    def _make_backup(
        self,
        tx: Writer,
        run: Planning[CollectionRequest],
        collection: Path,
        members: Sequence[tuple[Path, TableInfo]],
        step: int,
    ) -> Path:
        """Create and return the path of the backup. Its record is empty until the backup is finished."""
        sources = [i for _, info in members for i in (info.id, *(ref.impl_id for ref in info.indexes))]
        taken = paths.names_below(tx.conn, sources, STREAM_SUFFIX)
        dropped = collection.record(CollectionRecord).dropped
        earlier = [*paths.names_below(tx.conn, [collection.id]), *([dropped] if dropped else [])]
        name = next_name(self.kind, tx.now, earlier, taken)
        new = NewPath(collection, name, "backup", Nothing())
        return bulk_paths.add_one(tx, new, step=step, state="creating", operation_id=run.id)

    def follow(self, conn: Connection, run: Run[CollectionRequest, B, G]) -> tuple[str, Record] | None:
        """Upload the backup if the collection has a repository."""
        collection = require_collection(conn, run.request.collection).record(CollectionRecord)
        if collection.settings.storage == CLUSTER:
            return None
        request = run.request
        return "send backup", SendRequest(
            collection=request.collection, limits=request.limits, taken_by=run.operation.id
        )

    def _record(
        self, tx: Writer, run: Run[CollectionRequest, B, G], backup: Path, record: BackupRecord
    ) -> BackupResult:
        paths.set_body(tx, backup.id, record)
        return BackupResult(
            backup=record.name,
            step=record.step,
            tables=len(record.tables),
            rows=record.rows,
            bytes=record.bytes,
            because=run.request.because,
            warning=run.body.warning,
            retention=run.body.retention,
        )

    def after(self, engine: Engine, operation: OperationRow, result: BackupResult) -> None:
        """Apply the retention rules of the collection."""
        if result.retention is not None:
            retain(engine, operation, result)


FullRun: TypeAlias = Run[CollectionRequest, BackupBody, Nothing]


class FullBackup(CollectionBackup[BackupBody, Nothing]):
    """Operation that backs up all tables of a collection."""

    name = "backup"
    kind = "full"
    body, progress = BackupBody, Nothing

    def __init__(self, runtime: Runtime) -> None:
        self.handlers = copy_handlers()
        self._shard_bytes = runtime.settings.shard_bytes

    def plan(self, tx: Writer, run: Planning[CollectionRequest]) -> Plan[BackupBody, Nothing]:
        path, collection, members = self._begin(tx, run)
        step = current_step(tx.conn)
        backup = self._make_backup(tx, run, path, members, step)
        stream = backup_stream(stream_name(backup.name), path) if collection.settings.incremental else None
        request = CopyRequest(
            tuple((member.path, f"{backup.path}{member.path}") for member, _ in members),
            self._shard_bytes,
            stream,
            collection.settings.omit_indexes,
        )
        parts = plan_copy(tx, run, request, step)
        # Drop the streams of earlier backups. If another operation has locked one, a later backup drops it.
        outdated = droppable_streams(tx.conn, run, path)
        parts += plan_drops(tx, run, outdated) if outdated else []
        body = BackupBody(
            backup_id=backup.id,
            step=step,
            members={m.path: m.id for m, _ in members},
            retention=retention_here(collection),
        )
        return Plan(parts, body, Nothing())

    def finish(self, tx: Writer, run: FullRun) -> BackupResult:
        backup = require_id(tx.conn, run.body.backup_id)
        collection = require_id(tx.conn, backup.parent_id).record(CollectionRecord)
        record = BackupRecord(
            name=backup.name,
            kind="full",
            parent=None,
            after_step=0,
            step=run.body.step,
            time=run.operation.created,
            stream=stream_name(backup.name) if collection.settings.incremental else None,
            tables=self._tables(tx.conn, run, backup),
        )
        return self._record(tx, run, backup, record)

    def _tables(self, conn: Connection, run: FullRun, backup: Path) -> dict[str, TableRecord]:
        members = run.body.members
        sources = {p.id: p for p in paths.by_ids(conn, members.values())}
        found = bulk_paths.find(conn, [f"{backup.path}{path}" for path in members])
        targets = {path: TableInfo.of(found[f"{backup.path}{path}"]) for path in members}
        originals = {path: _impl_ids(sources[source_id]) for path, source_id in members.items()}
        below = [i for ids in originals.values() for i in ids.values()]
        versions = run.registry.effective(conn, [*sources, *below], run.operation.id)
        ids = [i for t in targets.values() for i in (t.id, *(ref.impl_id for ref in t.indexes))]
        feeds = changefeeds_of(conn, list(sources.values()))
        heads, sizes_ = chains.states(conn, ids), sizes.bytes_of(conn, ids)

        def slice_(source_id: int, target_id: int) -> SliceRecord:
            digest = heads[target_id].digest
            return SliceRecord(
                source_id=source_id,
                target_id=target_id,
                version=versions[source_id],
                whole=True,
                before=Digest(),
                after=digest,
                delta=digest,
                rows=digest.rows,
                tombstones=0,
                bytes=sizes_.get(target_id, 0),
            )

        def index(path: str, ref: IndexRef) -> IndexRecord:
            source_id = originals[path][ref.name]
            held = None if ref.omitted else slice_(source_id, ref.impl_id)
            return IndexRecord.of(ref.definition, versions[source_id], held)

        return {
            path: TableRecord(
                schema=target.schema,
                slice=slice_(members[path], target.id),
                indexes=tuple(index(path, ref) for ref in target.indexes),
                changefeeds=feeds.get(members[path], ()),
            )
            for path, target in targets.items()
        }


def _impl_ids(table: Path) -> dict[str, int]:
    """Return the ids of a table's implementation tables, by index name."""
    return {ref.name: ref.impl_id for ref in TableInfo.of(table).indexes}
