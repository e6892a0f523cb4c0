"""CREATE, ALTER, DROP and UNDROP BACKUP COLLECTION.

DROP is an operation: it ends the streams of the collection and moves the collection with its backups to the
bin. The other statements are one transaction each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import CLUSTER, CollectionRecord, CollectionRequest
from strandline.backups.record import (
    BackupHead,
    backup_heads,
    backup_records,
    collection_path,
    collections,
    require_collection,
)
from strandline.backups.repository.place_check import check_place
from strandline.backups.repository.repository import Repository, of_another
from strandline.backups.retention.pins import refuse_pinned
from strandline.catalog import bulk_paths, paths, recycle_bin, sessions, sizes, tables, warehouse
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import Path
from strandline.catalog.recycle_bin import BinEntry
from strandline.catalog.transactions import Writer
from strandline.catalog.warehouse_settings import settings_at
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, PreconditionFailed, Unavailable
from strandline.names import closest, did_you_mean
from strandline.operations.kind import Body, Kind, Plan, Planning, Run
from strandline.operations.streams import DropStreamPart, plan_drops
from strandline.records import Nothing, Record, later
from strandline.runtime import Runtime
from strandline.sql.constants import constant
from strandline.sql.tokens import quote
from strandline.storage.location import is_inside
from strandline.storage.repository_marker import Expected, NotExpected


def create_collection(
    runtime: Runtime, name: str, collection: CollectionRecord, *, check: bool = True
) -> int:
    """Create a collection, and return the step of the change.

    Args:
        check: Check first that backups can be stored at its location.
    """
    names.check_name(name)
    names.check_not_reserved(name, "collection")
    with runtime.catalog.read() as conn:
        _check_new(conn, name, collection)
    if check:
        _check_storage(runtime, collection)
    with runtime.catalog.write() as tx:
        _check_new(tx.conn, name, collection)
        path = collection_path(name)
        parent = bulk_paths.make_parent(tx, path)
        row = bulk_paths.add_one(tx, NewPath(parent, name, "backup_collection", collection))
        tables.publish(tx, [row.id])
        return tx.step


def _check_new(conn: Connection, name: str, collection: CollectionRecord) -> None:
    if paths.find(conn, collection_path(name)) is not None:
        raise AlreadyExists(
            f"there is a backup collection {name!r} already", "Choose another name, or drop it first."
        )
    check_apart(conn, collection.settings.storage)
    check_one_writer(conn, name, collection)


def _check_storage(runtime: Runtime, collection: CollectionRecord) -> None:
    settings = collection.settings
    if settings.storage != CLUSTER:
        check_place(settings.storage, runtime.settings, encrypted=settings.encryption)


def missing_tables(conn: Connection, collection: CollectionRecord) -> list[str]:
    """Return a warning for each table of the collection that does not exist yet."""
    wanted = collection.tables or ()
    found = bulk_paths.find(conn, wanted)
    missing = [path for path in wanted if path not in found or found[path].type != "table"]
    if not missing:
        return []
    there = [table.path for table in paths.user_tables(conn, paths.require(conn, "/"))]
    said = []
    for path in missing:
        close = closest(path, there)
        meant = f"; did you mean {close.lstrip('/')}?" if close else ""
        said.append(f"there is no table {path.lstrip('/')} yet{meant}")
    return said


def check_apart(conn: Connection, storage: str) -> None:
    """Refuse a repository inside the warehouse's folder, and a warehouse inside the repository's folder.

    Otherwise, deleting all files of the outer one would also delete the files of the inner one.
    """
    here = warehouse.require(conn).location
    if storage == CLUSTER or here is None:
        return
    if is_inside(storage, here) or is_inside(here, storage):
        raise InvalidArgument(
            f"the repository {storage} and the warehouse {here} must not be inside each other",
            "Choose a place on another disk, or in another bucket, so that one outlives the other. Backups "
            "that are in the warehouse itself have STORAGE = 'cluster'.",
        )


def check_one_writer(conn: Connection, name: str, collection: CollectionRecord) -> None:
    """Refuse a collection if another one of this warehouse writes to its repository.

    Each collection would treat the other's backups as its own, and its retention rules would delete them.
    """
    root = collection.settings.storage
    other = None if collection.attached else writer_of(conn, name, root)
    if other is not None:
        raise of_another(root, other)


def writer_of(conn: Connection, name: str, storage: str) -> str | None:
    """Return the name of another collection of this warehouse that writes to a repository.

    None: no other collection writes to it.

    Args:
        name: Name of the collection that is ignored in the search.
        storage: Location of the repository.
    """
    if storage == CLUSTER:
        return None
    for other in collections(conn):
        known = other.record(CollectionRecord)
        if known.settings.storage == storage and not known.attached and other.name != name:
            return other.name
    return None


def alter_collection(
    runtime: Runtime, name: str, change: Callable[[CollectionRecord], CollectionRecord], *, check: bool = True
) -> int:
    """Change the record of a collection, and return the step of the change.

    Args:
        change: Function that returns the changed record. It is called twice, before and in the transaction.
            If it raises an error, the collection stays as it is.
        check: If the location changes, check first that backups can be stored there.
    """
    with runtime.catalog.read() as conn:
        row = require_collection(conn, name)
        paths.check_ready(row)
        before = row.record(CollectionRecord)
        changed = change(before)
        _check_place(conn, row, before, changed)
    was, is_ = before.settings, changed.settings
    if check and (was.storage, was.encryption) != (is_.storage, is_.encryption):
        _check_storage(runtime, changed)
    with runtime.catalog.write() as tx:
        row = require_collection(tx.conn, name)
        paths.check_ready(row)
        before = row.record(CollectionRecord)
        changed = change(before)
        _check_place(tx.conn, row, before, changed)
        check_one_writer(tx.conn, name, changed)
        paths.set_body(tx, row.id, changed)
        paths.set_version(tx, row.id, row.version + 1)
        tables.publish(tx, [row.id])
        return tx.step


def _check_place(conn: Connection, row: Path, before: CollectionRecord, changed: CollectionRecord) -> None:
    """Refuse a new location if the present repository has backups, or if the new one is not allowed."""
    was, is_ = before.settings, changed.settings
    if was.storage != is_.storage:
        check_apart(conn, is_.storage)
    if (was.storage, was.encryption) == (is_.storage, is_.encryption) or was.storage == CLUSTER:
        return
    if before.attached or any(record.stored for record in backup_records(conn, row)):
        raise PreconditionFailed(
            f"the collection {row.name!r} has backups in {was.storage}",
            "Create another collection for another place. If the repository was moved, drop this one, which "
            "leaves the repository alone, and attach it again where it is.",
        )


@dataclass(frozen=True, kw_only=True)
class DropCollectionRequest(CollectionRequest):
    """Request to drop a collection.

    Attributes:
        purge: Delete the collection at once; do not move it to the bin.
    """

    purge: bool = later(False)


@dataclass(frozen=True, kw_only=True)
class DropCollectionBody(Body):
    """State of the operation.

    Attributes:
        by: The user and the process that dropped the collection.
    """

    by: str | None = later()


@dataclass(frozen=True, kw_only=True)
class DroppedCollection(Record):
    """Result of dropping a collection.

    Attributes:
        bytes: Size that is freed when the collection is deleted.
        until: Time until which the collection can be restored from the bin. None: it is deleted at once.
        repository: Location of its repository. None: its backups are in the warehouse.
        kept: Number of backups that stay in the repository.
        unsent: Number of backups that are not in the repository.
    """

    collection: str
    backups: int
    bytes: int
    until: float | None
    repository: str | None
    kept: int
    unsent: int


class DropCollection(Kind[DropCollectionRequest, DropCollectionBody, Nothing]):
    """Operation that moves a collection with its backups to the bin, and ends its streams.

    Tables that were restored from its backups stay. The operation is refused if a backup is pinned.
    """

    name = "drop collection"
    request, body, progress = DropCollectionRequest, DropCollectionBody, Nothing

    def __init__(self) -> None:
        self.handlers = {"drop stream": DropStreamPart()}

    def plan(self, tx: Writer, run: Planning[DropCollectionRequest]) -> Plan[DropCollectionBody, Nothing]:
        path = require_collection(tx.conn, run.request.collection)
        refuse_pinned(tx.conn, path)
        streams = bulk_paths.owned_paths(tx.conn, path.id)
        run.lock(tx, paths.subtree(tx.conn, path), "dropping")
        body = DropCollectionBody(by=sessions.this_user())
        return Plan(plan_drops(tx, run, streams) if streams else [], body, Nothing())

    def finish(
        self, tx: Writer, run: Run[DropCollectionRequest, DropCollectionBody, Nothing]
    ) -> DroppedCollection:
        path = require_collection(tx.conn, run.request.collection)
        what = what_goes(tx.conn, path, tx.now, purge=run.request.purge)
        if what.until is not None:
            last = paths.backups(tx.conn, path, last=True)
            if last:
                # The streams of the last backup end, so no increment may continue it.
                paths.set_body(tx, path.id, replace(path.record(CollectionRecord), dropped=last[0].name))
            recycle_bin.put(tx, path, run.body.by, run.operation.id)
        return what


def what_goes(conn: Connection, path: Path, now: float, *, purge: bool) -> DroppedCollection:
    """Return the result of dropping a collection, without dropping it."""
    seconds = 0.0 if purge else settings_at(conn, now).bin_seconds
    storage = path.record(CollectionRecord).settings.storage
    heads = [head for _, head in backup_heads(conn, path)]
    kept = sum(head.stored is not None for head in heads)
    is_elsewhere = storage != CLUSTER
    return DroppedCollection(
        collection=path.name,
        backups=len(heads),
        bytes=sizes.bytes_only_in(conn, [p.id for p in paths.subtree(conn, path) if p.type == "table"]),
        until=now + seconds if seconds else None,
        repository=storage if is_elsewhere else None,
        kept=kept,
        unsent=len(heads) - kept if is_elsewhere else 0,
    )


def undrop_collection(runtime: Runtime, name: str, as_name: str | None) -> tuple[Path, int]:
    """Move a collection from the bin back to its place. Return its path and the step of the change.

    If the bin has several collections of this name, take the one that was dropped last. The streams of the
    collection ended when it was dropped, so its next backup is a full one.

    Args:
        as_name: New name of the collection. None: it keeps its name.
    """
    new_name = name if as_name is None else as_name
    names.check_name(new_name)
    names.check_not_reserved(new_name, "collection")
    with runtime.catalog.read() as conn:
        dropped = _in_bin(conn, name).root
        heads = [head for _, head in backup_heads(conn, dropped)]
    _check_unchanged(runtime, dropped, heads)
    with runtime.catalog.write() as tx:
        entry = _in_bin(tx.conn, name)
        if paths.find(tx.conn, collection_path(new_name)) is not None:
            raise AlreadyExists(
                f"there is a backup collection {new_name!r} already",
                f"Give it another name: UNDROP BACKUP COLLECTION {quote(name)} AS other.",
            )
        check_one_writer(tx.conn, new_name, entry.root.record(CollectionRecord))
        parent = bulk_paths.make_parent(tx, collection_path(new_name))
        return recycle_bin.take_back(tx, entry, parent, new_name), tx.step


def _in_bin(conn: Connection, name: str) -> BinEntry:
    found = recycle_bin.find(conn, collection_path(name))
    if found is None:
        raise PathNotFound(
            f"there is no backup collection {name!r} in the bin",
            did_you_mean(name, (entry.root.name for entry in recycle_bin.entries(conn)))
            or "List what is there with SHOW BIN.",
        )
    return found


def _check_unchanged(runtime: Runtime, path: Path, heads: Sequence[BackupHead]) -> None:
    """Refuse a dropped collection if its repository has other backups than when it was dropped."""
    collection = path.record(CollectionRecord)
    root = collection.settings.storage
    if root == CLUSTER or collection.attached:
        return
    known = {head.name for head in heads} | {name for head in heads for name in head.merged}
    known |= set(collection.leaving)
    expected = Expected(encrypted=collection.settings.encryption, id=collection.repository)
    try:
        files, is_there = runtime.files.open_anew(root, expected)
        there = set(Repository(files, root).backups())
    except NotExpected:
        raise
    except (Unavailable, PreconditionFailed):
        return  # The repository cannot be reached now. It is checked when it is next used.
    if is_there and not {head.name for head in heads if head.stored == root} <= there <= known:
        raise AlreadyExists(
            f"the repository {root} has other backups than when the collection {path.name!r} was dropped",
            f"Make a collection of what it has now: ATTACH BACKUP COLLECTION other FROM {constant(root)}.",
        )
