"""Incremental backups: what the streams of the last backup have seen since its cut, folded to one row per
key.

There is one slice for each table and each synchronous index. Its part folds the changes, checks that they
lead to the digest that was recorded at the cut, and begins the new stream at exactly that cut; the old
streams go when all of it is published.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from strandline.backups.collection import META, Collection, stream_name
from strandline.backups.full import STREAM_MODE, Backup, outdated_streams
from strandline.backups.inventory import backup_records, last_backup
from strandline.backups.record import BackupRecord, IndexRecord, SliceRecord, TableRecord, chain_to, slices_of
from strandline.catalog import board, chains, commits, operations, paths, tables
from strandline.catalog.operations import Part
from strandline.catalog.paths import Path, require_id
from strandline.catalog.tables import TableInfo
from strandline.errors import Corrupted, PreconditionFailed, StrandlineError
from strandline.model import Chain, Digest, Segment, TableSchema
from strandline.operations.kind import PartPlan, Plan, Run
from strandline.operations.streams import DropStreamPart, StreamPart, StreamSpec, plan_drops
from strandline.runtime import Runtime
from strandline.storage.chain import State
from strandline.storage.slices import Slice, Window


class IncrementalBackup(Backup):
    """Request: ``collection``, its name."""

    name = "incremental backup"
    kind = "incremental"

    def __init__(self, runtime: Runtime) -> None:
        self.handlers = {"slice": SlicePart(runtime), "drop stream": DropStreamPart()}

    def plan(self, conn: Connection, run: Run) -> Plan:
        path, collection, members = self._begin(conn, run)
        if not collection.incremental:
            raise PreconditionFailed(
                f"the collection {path.name!r} does not take incremental backups",
                "Switch them on with ALTER BACKUP COLLECTION ... SET (INCREMENTAL_BACKUP_ENABLED = "
                "'true'), then take a full backup.",
            )
        parent = _parent(conn, path)
        step = board.current_step(conn)
        run.pin(conn, step)
        backup = self._make_backup(conn, run, path, members, step)
        stream = StreamSpec(stream_name(backup.name), STREAM_MODE, "JSON", path.id)
        parts: list[PartPlan] = []
        old_streams: list[str] = []
        for member in members:
            found, streams = self._plan_member(conn, run, collection, parent, backup, member, stream, step)
            parts += found
            old_streams += streams
        parts += plan_drops(conn, run, [*old_streams, *outdated_streams(conn, run, path)])
        body = {"backup_id": backup.id, "step": step, "parent": parent.name, "after": parent.step}
        return Plan(parts, {**body, "members": {m.path: m.id for m in members}})

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
                f"{member.path} was created, restored or added after the backup {parent.name}, so its "
                "changes since then are not known",
                "Take a full backup first: BACKUP collection.",
            )
        indexes = [
            (ref, require_id(conn, ref.index_id), require_id(conn, ref.impl_id)) for ref in info.indexes
        ]
        run.lock(conn, [member, *(p for _, index, impl in indexes for p in (index, impl))], "copying")
        target = _make_increment(conn, run, f"{backup.path}{member.path}", member, step)
        base = None
        if _dropped_columns(info.schema) != _dropped_columns(before.schema):
            chain = chain_to(backup_records(conn, require_id(conn, backup.parent_id)), parent.name)
            base = [(slice_.target_id, chain[place].step) for place, slice_ in slices_of(chain, member.path)]
        parts = [_slice_plan(member, target.id, before.slice, parent.step, step, stream, base)]
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
                        f"the stream {old} is gone, so the changes of the index are not known",
                        "Take a full backup first.",
                    )
                streams.append(old)
            at = f"{backup.path}/{META}/indexes{member.path}/{ref.definition.name}"
            entries = _make_increment(conn, run, at, impl, step)
            parts.append(_slice_plan(impl, entries.id, previous, parent.step, step, stream))
        return parts, streams

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        body = run.operation.body
        backup = require_id(conn, body["backup_id"])
        made = {
            p.body["table_id"]: p.body for p in operations.parts(conn, run.operation.id) if p.kind == "slice"
        }
        records = {
            path: self._table(conn, run, source_id, made) for path, source_id in body["members"].items()
        }
        record = BackupRecord(
            backup.name,
            "incremental",
            body["parent"],
            body["after"],
            body["step"],
            run.operation.created,
            stream_name(backup.name),
            records,
        )
        return self._record(conn, run, record)

    def _table(
        self, conn: Connection, run: Run, source_id: int, made: dict[int, dict[str, Any]]
    ) -> TableRecord:
        source = require_id(conn, source_id)
        info = TableInfo.of(source)
        indexes = []
        for ref in info.indexes:
            impl = require_id(conn, ref.impl_id)
            version = run.registry.effective(conn, impl, run.operation.id)
            if ref.impl_id in made:
                indexes.append(
                    IndexRecord(ref.definition, version, "data", _slice_record(conn, run, impl, made))
                )
            else:
                indexes.append(IndexRecord(ref.definition, version, "definition"))
        return TableRecord(info.schema, _slice_record(conn, run, source, made), tuple(indexes))


class SlicePart(StreamPart):
    """Folds one source's changes since the last cut into the increment, and begins the new stream where they
    end."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def work(self, run: Run, part: Part) -> Slice | None:
        if part.state != "configure":
            return None
        body, runtime = part.body, self._runtime
        with runtime.catalog.read() as conn:
            source = TableInfo.of(require_id(conn, body["table_id"]))
            if body["whole"]:
                # A merge since the cut may have put later changes into the same segment; the state at the cut
                # leaves them out.
                window = Window(body["after"], body["step"], chain=chains.load(conn, source.id, body["step"]))
            else:
                window = Window(
                    body["after"],
                    body["step"],
                    chains.log_between(conn, source.id, body["after"], body["step"]),
                )
            recorded = commits.digest_at(conn, source.id, body["step"])
            base = [
                s
                for target_id, step in body["base"] or ()
                for s in chains.load(conn, target_id, step).segments
            ]
        name = runtime.session.file_name(body["target_id"])
        made = runtime.store.slice(source.schema, window, name)
        try:
            self._check(source, body, made, base, recorded)
        except StrandlineError:
            runtime.store.discard(made.segments)
            raise
        return made

    def _check(
        self, source: TableInfo, body: dict[str, Any], made: Slice, base: list[Segment], recorded: Digest
    ) -> None:
        """What the earlier backups hold and these changes must lead to the digest that was recorded at the
        cut."""
        if body["base"] is None:
            found = Digest.parse(*body["before"]) + made.delta
        else:
            # Dropping a column changed the hashes of rows that the window does not hold, so for once all of
            # them are read.
            chain = Chain((*base, *made.segments), body["step"])
            found = self._runtime.store.digest(State(source.schema, chain))
        if found != recorded:
            raise Corrupted(
                f"the changes of {source.path} since step {body['after']} lead to {found.hex} "
                f"({found.rows} rows), "
                f"but {recorded.hex} ({recorded.rows} rows) was recorded",
                f"Run db.check({source.path!r}), and take a full backup.",
            )

    def configure(self, conn: Connection, run: Run, part: Part, made: Slice) -> dict[str, Any]:
        body = part.body
        after = commits.digest_at(conn, body["table_id"], body["step"])
        if made.segments:
            # The changes are those of the window's steps, whenever they were folded.
            chains.attach(
                conn,
                body["target_id"],
                chains.insert_segments(conn, made.segments, body["step"]),
                body["step"],
            )
        tables.add_state(conn, body["target_id"], body["step"], run.now, Digest(made.rows, after.value))
        counted = {"rows": made.rows, "tombstones": made.tombstones, "bytes": made.bytes}
        told = {"delta": [made.delta.rows, made.delta.hex], "digest": [after.rows, after.hex]}
        run.report(conn, bytes=run.operation.progress.get("bytes", 0) + made.bytes)
        return super().configure(conn, run, replace(part, body={**body, **counted, **told}), made)


