"""CREATE, ALTER and DROP BACKUP COLLECTION. The first two are one transaction; dropping one also drops its
streams and its backups."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import Collection, CollectionRequest, collection_path
from strandline.backups.full import owned_streams
from strandline.backups.inventory import require_collection
from strandline.catalog import board, paths, tables
from strandline.catalog.connection import Catalog
from strandline.errors import AlreadyExists
from strandline.operations.kind import Body, Kind, Plan, Planning, Run
from strandline.operations.streams import DropStreamPart, plan_drops
from strandline.records import Nothing


def create_collection(catalog: Catalog, name: str, collection: Collection) -> int:
    names.check_name(name)
    names.check_not_reserved(name, "collection")
    with catalog.write() as conn:
        path = collection_path(name)
        if paths.find(conn, path) is not None:
            raise AlreadyExists(
                f"there is a backup collection {name!r} already", "Choose another name, or drop it first."
            )
        step = board.next_step(conn)
        parent = paths.make_parents(conn, path, step)
        row = paths.add(conn, parent, name, "backup_collection", body=collection, step=step)
        tables.publish(conn, step, catalog.clock.now(), [row.id])
        return step


def alter_collection(catalog: Catalog, name: str, change: Callable[[Collection], Collection]) -> int:
    """Store what ``change`` makes of a collection. An exception of it leaves the collection as it was."""
    with catalog.write() as conn:
        row = require_collection(conn, name)
        paths.check_ready(row)
        paths.set_body(conn, row.id, change(row.record(Collection)))
        paths.set_version(conn, row.id, row.version + 1)
        step = board.next_step(conn)
        tables.publish(conn, step, catalog.clock.now(), [row.id])
        return step


class DropCollection(Kind[CollectionRequest, Body, Nothing]):
    """The collection's backups and its own streams go with it; restored tables stay."""

    name = "drop collection"
    request, body, progress = CollectionRequest, Body, Nothing

    def __init__(self) -> None:
        self.handlers = {"drop stream": DropStreamPart()}

    def plan(self, conn: Connection, run: Planning[CollectionRequest]) -> Plan[Body, Nothing]:
        path = require_collection(conn, run.request.collection)
        streams = [stream.path for stream in owned_streams(conn, path)]
        run.lock(conn, paths.subtree(conn, path), "dropping")
        return Plan(plan_drops(conn, run, streams) if streams else [], Body(), Nothing())

    def finish(
        self, conn: Connection, run: Run[CollectionRequest, Body, Nothing], step: int
    ) -> CollectionRequest:
        return run.request
