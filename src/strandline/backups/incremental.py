"""Incremental backups: what the streams of the last backup have seen since its cut, folded to one row per
key.

There is one slice for each table and each synchronous index. Its part folds the changes, checks that they
lead to the digest that was recorded at the cut, and begins the new stream at exactly that cut; the old
streams go when all of it is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlalchemy import Connection

from strandline.backups.collection import META, Collection, CollectionRequest, stream_name
from strandline.backups.full import STREAM_MODE, Backup, BackupBody, BackupResult, outdated_streams
from strandline.backups.inventory import backup_records, last_backup
from strandline.backups.record import BackupRecord, IndexRecord, SliceRecord, TableRecord, chain_to, slices_of
from strandline.catalog import board, chains, commits, paths, tables
from strandline.catalog.paths import Path, require_id
from strandline.catalog.tables import TableBody, TableInfo
from strandline.catalog.writer import Writer
from strandline.errors import Corrupted, Internal, PreconditionFailed, StrandlineError
from strandline.model import Chain, Digest, Segment, State, TableSchema
from strandline.operations.kind import Part, PartPlan, Plan, Planning, Run
from strandline.operations.streams import DropStreamPart, NewStream, StreamPart, StreamSpec, plan_drops
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.storage.slices import Slice, Window


@dataclass(frozen=True, kw_only=True)
class IncrementBody(BackupBody):
    """``parent``: the backup that it continues, which was cut at ``after``."""

    parent: str
    after: int


@dataclass(frozen=True, kw_only=True)
class IncrementProgress(Record):
    """``bytes``: what was written so far."""

    bytes: int | None = later()


@dataclass(frozen=True, kw_only=True)
class CutSlice(NewStream):
    """A source whose changes in ``(after, step]`` become the slice ``target_id``, where its new ``stream``
    begins. ``whole``: the parent does not have it, so that all of it is taken. ``before``: its digest at
    ``after``. ``base``: where the earlier backups hold it (path and step), if the slice cannot be checked
    without them. From the second phase on it says what came of it: ``delta`` is what its rows add up to,
    ``digest`` the source's at ``step``."""

    target_id: int
    after: int
    whole: bool
    before: Digest
    base: tuple[tuple[int | None, int], ...] | None
    rows: int | None = later()
    tombstones: int | None = later()
    bytes: int | None = later()
    delta: Digest | None = later()
    digest: Digest | None = later()

    def record(self, version: int) -> SliceRecord:
        """It, as the backup records it. ``version``: the source's."""
        if self.rows is None or self.tombstones is None or self.bytes is None or self.digest is None:
            raise Internal(f"the slice of path {self.table_id} is not cut yet")
        return SliceRecord(
            source_id=self.table_id,
            target_id=self.target_id,
            version=version,
            whole=self.whole,
            before=self.before,
            after=self.digest,
            delta=None if self.base is not None else self.delta,
            rows=self.rows,
            tombstones=self.tombstones,
            bytes=self.bytes,
        )


IncrementRun: TypeAlias = Run[CollectionRequest, IncrementBody, IncrementProgress]


@dataclass(frozen=True)
class _Planned:
    """What the slices of all tables share."""

    collection: Collection
    parent: BackupRecord
    backup: Path
    stream: StreamSpec
    step: int

    def slice(
        self,
        source: Path,
        target: Path,
        previous: SliceRecord | None,
        base: tuple[tuple[int | None, int], ...] | None = None,
    ) -> PartPlan:
        body = CutSlice(
            table_id=source.id,
            target_id=target.id,
            after=self.parent.step,
            step=self.step,
            whole=previous is None,
            before=Digest() if previous is None else previous.after,
            base=base,
            stream=self.stream,
        )
        return PartPlan("slice", body)


