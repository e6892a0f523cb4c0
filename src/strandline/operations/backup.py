"""Full and incremental backups of a collection: one operation over all its tables and their synchronous indexes, cut at one step.

A full backup is a consistent copy by reference, with streams of one name on everything it copies. An incremental one folds what those
streams have seen since the last cut, one slice for each table and index, and rotates to new streams at exactly its own cut. Either is
recorded in the body of the backup's path with all that a restore and a check need.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from strandline.backup.collections import META, BackupKind, Collection, collection_path, next_name, stream_name
from strandline.backup.records import BackupRecord, IndexRecord, SliceRecord, TableRecord
from strandline.catalog import board, chains, operations, paths, schema, tables
from strandline.catalog.operations import Part
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import TableInfo
from strandline.errors import Corrupted, PathNotFound, PreconditionFailed
from strandline.model import Digest, TableSchema
from strandline.operations.context import Context
from strandline.operations.copy import CopyRequest, copy_handlers, plan_copy
from strandline.operations.kind import Kind, PartPlan, Plan, Run
from strandline.operations.streams import DropStreamPart, StreamPart, StreamSpec, plan_drops, require_id
from strandline.storage.slices import Slice, Window, write_slice

STREAM_MODE = "NEW_IMAGE"


def require_collection(conn: Connection, name: str) -> Path:
    found = paths.find(conn, collection_path(name))
    if found is None or found.type != "backup_collection":
        raise PathNotFound(f"there is no backup collection {name!r}", "List the collections with SHOW BACKUP COLLECTIONS.")
    return found


def backup_records(conn: Connection, collection: Path) -> list[BackupRecord]:
    """The finished backups of a collection, oldest first: names sort in the order of time."""
    return [BackupRecord.from_json(p.body) for p in paths.children(conn, collection) if p.type == "backup" and p.state != "creating"]


def member_tables(conn: Connection, collection: Collection) -> list[Path]:
    """The tables that a backup taken now would hold."""
    if collection.tables is not None:
        return [paths.require(conn, path, "table") for path in collection.tables]
    found = paths.subtree(conn, paths.require(conn, "/"))
    return [p for p in found if p.type == "table" and p.name != IMPL_TABLE and not p.path.startswith("/.backups/")]


def owned_streams(conn: Connection, collection: Path) -> list[str]:
    """The streams that belong to a collection. Ownership is recorded in the stream, never guessed from its name."""
    ids = conn.execute(select(schema.paths.c.id).where(schema.paths.c.type == "stream")).scalars().all()
    return [p.path for p in paths.by_ids(conn, ids) if p.body.get("owner") == collection.id]


class _Backup(Kind):
    """What both kinds share: the collection is locked, the backup gets its name, its path and, at the end, its record."""

    kind: BackupKind

    def _begin(self, conn: Connection, run: Run) -> tuple[Path, Collection, list[Path], list[BackupRecord]]:
        path = require_collection(conn, run.operation.request["collection"])
        collection = Collection.from_json(path.body)
        members = member_tables(conn, collection)
        if not members:
            raise PreconditionFailed(f"the collection {path.name!r} has no tables", "Create a table, or add one to the collection.")
        records = backup_records(conn, path)
        run.lock(conn, [path], "copying")
        return path, collection, members, records

    def _make_backup(self, conn: Connection, run: Run, collection: Path, step: int) -> Path:
        names = [p.name for p in paths.children(conn, collection)]
        name = next_name(self.kind, run.now, names)
        return paths.add(conn, collection, name, "backup", {}, step, state="creating", operation_id=run.operation.id)

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


class FullBackup(_Backup):
    """Request: ``collection``, its name."""

    name = "backup"
    kind = "full"

    def __init__(self) -> None:
        self.handlers = copy_handlers()

    def plan(self, conn: Connection, run: Run) -> Plan:
        path, collection, members, _ = self._begin(conn, run)
        step = board.current_step(conn)
        backup = self._make_backup(conn, run, path, step)
        stream = StreamSpec(stream_name(backup.name), STREAM_MODE, "JSON", path.id) if collection.incremental else None
        request = CopyRequest(
            tuple((member.path, f"{backup.path}{member.path}") for member in members),
            stream,
            collection.omit_indexes,
            tuple(owned_streams(conn, path)),
        )
        parts = plan_copy(conn, run, request, step)
        return Plan(parts, {"backup_id": backup.id, "step": step, "members": {m.path: m.id for m in members}})

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        body = run.operation.body
        backup = require_id(conn, body["backup_id"])
        collection = Collection.from_json(require_id(conn, backup.parent_id).body)
        records = {path: self._table(conn, run, backup, path, source_id) for path, source_id in body["members"].items()}
        stream = stream_name(backup.name) if collection.incremental else None
        return self._record(conn, run, BackupRecord(backup.name, "full", None, 0, body["step"], run.now, stream, records))

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
                indexes.append(IndexRecord(ref.definition, version, "data", self._slice(conn, run, impl, ref.impl_id)))
        return TableRecord(target.schema, self._slice(conn, run, source, target.id), tuple(indexes))

    def _slice(self, conn: Connection, run: Run, source: Path, target_id: int) -> SliceRecord:
        step = run.operation.body["step"]
        digest = chains.state(conn, target_id).digest
        size = sum(s.bytes for s in chains.load(conn, target_id, step).segments)
        version = run.registry.effective(conn, source, run.operation.id)
        return SliceRecord(source.id, target_id, version, True, Digest(), digest, digest, digest.rows, 0, size)


class IncrementalBackup(_Backup):
    """Request: ``collection``, its name."""

    name = "incremental backup"
    kind = "incremental"

    def __init__(self, context: Context) -> None:
        self.handlers = {"slice": SlicePart(context), "drop stream": DropStreamPart()}

    def plan(self, conn: Connection, run: Run) -> Plan:
        path, collection, members, records = self._begin(conn, run)
        if not collection.incremental:
            raise PreconditionFailed(
                f"the collection {path.name!r} does not take incremental backups",
                "Switch them on with ALTER BACKUP COLLECTION ... SET (INCREMENTAL_BACKUP_ENABLED = 'true'), then take a full backup.",
            )
        parent = _parent(path, records)
        step = board.current_step(conn)
        run.pin(conn, step)
        backup = self._make_backup(conn, run, path, step)
        stream = StreamSpec(stream_name(backup.name), STREAM_MODE, "JSON", path.id)
        parts: list[PartPlan] = []
        old_streams: list[str] = []
        for member in members:
            found, streams = self._plan_member(conn, run, collection, parent, backup, member, stream, step)
            parts += found
            old_streams += streams
        left_over = [s for s in owned_streams(conn, path) if s not in old_streams]
        parts += plan_drops(conn, run, [*old_streams, *left_over])
        return Plan(parts, {"backup_id": backup.id, "step": step, "parent": parent.name, "members": {m.path: m.id for m in members}})

    def _plan_member(
        self,
        conn: Connection,
        run: Run,
        collection: Collection,
        parent: BackupRecord,
        backup: Path,
        member: Path,
        stream: StreamSpec,
        step: int,
    ) -> tuple[list[PartPlan], list[str]]:
        info = TableInfo.of(member)
        before = parent.tables.get(member.path)
        old_stream = f"{member.path}/{parent.stream}"
        if before is None or before.slice.source_id != member.id or paths.find(conn, old_stream) is None:
            raise PreconditionFailed(
                f"{member.path} was created, restored or added after the backup {parent.name}, so its changes since then are not known",
                "Take a full backup first: BACKUP collection.",
            )
        indexes = [(ref, require_id(conn, ref.index_id), require_id(conn, ref.impl_id)) for ref in info.indexes]
        run.lock(conn, [member, *(p for _, index, impl in indexes for p in (index, impl))], "copying")
        target = _make_increment(conn, run, f"{backup.path}{member.path}", member, step)
        dropped = _dropped_columns(info.schema) != _dropped_columns(before.schema)
        parts = [_slice_plan(member, target.id, before.slice, parent.step, step, stream, column_dropped=dropped)]
        streams = [old_stream]
        for ref, _, impl in indexes:
            if not ref.definition.is_sync or collection.omit_indexes or ref.omitted:
                continue
            known = before.index(ref.definition.name)
            previous = known.slice if known is not None else None
            if previous is not None and previous.source_id != impl.id:
                previous = None  # dropped and built again: a new one
            if previous is not None:
                old = f"{impl.path}/{parent.stream}"
                if paths.find(conn, old) is None:
                    raise PreconditionFailed(
                        f"the stream {old} is gone, so the changes of the index are not known", "Take a full backup first."
                    )
                streams.append(old)
            at = f"{backup.path}/{META}/indexes{member.path}/{ref.definition.name}"
            entries = _make_increment(conn, run, at, impl, step)
            parts.append(_slice_plan(impl, entries.id, previous, parent.step, step, stream))
        return parts, streams

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        body = run.operation.body
        backup = require_id(conn, body["backup_id"])
        made = {p.body["table_id"]: p.body for p in operations.parts(conn, run.operation.id) if p.kind == "slice"}
        records = {path: self._table(conn, run, source_id, made) for path, source_id in body["members"].items()}
        collection = require_id(conn, backup.parent_id)
        parent = next(r for r in backup_records(conn, collection) if r.name == body["parent"])
        record = BackupRecord(
            backup.name, "incremental", parent.name, parent.step, body["step"], run.now, stream_name(backup.name), records
        )
        return self._record(conn, run, record)

    def _table(self, conn: Connection, run: Run, source_id: int, made: dict[int, dict[str, Any]]) -> TableRecord:
        source = require_id(conn, source_id)
        info = TableInfo.of(source)
        indexes = []
        for ref in info.indexes:
            impl = require_id(conn, ref.impl_id)
            version = run.registry.effective(conn, impl, run.operation.id)
            if ref.impl_id in made:
                indexes.append(IndexRecord(ref.definition, version, "data", _slice_record(conn, run, impl, made)))
            else:
                indexes.append(IndexRecord(ref.definition, version, "definition"))
        return TableRecord(info.schema, _slice_record(conn, run, source, made), tuple(indexes))


class SlicePart(StreamPart):
    """Folds one source's changes since the last cut into the increment, and begins the new stream where they end."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def work(self, run: Run, part: Part) -> Slice | None:
        if part.state != "configure":
            return None
        body, context = part.body, self._context
        with context.catalog.read() as conn:
            source = TableInfo.of(require_id(conn, body["table_id"]))
            if body["whole"]:
                # A merge since the cut may have put later changes into the same segment; the state at the cut leaves them out.
                window = Window(body["after"], body["step"], chain=chains.load(conn, source.id, body["step"]))
            else:
                window = Window(body["after"], body["step"], chains.log_between(conn, source.id, body["after"], body["step"]))
        name = context.session.file_name(body["target_id"])
        return write_slice(context.files, source.schema, window, name, context.settings.bulk_rows, lambda: context.spark)

    def configure(self, conn: Connection, run: Run, part: Part, made: Slice) -> dict[str, Any]:
        body = part.body
        after = chains.digest_at(conn, body["table_id"], body["step"])
        before = Digest.parse(*body["before"])
        # Dropping a column changes the hashes of rows that the window does not hold, so then there is nothing to compare with.
        if not body["column_dropped"] and before + made.delta != after:
            path = require_id(conn, body["table_id"]).path
            raise Corrupted(
                f"the changes of {path} since step {body['after']} lead to {(before + made.delta).hex} "
                f"({(before + made.delta).rows} rows), but {after.hex} ({after.rows} rows) was recorded",
                f"Run db.check({path!r}), and take a full backup.",
            )
        if made.segments:
            # The changes are those of the window's steps, whenever they were folded.
            chains.attach(conn, body["target_id"], chains.insert_segments(conn, made.segments, body["step"]), body["step"])
        tables.add_state(conn, body["target_id"], body["step"], run.now, Digest(made.rows, after.value))
        counted = {"rows": made.rows, "tombstones": made.tombstones, "bytes": made.bytes}
        told = {"delta": [made.delta.rows, made.delta.hex], "digest": [after.rows, after.hex]}
        run.report(conn, bytes=run.operation.progress.get("bytes", 0) + made.bytes)
        return super().configure(conn, run, replace(part, body={**body, **counted, **told}), made)


