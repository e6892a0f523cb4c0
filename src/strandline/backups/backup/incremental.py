"""Incremental backups: the changes since the last backup, folded to one row for each key.

1. Use the current step as the *cut*: the step whose state the backup holds. There is one slice for each table
   and each synchronous index.
2. Fold the changes of each slice shard by shard. The part of the first shard also creates the new stream,
   which begins exactly at the cut.
3. Check that the digests before the changes and the digests of the slices add up to the digests that were
   recorded at the cut.
4. Publish the backup, and drop the old streams in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from sqlalchemy import Connection

from strandline.backups.backup.full import BackupBody, CollectionBackup, FullNeeded, retention_here, take_full
from strandline.backups.backup.increment_plan import (
    CutShard,
    CutSlice,
    IncrementCut,
    Made,
    Unchanged,
    UnchangedSlice,
    plan_increment,
)
from strandline.backups.collection import BackupResult, CollectionRecord, CollectionRequest
from strandline.backups.fold.fold_plan import compaction
from strandline.backups.record import (
    BackupRecord,
    IndexRecord,
    TableRecord,
    backup_heads,
    backup_records,
    chain_to,
    changefeeds_of,
    last_backup,
    slice_segments,
    slices_of,
    stream_name,
)
from strandline.catalog import chains, paths, tables
from strandline.catalog.paths import Path, require_id
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.catalog.transactions import Writer, current_step
from strandline.errors import Corrupted, StrandlineError
from strandline.model import Chain, Digest, Segment, State, may_hold
from strandline.operations.kind import Handler, Part, Plan, Planning, Run, pause_after
from strandline.operations.streams import DropStreamPart, StreamPart, begin_streams
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.sql.tokens import word
from strandline.storage.chain_slices import Slice, Window


@dataclass(frozen=True, kw_only=True)
class IncrementBody(BackupBody):
    """State of the operation.

    Attributes:
        parent: Name of the backup that the increment continues.
        after: Step of the parent.
        compacts: Compact the chain afterwards if it has reached MAX_CHAIN.
    """

    parent: str
    after: int
    compacts: bool = later(False)


@dataclass(frozen=True, kw_only=True)
class IncrementProgress(Record):
    """Progress of the operation.

    Attributes:
        bytes: Number of bytes written so far.
    """

    bytes: int | None = later()


IncrementRun: TypeAlias = Run[CollectionRequest, IncrementBody, IncrementProgress]


class IncrementalBackup(CollectionBackup[IncrementBody, IncrementProgress]):
    """Operation that backs up what has changed in a collection's tables since its last backup."""

    name = "incremental backup"
    kind = "incremental"
    body, progress = IncrementBody, IncrementProgress

    def __init__(self, runtime: Runtime) -> None:
        self.handlers = {
            "slice": SlicePart(runtime),
            "slice shard": SliceShardPart(runtime),
            "unchanged": UnchangedPart(),
            "drop stream": DropStreamPart(),
        }
        self._shard_bytes = runtime.settings.shard_bytes

    def plan(self, tx: Writer, run: Planning[CollectionRequest]) -> Plan[IncrementBody, IncrementProgress]:
        path, collection, members = self._begin(tx, run)
        if not collection.settings.incremental:
            raise FullNeeded(
                f"the collection {path.name!r} does not take incremental backups",
                f"Switch them on, and take a full backup: ALTER BACKUP COLLECTION {word(path.name)} SET "
                f"(INCREMENTAL_BACKUP_ENABLED = 'true'); BACKUP {word(path.name)}.",
            )
        parent = _parent(tx.conn, path, collection)
        warning = _check_length(tx.conn, path, collection, parent)
        step = current_step(tx.conn)
        run.pin(tx, step)
        backup = self._make_backup(tx, run, path, members, step)
        cut = IncrementCut(
            collection=path,
            parent=parent,
            backup=backup,
            step=step,
            omit_indexes=collection.settings.omit_indexes,
        )
        parts = plan_increment(tx, run, cut, members, self._shard_bytes)
        body = IncrementBody(
            backup_id=backup.id,
            step=step,
            parent=parent.name,
            after=parent.step,
            members={m.path: m.id for m, _ in members},
            retention=retention_here(collection),
            warning=warning,
            compacts=collection.settings.compact_chain,
        )
        return Plan(parts, body, IncrementProgress())

    def finish(self, tx: Writer, run: IncrementRun) -> BackupResult:
        backup = require_id(tx.conn, run.body.backup_id)
        cut = self._cut(tx, run)
        for slice_ in cut.values():
            _check(tx.conn, slice_)
        made: dict[int, CutSlice | UnchangedSlice] = {**cut}
        for part in run.bodies(tx.conn, "unchanged", Unchanged):
            made |= {slice_.table_id: slice_ for slice_ in part.slices}
        record = BackupRecord(
            name=backup.name,
            kind="incremental",
            parent=run.body.parent,
            after_step=run.body.after,
            step=run.body.step,
            time=run.operation.created,
            stream=stream_name(backup.name),
            tables=self._tables(tx.conn, run, made),
        )
        return self._record(tx, run, backup, record)

    def follow(self, conn: Connection, run: IncrementRun) -> tuple[str, Record] | None:
        """Upload the backup if the collection has a repository. Otherwise compact its chain if necessary."""
        following = super().follow(conn, run)
        if following is None and run.body.compacts:
            return compaction(conn, run.request.collection, run.request.limits)
        return following

    def _cut(self, tx: Writer, run: IncrementRun) -> dict[int, CutSlice]:
        """Return the slices of changed sources, by source id. Each has the sum of its shards' results."""
        found = {body.table_id: body for body in run.bodies(tx.conn, "slice", CutSlice)}
        several: set[int] = set()
        for shard in run.bodies(tx.conn, "slice shard", CutShard):
            found[shard.table_id] = found[shard.table_id].plus(shard)
            several.add(shard.table_id)
        for slice_ in (found[i] for i in several):
            state = chains.state(tx.conn, slice_.target_id).digest
            tables.set_first_digest(tx, slice_.target_id, replace(state, rows=slice_.made.rows))
        return found

    def _tables(
        self, conn: Connection, run: IncrementRun, made: Mapping[int, CutSlice | UnchangedSlice]
    ) -> dict[str, TableRecord]:
        sources = paths.by_ids(conn, run.body.members.values())
        infos, feeds = [TableInfo.of(source) for source in sources], changefeeds_of(conn, sources)
        ids = [i for info in infos for i in (info.id, *(ref.impl_id for ref in info.indexes))]
        versions = run.registry.effective(conn, ids, run.operation.id)

        def index(ref: IndexRef) -> IndexRecord:
            version = versions[ref.impl_id]
            slice_ = made[ref.impl_id].record(version) if ref.impl_id in made else None
            return IndexRecord.of(ref.definition, version, slice_)

        return {
            info.path: TableRecord(
                schema=info.schema,
                slice=made[info.id].record(versions[info.id]),
                indexes=tuple(index(ref) for ref in info.indexes),
                changefeeds=feeds.get(info.id, ()),
                was=made[info.id].was,
            )
            for info in infos
        }


