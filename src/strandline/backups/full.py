"""Backups of a collection: one operation over all its tables and their synchronous indexes, cut at one step.

A full backup is a consistent copy by reference, with streams of one name on everything it copies;
``increment`` has the other kind. Either is recorded in the body of the backup's path with all that a restore
and a check need.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from strandline.backups.collection import STREAM_SUFFIX, BackupKind, Collection, next_name, stream_name
from strandline.backups.inventory import require_collection
from strandline.backups.record import BackupRecord, IndexRecord, SliceRecord, TableRecord
from strandline.catalog import board, chains, paths, sizes
from strandline.catalog.operations import CREATED_STATES
from strandline.catalog.paths import Path, require_id
from strandline.catalog.tables import TableInfo
from strandline.catalog.versions import unit_above
from strandline.errors import PreconditionFailed
from strandline.model import Digest
from strandline.operations.copy import CopyRequest, copy_handlers, plan_copy
from strandline.operations.kind import Kind, Plan, Run
from strandline.operations.streams import StreamSpec

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
    return [p for p in paths.streams(conn) if p.body.get("owner") == collection.id]


def outdated_streams(conn: Connection, run: Run, collection: Path) -> list[str]:
    """The collection's streams that the backup replaces. One that was left on a table which is no longer a
    member, and which another operation works on at the moment, goes with a later backup: it must not make
    this one fail by chance."""
    found = []
    for stream in owned_streams(conn, collection):
        table = require_id(conn, stream.parent_id)
        if all(
            p.state == paths.READY or p.operation_id == run.operation.id
            for p in (stream, table, *unit_above(conn, table))
        ):
            found.append(stream.path)
    return found


class Backup(Kind):
    """What both kinds share: the collection is locked, the backup gets its name, its path and, at the end,
    its record."""

    kind: BackupKind

    def _begin(self, conn: Connection, run: Run) -> tuple[Path, Collection, list[Path]]:
        path = require_collection(conn, run.operation.request["collection"])
        collection = Collection.from_json(path.body)
        members = member_tables(conn, collection)
        if not members:
            raise PreconditionFailed(
                f"the collection {path.name!r} has no tables", "Create a table, or add one to the collection."
            )
        run.lock(conn, [path], "copying")
        return path, collection, members

    def _make_backup(
        self, conn: Connection, run: Run, collection: Path, members: list[Path], step: int
    ) -> Path:
        sources = [
            i
            for member in members
            for i in (member.id, *(ref.impl_id for ref in TableInfo.of(member).indexes))
        ]
        taken = [name for name in paths.names_below(conn, sources) if name.endswith(STREAM_SUFFIX)]
        name = next_name(self.kind, run.now, paths.names_below(conn, [collection.id]), taken)
        return paths.add(
            conn, collection, name, "backup", {}, step, state="creating", operation_id=run.operation.id
        )

    def _record(self, conn: Connection, run: Run, record: BackupRecord) -> dict[str, Any]:
        backup = require_id(conn, run.operation.body["backup_id"])
        paths.set_body(conn, backup.id, record.to_json())
        return {
            "backup": record.name,
            "step": record.step,
            "tables": len(record.tables),
            "rows": record.rows,
            "bytes": record.bytes,
        }


class FullBackup(Backup):
    """Request: ``collection``, its name."""

    name = "backup"
    kind = "full"

    def __init__(self) -> None:
        self.handlers = copy_handlers()

    def plan(self, conn: Connection, run: Run) -> Plan:
        path, collection, members = self._begin(conn, run)
        step = board.current_step(conn)
        backup = self._make_backup(conn, run, path, members, step)
        stream = (
            StreamSpec(stream_name(backup.name), STREAM_MODE, "JSON", path.id)
            if collection.incremental
            else None
        )
        request = CopyRequest(
            tuple((member.path, f"{backup.path}{member.path}") for member in members),
            stream,
            collection.omit_indexes,
            tuple(outdated_streams(conn, run, path)),
        )
        parts = plan_copy(conn, run, request, step)
        return Plan(parts, {"backup_id": backup.id, "step": step, "members": {m.path: m.id for m in members}})

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        body = run.operation.body
        backup = require_id(conn, body["backup_id"])
        collection = Collection.from_json(require_id(conn, backup.parent_id).body)
        records = {
            path: self._table(conn, run, backup, path, source_id)
            for path, source_id in body["members"].items()
        }
        stream = stream_name(backup.name) if collection.incremental else None
        return self._record(
            conn,
            run,
            BackupRecord(backup.name, "full", None, 0, body["step"], run.operation.created, stream, records),
        )

    def _table(self, conn: Connection, run: Run, backup: Path, path: str, source_id: int) -> TableRecord:
        source = require_id(conn, source_id)
        target = TableInfo.of(paths.require(conn, f"{backup.path}{path}", "table"))
        originals = {ref.definition.name: ref for ref in TableInfo.of(source).indexes}
        indexes = []
        for ref in target.indexes:
            impl = require_id(conn, originals[ref.definition.name].impl_id)
            version = run.registry.effective(conn, impl, run.operation.id)
            if ref.omitted:
                indexes.append(IndexRecord(ref.definition, version, "definition"))
            else:
                indexes.append(
                    IndexRecord(ref.definition, version, "data", self._slice(conn, run, impl, ref.impl_id))
                )
        return TableRecord(target.schema, self._slice(conn, run, source, target.id), tuple(indexes))

    def _slice(self, conn: Connection, run: Run, source: Path, target_id: int) -> SliceRecord:
        digest = chains.state(conn, target_id).digest
        size = sizes.bytes_of(conn, target_id)
        version = run.registry.effective(conn, source, run.operation.id)
        return SliceRecord(
            source.id, target_id, version, True, Digest(), digest, digest, digest.rows, 0, size
        )