def _parent(conn: Connection, collection: Path) -> BackupRecord:
    last = last_backup(conn, collection)
    if last is None:
        raise PreconditionFailed(
            f"the collection {collection.name!r} has no full backup yet", "Take one first: BACKUP collection."
        )
    if last.stream is None:
        raise PreconditionFailed(
            f"{last.name} was taken while incremental backups were off, so nothing was followed since",
            "Take a full backup first.",
        )
    return last


def _make_increment(conn: Connection, run: Run, path: str, source: Path, step: int) -> Path:
    parent = run.make_parents(conn, path, step)
    body = {"schema": source.body["schema"], "indexes": [], "increment": True}
    return paths.add(
        conn,
        parent,
        path.rsplit("/", 1)[1],
        "table",
        body,
        step,
        state="creating",
        operation_id=run.operation.id,
    )


def _slice_plan(
    source: Path,
    target_id: int,
    previous: SliceRecord | None,
    after: int,
    step: int,
    stream: StreamSpec,
    base: list[tuple[int | None, int]] | None = None,
) -> PartPlan:
    """``base``: where the earlier backups hold the table, if it cannot do without it to check the slice."""
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
            "base": base,
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
        None if body["base"] is not None else Digest.parse(*body["delta"]),
        body["rows"],
        body["tombstones"],
        body["bytes"],
    )


def _dropped_columns(table: TableSchema) -> set[int]:
    return set(range(1, table.next_id)) - {c.id for c in table.columns}