@dataclass(frozen=True)
class _Folded:
    """New segments of a shard, with their row count, tombstones, bytes and digest."""

    segments: Sequence[Segment]
    made: Made


class _Cutter:
    """Folds the changes of a shard since the last backup into the increment."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def cut(self, run: IncrementRun, body: CutShard) -> _Folded:
        runtime = self._runtime
        with runtime.catalog.read() as conn:
            source = TableInfo.of(require_id(conn, body.table_id))
            if body.whole:
                # A compaction may have put changes from before and after the cut into one segment. So read
                # the state at the cut, which does not have the later changes.
                chain = chains.load(conn, source.id, body.step).narrow(body.within)
                # Begin at step 0, because the rows may be older than the parent.
                window = Window(0, body.step, chain=chain, within=body.within)
            else:
                logs = chains.log_between(conn, source.id, body.after, body.step)
                found = tuple(s for s in logs if may_hold(s, body.within))
                window = Window(body.after, body.step, found, within=body.within)
            base = [] if body.base is None else _slices_before(conn, run, body.was or source.path)
        made = runtime.store.slice(source.schema, window, runtime.session.file_name(body.target_id))
        try:
            return _Folded(made.segments, self._describe_slice(source, body, made, base))
        except StrandlineError:
            runtime.store.discard(made.segments)
            raise

    def _describe_slice(
        self, source: TableInfo, body: CutShard, slice_: Slice, base: Sequence[Segment]
    ) -> Made:
        delta = slice_.delta
        if body.base is not None:
            # A dropped column changes the hashes of unchanged rows too, so read all rows.
            state = State(source.schema, Chain((*base, *slice_.segments), body.step))
            delta = self._runtime.store.checks.digest(state.narrow(body.within))
        size = sum(s.bytes for s in slice_.segments)
        return Made(slice_.rows, slice_.tombstones, size, delta)

    def attach(self, tx: Writer, run: IncrementRun, body: CutShard, folded: _Folded) -> None:
        if folded.segments:
            # Record the segments at the step of the cut, not at the later step of this transaction.
            ids = chains.insert_segments(tx, folded.segments, body.step)
            chains.attach(tx, body.target_id, ids, body.step)
        run.report(tx, IncrementProgress(bytes=(run.progress.bytes or 0) + folded.made.bytes))

    def discard(self, folded: _Folded) -> None:
        self._runtime.store.discard(folded.segments)

    @property
    def time_limit(self) -> float:
        return self._runtime.settings.shard_seconds

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return pause_after(error, attempt, self._runtime.settings.pauses)


class SliceShardPart(Handler[IncrementRun, CutShard]):
    """Part that folds any shard of a source but the first, which ``SlicePart`` folds."""

    record = CutShard

    def __init__(self, runtime: Runtime) -> None:
        self._cutter = _Cutter(runtime)

    def work(self, run: IncrementRun, part: Part[CutShard]) -> _Folded:
        return self._cutter.cut(run, part.body)

    def store(self, tx: Writer, run: IncrementRun, part: Part[CutShard], made: _Folded) -> CutShard:
        self._cutter.attach(tx, run, part.body, made)
        return part.body.finish(made.made)

    def discard(self, made: _Folded) -> None:
        self._cutter.discard(made)

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return self._cutter.retry_after(error, attempt)

    def time_limit(self, run: IncrementRun, part: Part[CutShard]) -> float | None:
        return self._cutter.time_limit


class SlicePart(StreamPart[CutSlice]):
    """Part that folds the first shard of a source and creates the new stream, which begins at the cut."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(CutSlice)
        self._cutter = _Cutter(runtime)

    def is_quick(self, state: str) -> bool:
        return state != "configure"

    def work(self, run: IncrementRun, part: Part[CutSlice]) -> _Folded | None:
        return None if self.is_quick(part.state) else self._cutter.cut(run, part.body)

    def configure(
        self, tx: Writer, run: IncrementRun, parts: Sequence[Part[CutSlice]], made: Sequence[_Folded]
    ) -> list[CutSlice]:
        cut = [self._attach(tx, run, part, folded) for part, folded in zip(parts, made, strict=True)]
        return super().configure(tx, run, cut, made)

    def _attach(self, tx: Writer, run: IncrementRun, part: Part[CutSlice], folded: _Folded) -> Part[CutSlice]:
        body = part.body
        self._cutter.attach(tx, run, body, folded)
        after = tables.digest_at(tx.conn, body.table_id, body.step)
        tables.add_state(tx, body.target_id, body.step, Digest(folded.made.rows, after.value))
        return replace(part, body=replace(body.finish(folded.made), digest=after))

    def discard(self, made: _Folded) -> None:
        self._cutter.discard(made)

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return self._cutter.retry_after(error, attempt)

    def time_limit(self, run: IncrementRun, part: Part[CutSlice]) -> float | None:
        return None if self.is_quick(part.state) else self._cutter.time_limit