class IncrementalBackup(Backup[IncrementBody, IncrementProgress]):
    """What has changed in the tables of a collection since its last backup."""

    name = "incremental backup"
    kind = "incremental"
    body, progress = IncrementBody, IncrementProgress

    def __init__(self, runtime: Runtime) -> None:
        self.handlers = {"slice": SlicePart(runtime), "drop stream": DropStreamPart()}

    def plan(self, tx: Writer, run: Planning[CollectionRequest]) -> Plan[IncrementBody, IncrementProgress]:
        path, collection, members = self._begin(tx, run)
        if not collection.incremental:
            raise PreconditionFailed(
                f"the collection {path.name!r} does not take incremental backups",
                "Switch them on with ALTER BACKUP COLLECTION ... SET (INCREMENTAL_BACKUP_ENABLED = "
                "'true'), then take a full backup.",
            )
        parent = _parent(tx.conn, path)
        step = board.current_step(tx.conn)
        run.pin(tx, step)
        backup = self._make_backup(tx, run, path, members, step)
        stream = StreamSpec(stream_name(backup.name), STREAM_MODE, "JSON", path.id)
        planned = _Planned(collection, parent, backup, stream, step)
        parts: list[PartPlan] = []
        old_streams: list[str] = []
        for member in members:
            found, streams = self._plan_member(tx, run, planned, member)
            parts += found
            old_streams += streams
        parts += plan_drops(tx, run, [*old_streams, *outdated_streams(tx.conn, run, path)])
        body = IncrementBody(
            backup_id=backup.id,
            step=step,
            parent=parent.name,
            after=parent.step,
            members={m.path: m.id for m in members},
        )
        return Plan(parts, body, IncrementProgress())

    def _plan_member(
        self, tx: Writer, run: Planning[CollectionRequest], planned: _Planned, member: Path
    ) -> tuple[list[PartPlan], list[str]]:
        info, parent, backup = TableInfo.of(member), planned.parent, planned.backup
        before = parent.tables.get(member.path)
        old_stream = f"{member.path}/{parent.stream}"
        if before is None or before.slice.source_id != member.id or paths.find(tx.conn, old_stream) is None:
            raise PreconditionFailed(
                f"{member.path} was created, restored or added after the backup {parent.name}, so its "
                "changes since then are not known",
                "Take a full backup first: BACKUP collection.",
            )
        indexes = [
            (ref, require_id(tx.conn, ref.index_id), require_id(tx.conn, ref.impl_id)) for ref in info.indexes
        ]
        run.lock(tx, [member, *(p for _, index, impl in indexes for p in (index, impl))], "copying")
        target = _make_increment(tx, run, f"{backup.path}{member.path}", member, planned.step)
        base = None
        if _dropped_columns(info.schema) != _dropped_columns(before.schema):
            chain = chain_to(backup_records(tx.conn, require_id(tx.conn, backup.parent_id)), parent.name)
            base = tuple(
                (slice_.target_id, chain[place].step) for place, slice_ in slices_of(chain, member.path)
            )
        parts = [planned.slice(member, target, before.slice, base)]
        streams = [old_stream]
        for ref, _, impl in indexes:
            if not ref.definition.is_sync or planned.collection.omit_indexes or ref.omitted:
                continue
            known = before.index(ref.name)
            previous = known.slice if known is not None else None
            if previous is not None and previous.source_id != impl.id:
                previous = None  # dropped and built again: a new one
            if previous is not None:
                old = f"{impl.path}/{parent.stream}"
                if paths.find(tx.conn, old) is None:
                    raise PreconditionFailed(
                        f"the stream {old} is gone, so the changes of the index are not known",
                        "Take a full backup first.",
                    )
                streams.append(old)
            at = f"{backup.path}/{META}/indexes{member.path}/{ref.name}"
            entries = _make_increment(tx, run, at, impl, planned.step)
            parts.append(planned.slice(impl, entries, previous))
        return parts, streams

    def finish(self, tx: Writer, run: IncrementRun) -> BackupResult:
        backup = require_id(tx.conn, run.body.backup_id)
        made = {body.table_id: body for body in run.bodies(tx.conn, "slice", CutSlice)}
        record = BackupRecord(
            name=backup.name,
            kind="incremental",
            parent=run.body.parent,
            after_step=run.body.after,
            step=run.body.step,
            time=run.operation.created,
            stream=stream_name(backup.name),
            tables={
                path: self._table(tx.conn, run, source_id, made)
                for path, source_id in run.body.members.items()
            },
        )
        return self._record(tx, backup, record)

    def _table(
        self, conn: Connection, run: IncrementRun, source_id: int, made: Mapping[int, CutSlice]
    ) -> TableRecord:
        source = require_id(conn, source_id)
        info = TableInfo.of(source)
        indexes = []
        for ref in info.indexes:
            version = run.registry.effective(conn, require_id(conn, ref.impl_id), run.operation.id)
            slice_ = made[ref.impl_id].record(version) if ref.impl_id in made else None
            indexes.append(IndexRecord.of(ref.definition, version, slice_))
        version = run.registry.effective(conn, source, run.operation.id)
        return TableRecord(schema=info.schema, slice=made[source.id].record(version), indexes=tuple(indexes))