def _parent(collection: Path, records: list[BackupRecord]) -> BackupRecord:
    if not records:
        raise PreconditionFailed(f"the collection {collection.name!r} has no full backup yet", "Take one first: BACKUP collection.")
    if records[-1].stream is None:
        raise PreconditionFailed(
            f"{records[-1].name} was taken while incremental backups were off, so nothing was followed since", "Take a full backup first."
        )
    return records[-1]


def _make_increment(conn: Connection, run: Run, path: str, source: Path, step: int) -> Path:
    parent = run.make_parents(conn, path, step)
    body = {"schema": source.body["schema"], "indexes": [], "increment": True}
    return paths.add(conn, parent, path.rsplit("/", 1)[1], "table", body, step, state="creating", operation_id=run.operation.id)


def _slice_plan(
    source: Path,
    target_id: int,
    previous: SliceRecord | None,
    after: int,
    step: int,
    stream: StreamSpec,
    *,
    column_dropped: bool = False,
) -> PartPlan:
    before = Digest() if previous is None else previous.after
    return PartPlan(
        "slice",
        {
            "table_id": source.id,
            "target_id": target_id,
            "after": after,
            "step": step,
            "whole": previous is None,
            "before": [before.rows, before.hex],
            "column_dropped": column_dropped,
            "stream": stream.to_json(),
        },
    )


def _slice_record(conn: Connection, run: Run, source: Path, made: dict[int, dict[str, Any]]) -> SliceRecord:
    body = made[source.id]
    version = run.registry.effective(conn, source, run.operation.id)
    return SliceRecord(
        source.id,
        body["target_id"],
        version,
        body["whole"],
        Digest.parse(*body["before"]),
        Digest.parse(*body["digest"]),
        None if body["column_dropped"] else Digest.parse(*body["delta"]),
        body["rows"],
        body["tombstones"],
        body["bytes"],
    )


def _dropped_columns(table: TableSchema) -> set[int]:
    return set(range(1, table.next_id)) - {c.id for c in table.columns}