class UnchangedPart(Handler[IncrementRun, Unchanged]):
    """Part that stores the empty slices of many unchanged sources and creates their new streams."""

    record = Unchanged
    phases: ClassVar[tuple[str, ...]] = ("propose",)

    def share(self, run: IncrementRun, parts: Iterator[Part[Unchanged]]) -> int:
        return 1  # One part has many tables already.

    def store(self, tx: Writer, run: IncrementRun, part: Part[Unchanged], made: Any) -> Unchanged:
        body = part.body
        # An empty slice has 0 rows, but the digest value of the whole source.
        states = {slice_.target_id: Digest(0, slice_.digest.value) for slice_ in body.slices}
        tables.add_states(tx, states, body.step)
        sources = paths.by_ids(tx.conn, [slice_.table_id for slice_ in body.slices])
        begin_streams(tx, run, part, sources, body.stream, step=body.step)
        return body


def _slices_before(conn: Connection, run: IncrementRun, path: str) -> list[Segment]:
    """Return the segments of a table in the parent's chain.

    The chain is read in the same transaction as the segments, because a backup may have been compacted since
    this increment was planned.

    Args:
        path: Path of the table in the parent.
    """
    collection = require_id(conn, require_id(conn, run.body.backup_id).parent_id)
    chain = chain_to(backup_records(conn, collection), run.body.parent)
    return [
        segment
        for place, slice_ in slices_of(chain, path)
        for segments in slice_segments(conn, chain[place], [slice_]).values()
        for segment in segments
    ]