class SlicePart(StreamPart[CutSlice]):
    """Folds one source's changes since the last cut into the increment, and begins the new stream where they
    end."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(CutSlice)
        self._runtime = runtime

    def work(self, run: IncrementRun, part: Part[CutSlice]) -> Slice | None:
        if part.state != "configure":
            return None
        body, runtime = part.body, self._runtime
        with runtime.catalog.read() as conn:
            source = TableInfo.of(require_id(conn, body.table_id))
            if body.whole:
                # A merge since the cut may have put later changes into the same segment; the state at the cut
                # leaves them out.
                window = Window(body.after, body.step, chain=chains.load(conn, source.id, body.step))
            else:
                window = Window(
                    body.after, body.step, chains.log_between(conn, source.id, body.after, body.step)
                )
            recorded = commits.digest_at(conn, source.id, body.step)
            base = [
                s
                for target_id, step in body.base or ()
                if target_id is not None
                for s in chains.load(conn, target_id, step).segments
            ]
        name = runtime.session.file_name(body.target_id)
        made = runtime.store.slice(source.schema, window, name)
        try:
            self._check(source, body, made, base, recorded)
        except StrandlineError:
            runtime.store.discard(made.segments)
            raise
        return made

    def _check(
        self, source: TableInfo, body: CutSlice, made: Slice, base: list[Segment], recorded: Digest
    ) -> None:
        """What the earlier backups hold and these changes must lead to the digest that was recorded at the
        cut."""
        if body.base is None:
            found = body.before + made.delta
        else:
            # Dropping a column changed the hashes of rows that the window does not hold, so for once all of
            # them are read.
            chain = Chain((*base, *made.segments), body.step)
            found = self._runtime.store.digest(State(source.schema, chain))
        if found != recorded:
            raise Corrupted(
                f"the changes of {source.path} since step {body.after} lead to {found.hex} "
                f"({found.rows} rows), "
                f"but {recorded.hex} ({recorded.rows} rows) was recorded",
                f"Run db.check({source.path!r}), and take a full backup.",
            )

    def configure(self, tx: Writer, run: IncrementRun, part: Part[CutSlice], made: Slice) -> CutSlice:
        body = part.body
        after = commits.digest_at(tx.conn, body.table_id, body.step)
        if made.segments:
            # The changes are those of the window's steps, whenever they were folded.
            ids = chains.insert_segments(tx, made.segments, body.step)
            chains.attach(tx, body.target_id, ids, body.step)
        tables.add_state(tx, body.target_id, body.step, Digest(made.rows, after.value))
        run.report(tx, IncrementProgress(bytes=(run.progress.bytes or 0) + made.bytes))
        cut = replace(
            body,
            rows=made.rows,
            tombstones=made.tombstones,
            bytes=made.bytes,
            delta=made.delta,
            digest=after,
        )
        return super().configure(tx, run, replace(part, body=cut), made)


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


def _make_increment(tx: Writer, run: Planning[CollectionRequest], path: str, source: Path, step: int) -> Path:
    parent = run.make_parents(tx, path, step)
    return paths.add(
        tx,
        parent,
        path.rsplit("/", 1)[1],
        "table",
        body=TableBody(schema=source.record(TableBody).schema, increment=True),
        step=step,
        state="creating",
        operation_id=run.id,
    )


def _dropped_columns(table: TableSchema) -> set[int]:
    return set(range(1, table.next_id)) - {c.id for c in table.columns}
