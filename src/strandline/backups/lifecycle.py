"""CREATE, ALTER and DROP BACKUP COLLECTION. The first two are one transaction; dropping one also drops its
streams and its backups."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import CLUSTER, Collection, CollectionRequest
from strandline.backups.pins import refuse_pinned
from strandline.backups.record import backup_records, collection_path, collections, require_collection
from strandline.backups.repository import of_another
from strandline.catalog import many, paths, tables, warehouse
from strandline.catalog.connection import Catalog
from strandline.catalog.many import NewPath
from strandline.catalog.paths import Path
from strandline.catalog.writer import Writer
from strandline.errors import AlreadyExists, InvalidArgument, PreconditionFailed
from strandline.operations.kind import Body, Kind, Plan, Planning, Run
from strandline.operations.streams import DropStreamPart, plan_drops
from strandline.records import Nothing
from strandline.storage.location import is_inside


def create_collection(catalog: Catalog, name: str, collection: Collection) -> int:
    names.check_name(name)
    names.check_not_reserved(name, "collection")
    with catalog.write() as tx:
        path = collection_path(name)
        if paths.find(tx.conn, path) is not None:
            raise AlreadyExists(
                f"there is a backup collection {name!r} already", "Choose another name, or drop it first."
            )
        check_apart(tx.conn, collection.settings.storage)
        parent = many.make_parent(tx, path)
        check_one_writer(tx.conn, name, collection)
        row = many.add_one(tx, NewPath(parent, name, "backup_collection", collection))
        tables.publish(tx, [row.id])
        return tx.step


def check_apart(conn: Connection, storage: str) -> None:
    """Refuse a repository that would go with the warehouse whose backups it is for, or into which that would
    have to be put: what removes the files of the one would meet those of the other."""
    here = warehouse.require(conn).location
    if storage == CLUSTER or here is None:
        return
    if is_inside(storage, here) or is_inside(here, storage):
        raise InvalidArgument(
            f"the repository {storage} and the warehouse {here} would be one inside the other",
            "Choose a place on another disk, or in another bucket, so that one outlives the other. Backups "
            "that are in the warehouse itself have STORAGE = 'cluster'.",
        )


def check_one_writer(conn: Connection, name: str, collection: Collection) -> None:
    """Refuse a collection whose repository another one of this warehouse adds to: each would take the
    other's backups for its own, and what it removes by its rules would be theirs, too."""
    root = collection.settings.storage
    other = None if collection.attached else writer_of(conn, name, root)
    if other is not None:
        raise of_another(root, other)


def writer_of(conn: Connection, name: str, storage: str) -> str | None:
    """Return the collection of this warehouse other than ``name`` that adds to a repository."""
    if storage == CLUSTER:
        return None
    for other in collections(conn):
        known = other.record(Collection)
        if known.settings.storage == storage and not known.attached and other.name != name:
            return other.name
    return None


def alter_collection(catalog: Catalog, name: str, change: Callable[[Collection], Collection]) -> int:
    """Store what ``change`` makes of a collection. An exception of it leaves the collection as it was."""
    with catalog.write() as tx:
        row = require_collection(tx.conn, name)
        paths.check_ready(row)
        before = row.record(Collection)
        changed = change(before)
        _check_place(tx.conn, row, before, changed)
        check_one_writer(tx.conn, name, changed)
        paths.set_body(tx, row.id, changed)
        paths.set_version(tx, row.id, row.version + 1)
        tables.publish(tx, [row.id])
        return tx.step


def _check_place(conn: Connection, row: Path, before: Collection, changed: Collection) -> None:
    """Refuse another place for backups that lie in a repository, which goes with its collection; and one that
    is no place for any."""
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


class DropCollection(Kind[CollectionRequest, Body, Nothing]):
    """The collection's backups and its own streams go with it; restored tables stay. Refused if a backup is
    pinned."""

    name = "drop collection"
    request, body, progress = CollectionRequest, Body, Nothing

    def __init__(self) -> None:
        self.handlers = {"drop stream": DropStreamPart()}

    def plan(self, tx: Writer, run: Planning[CollectionRequest]) -> Plan[Body, Nothing]:
        path = require_collection(tx.conn, run.request.collection)
        refuse_pinned(tx.conn, path)
        streams = many.owned(tx.conn, path.id)
        run.lock(tx, paths.subtree(tx.conn, path), "dropping")
        return Plan(plan_drops(tx, run, streams) if streams else [], Body(), Nothing())

    def finish(self, tx: Writer, run: Run[CollectionRequest, Body, Nothing]) -> CollectionRequest:
        return run.request