def _check(conn: Connection, cut: CutSlice) -> None:
    """Refuse a slice if the digests of earlier backups and changes do not sum to the digest at the cut."""
    if cut.found != cut.digest:
        path, recorded = require_id(conn, cut.table_id).path, cut.digest or Digest()
        raise Corrupted(
            f"the changes of {path} since step {cut.after} lead to {cut.found.hex} ({cut.found.rows} rows), "
            f"but {recorded.hex} ({recorded.rows} rows) was recorded",
            f"Run db.check({path!r}), and take a full backup.",
        )


def _parent(conn: Connection, path: Path, collection: CollectionRecord) -> BackupRecord:
    last = last_backup(conn, path)
    if last is None:
        raise FullNeeded(
            f"the collection {path.name!r} has no full backup yet",
            f"Take one first: BACKUP {word(path.name)}.",
        )
    if last.stream is None:
        raise FullNeeded(
            f"{last.name} was taken while incremental backups were off, so later changes were not recorded",
            take_full(path),
        )
    if collection.dropped == last.name:
        raise FullNeeded(
            f"the collection {path.name!r} was dropped after {last.name}, which ended its streams",
            take_full(path),
        )
    if collection.dropped is not None and collection.dropped > last.name:
        raise FullNeeded(
            f"{collection.dropped} was dropped, and it held the changes since {last.name}",
            take_full(path),
        )
    return last


def _check_length(
    conn: Connection, path: Path, collection: CollectionRecord, parent: BackupRecord
) -> str | None:
    """Refuse an increment that exceeds MAX_CHAIN. Return a warning if the chain is near this limit.

    None: no warning is needed.
    """
    most = collection.settings.max_chain
    if most is None:
        return None
    parents = {record.name: record.builds_on for _, record in backup_heads(conn, path)}
    length, here = 2, parent.builds_on
    while here is not None:
        length, here = length + 1, parents.get(here)
    if length > most:
        name = word(path.name)
        raise FullNeeded(
            f"the chain of {parent.name} has {length - 1} backups, and MAX_CHAIN allows {most}",
            f"{take_full(path)[:-1]}; or fold the chain: COMPACT {name}, or COMPACT {name} INCREMENTS.",
        )
    if collection.settings.compact_chain:
        return None  # No warning is needed: the chain is compacted when it reaches the limit.
    return f"the chain has {length} of at most {most} backups" if 5 * length >= 4 * most else None
