"""Upload of a backup to a repository, with all backups that it builds on and that the repository lacks.

1. Create the repository if it does not exist.
2. Upload the segments as objects, in parts of about the size of a shard. Files are uploaded unchanged; inline
   segments are packed into files. An object that the repository already has is not uploaded again.
3. Write the manifests, each after the manifest of its parent.
4. If the repository is the collection's storage, replace the backups' segments in the catalog by the objects.
   The collector then frees the segments in the warehouse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from sqlalchemy import Connection

from strandline.backups.chain import find_chain
from strandline.backups.collection import CLUSTER, CollectionRecord, Retained, SendRequest
from strandline.backups.collection_ddl import check_apart, writer_of
from strandline.backups.fold.fold_plan import compaction
from strandline.backups.record import (
    BackupRecord,
    SliceRecord,
    ancestors,
    backup_heads,
    require_collection,
    slice_segments,
)
from strandline.backups.repository.lease import RepositoryLease
from strandline.backups.repository.manifest import Contents, Manifest, ObjectRecord
from strandline.backups.repository.readme import write_readme
from strandline.backups.repository.repository import Repository, of_another
from strandline.backups.repository.repository_writer import Leases, WritingKind, WritingPart, publish
from strandline.backups.retention.expiry import retain
from strandline.backups.verify.verify_objects import note_damage
from strandline.catalog import chains, paths
from strandline.catalog.operations import OperationRow
from strandline.catalog.paths import require_id
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.chunks import batches
from strandline.errors import Corrupted, Internal, InvalidArgument
from strandline.model import Segment, TableSchema
from strandline.operations.byte_progress import Transfer
from strandline.operations.engine import Engine
from strandline.operations.kind import (
    Body,
    P,
    Part,
    PartPlan,
    Plan,
    Planning,
    Run,
)
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.storage.file_router import Destination
from strandline.storage.repository_marker import Expected, plain
from strandline.storage.store import Store
from strandline.storage.throttle import Throttle
from strandline.version import VERSION

TOGETHER = 256
"""Maximum number of small tables and indexes in one part."""


@dataclass(frozen=True, kw_only=True)
class SendBody(Body):
    """State of the operation.

    Attributes:
        backups: Backups to upload, in the order of the chain.
        moves: True: the repository is the collection's storage, so the backups leave the warehouse.
        retention: Retention rules to apply after the upload. None: apply no rules.
        known: True: the repository already has backups of the collection.
    """

    collection_id: int
    root: str
    backups: tuple[str, ...]
    moves: bool
    encrypted: bool
    retention: str | None = later()
    known: bool = later(False)


@dataclass(frozen=True, kw_only=True)
class SendProgress(Transfer):
    """Progress in bytes: uploaded so far, and in total."""


@dataclass(frozen=True, kw_only=True)
class SendResult(Retained):
    """Result of an upload to a repository.

    Attributes:
        backups: Names of the backups that the upload added to the repository.
    """

    repository: str
    backups: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, kw_only=True)
class PresentBackups(Record):
    """State of the repository when the operation opened it.

    Attributes:
        backups: Backups of this upload that the repository already had.
        repository: Id of the repository.
        key: Fingerprint of the user's key that opened the repository. None: it is not encrypted.
    """

    backups: tuple[str, ...] = later(())
    repository: str | None = later()
    key: str | None = later()


@dataclass(frozen=True, kw_only=True)
class SentSlice:
    """Segments of a table or an index of a backup.

    Attributes:
        target_id: Id of the path that holds the segments.
        segments: Ids of the segments.
        objects: The uploaded objects in the repository. None: they are not uploaded yet.
    """

    target_id: int
    segments: tuple[int, ...]
    objects: tuple[ObjectRecord, ...] | None = later()


@dataclass(frozen=True, kw_only=True)
class SentBatch(Record):
    """A part of the upload.

    Attributes:
        slowed: Seconds added to the time limit of the part because of the rate limit.
    """

    bytes: int
    slowed: float = later(0.0)
    slices: tuple[SentSlice, ...]


@dataclass(frozen=True, kw_only=True)
class Listed(Record):
    """The backup whose manifest a part writes."""

    backup: str


SendRun: TypeAlias = Run[SendRequest, SendBody, SendProgress]


class SendBackup(WritingKind[SendRequest, SendBody, SendProgress]):
    """Operation that uploads a backup, with all backups it needs, to a repository."""

    name = "send backup"
    request, body, progress = SendRequest, SendBody, SendProgress

    def __init__(self, runtime: Runtime, leases: Leases) -> None:
        super().__init__(leases)
        self.handlers = {
            "repository": RepositoryPart(runtime, leases),
            "objects": ObjectsPart(runtime, leases),
            "manifest": ManifestPart(runtime, leases),
        }
        self._shard_bytes = runtime.settings.shard_bytes

    def plan(self, tx: Writer, run: Planning[SendRequest]) -> Plan[SendBody, SendProgress]:
        request = run.request
        path = require_collection(tx.conn, request.collection)
        collection = path.record(CollectionRecord)
        storage = collection.settings.storage
        root = request.url or storage
        if root == CLUSTER:
            raise InvalidArgument(
                f"the collection {path.name!r} keeps its backups in the warehouse, and no other place was "
                "named",
                "Name one: COPY BACKUP 'name' FROM collection TO 'url'.",
            )
        if root != storage:
            check_apart(tx.conn, root)
        other = writer_of(tx.conn, path.name, root)
        if other is not None:
            raise of_another(root, other)
        chain = find_chain(tx.conn, path, request.backup)
        moves = root == storage
        is_encrypted = collection.settings.encryption
        if not moves and request.encryption is not None:
            is_encrypted = request.encryption
        sent = [record for record in chain if record.stored != root]
        there = {backup.name: backup for backup in paths.backups(tx.conn, path)}
        run.lock(tx, [path, *(there[record.name] for record in sent)], "copying")
        batches = [batch for record in sent for batch in self._batches(tx.conn, record)]
        parts = [PartPlan("repository", PresentBackups())]
        total = sum(batch.bytes for batch in batches)
        slowed = request.limits.seconds_for(total)
        first = {p.id: p.path for p in paths.by_ids(tx.conn, [b.slices[0].target_id for b in batches])}
        parts += [
            PartPlan(
                "objects",
                replace(batch, slowed=slowed),
                1,
                path=first.get(batch.slices[0].target_id),
                bytes=batch.bytes,
            )
            for batch in batches
        ]
        parts += [
            PartPlan("manifest", Listed(backup=r.name), 2 + place, path=there[r.name].path)
            for place, r in enumerate(sent)
        ]
        body = SendBody(
            collection_id=path.id,
            root=root,
            backups=tuple(record.name for record in sent),
            moves=moves,
            encrypted=is_encrypted,
            retention=collection.settings.retention if moves else None,
            known=moves and any(head.stored == root for _, head in backup_heads(tx.conn, path)),
        )
        return Plan(parts, body, SendProgress(bytes=0, bytes_total=total))

    def _batches(self, conn: Connection, record: BackupRecord) -> Iterator[SentBatch]:
        """Yield the segments of a backup, in batches of about the size of a shard."""
        most = self._shard_bytes
        pieces = [
            (target_id, piece)
            for target_id, segments in slice_segments(conn, record, record.slices).items()
            for piece in batches(segments, lambda segment: segment.bytes, most)
        ]
        for batch in batches(pieces, lambda pair: _bytes(pair[1]), most, TOGETHER):
            yield SentBatch(
                bytes=sum(_bytes(piece) for _, piece in batch),
                slices=tuple(
                    SentSlice(target_id=target_id, segments=tuple(s.id for s in piece))
                    for target_id, piece in batch
                ),
            )

    def finish(self, tx: Writer, run: SendRun) -> SendResult:
        collection = require_id(tx.conn, run.body.collection_id)
        sent = {path.name: path for path in paths.backups(tx.conn, collection)}
        (present,) = run.bodies(tx.conn, "repository", PresentBackups)
        new = [sent[name].record(BackupRecord) for name in run.body.backups if name not in present.backups]
        result = SendResult(
            repository=run.body.root,
            backups=tuple(record.name for record in new),
            bytes=sum(slice_.bytes for record in new for slice_ in record.slices),
            retention=run.body.retention,
        )
        if run.body.moves:
            known = collection.record(CollectionRecord)
            changed = replace(known, repository=present.repository, key=present.key)
            paths.set_body(tx, collection.id, changed)
            made = _objects(tx.conn, run)
            for record in (with_object_sizes(each, made) for each in new):
                place_objects(tx, record, made, run.body.root)
                paths.set_body(tx, sent[record.name].id, replace(record, stored=run.body.root))
        return result

    def follow(self, conn: Connection, run: SendRun) -> tuple[str, Record] | None:
        """Return the next operation: the upload of a waiting backup, or else the compaction of a long chain.

        None: neither is due, or the repository is not the storage of the collection.
        """
        if not run.body.moves:
            return None
        name, limits = run.request.collection, run.request.limits
        waiting = _find_waiting(conn, name, run.body.root)
        if waiting is not None:
            return self.name, SendRequest(collection=name, backup=waiting, limits=limits)
        return compaction(conn, name, limits)

    def after(self, engine: Engine, operation: OperationRow, result: SendResult) -> None:
        """Apply the retention rules of the collection."""
        if result.retention is not None:
            retain(engine, operation, result, engine.transitions.run_of(operation).request.taken_by)


def _bytes(segments: Sequence[Segment]) -> int:
    return sum(segment.bytes for segment in segments)


class SendingPart(WritingPart[SendRun, P]):
    """A part that writes to a repository. The catalog may not know this repository."""

    def find_expected(self, run: SendRun) -> Expected:
        return Expected(encrypted=run.body.encrypted)


class RepositoryPart(SendingPart[PresentBackups]):
    """Part that creates the repository, and checks that it belongs to this warehouse."""

    record = PresentBackups

    def work(self, run: SendRun, part: Part[PresentBackups]) -> PresentBackups:
        body, now = run.body, self.runtime.clock.now()
        files, settings = (
            plain(self.runtime.files.at(body.root, self.find_expected(run))),
            self.runtime.settings,
        )
        Repository.make(files, body.root, settings, now=now, encrypted=body.encrypted, known=body.known)
        # Check before the repository is changed.
        self.leases.check_owner(Repository(files, body.root), body.collection_id)
        # This process may have opened an earlier repository at the same location.
        self.runtime.files.reopen(body.root, self.find_expected(run))
        with self.writing(run) as (there, _):
            if body.known:
                self._check_line(run, there)
            else:
                there.check_collection(run.request.collection)
            there.own(self.leases.here(), now)
            write_readme(there.plain, there.marker)
            found = PresentBackups(repository=there.marker.id, key=there.key)
            if body.moves:
                return found  # The catalog knows which backups the repository has.
            return replace(found, backups=tuple(name for name in there.backups() if name in body.backups))

    def _check_line(self, run: SendRun, there: Repository) -> None:
        with self.runtime.catalog.read() as conn:
            path = require_id(conn, run.body.collection_id)
            heads = [head for _, head in backup_heads(conn, path)]
        dropped = path.record(CollectionRecord).dropped
        sent = [head.name for head in heads if head.stored == run.body.root]
        there.check_line(
            [head.name for head in heads], [*sent, *([dropped] if dropped else [])], self.leases.here()
        )

    def store(
        self, tx: Writer, run: SendRun, part: Part[PresentBackups], made: PresentBackups
    ) -> PresentBackups:
        return made


def as_objects(
    store: Store,
    held: Sequence[tuple[TableSchema, Sequence[Segment]]],
    target: Destination,
    throttle: Throttle,
    *,
    among: int,
) -> list[tuple[ObjectRecord, ...]]:
    """Upload segments of tables as objects: files unchanged, inline segments packed into files.

    Return the objects of each table, in the order of ``held``.

    Args:
        held: Schema and segments of each table.
        among: Total number of bytes that the caller uploads.
    """
    files = [s for _, segments in held for s in segments if s.file is not None]
    sent = iter(store.send(files, target, throttle, among=among))
    made = []
    for schema, segments in held:
        objects: list[ObjectRecord] = []
        for is_inline, group in groupby(segments, key=lambda s: s.file is None):
            if is_inline:
                objects.append(ObjectRecord.of(store.pack(schema, list(group), target, throttle)))
            else:
                objects += [ObjectRecord.of(next(sent)) for _ in group]
        made.append(tuple(objects))
    return made


class ObjectsPart(SendingPart[SentBatch]):
    """Part that uploads segments."""

    record = SentBatch

    def work(self, run: SendRun, part: Part[SentBatch]) -> SentBatch:
        with self.writing(run) as (there, _):
            target = self.destination(there)
            made = self._upload(run, part.body.slices, target)
            self.note_sent(target, (o.object for s in made for o in s.objects or ()))
            return replace(part.body, slices=made)

    def _upload(
        self, run: SendRun, slices: Sequence[SentSlice], target: Destination
    ) -> tuple[SentSlice, ...]:
        store, throttle = self.runtime.store, self.runtime.throttles.of(run.operation.id, run.request.limits)
        with self.runtime.catalog.read() as conn:
            found = [chains.segments(conn, s.segments) for s in slices]
            schemas = _schemas(conn, {s.target_id for s in slices})
        held = [(schemas[s.target_id], segments) for s, segments in zip(slices, found, strict=True)]
        try:
            made = as_objects(store, held, target, throttle, among=run.progress.bytes_total)
        except Corrupted:
            note_damage(self.runtime, run.body.collection_id, [s for of in found for s in of])
            raise
        return tuple(replace(s, objects=objects) for s, objects in zip(slices, made, strict=True))

    def store(self, tx: Writer, run: SendRun, part: Part[SentBatch], made: SentBatch) -> SentBatch:
        size, workers = part.body.bytes, self.runtime.settings.workers
        run.report(tx, run.progress.report(size, began=run.operation.created, now=tx.now, workers=workers))
        return made

    def time_limit(self, run: SendRun, part: Part[SentBatch]) -> float | None:
        return self.runtime.settings.shard_seconds + part.body.slowed


class ManifestPart(SendingPart[Listed]):
    """Part that writes the manifest of a backup."""

    record = Listed

    def work(self, run: SendRun, part: Part[Listed]) -> None:
        with self.writing(run) as (there, lease):
            self._list(run, part.body.backup, there, lease)

    def _list(self, run: SendRun, name: str, there: Repository, lease: RepositoryLease) -> None:
        with self.runtime.catalog.read() as conn:
            path = require_id(conn, run.body.collection_id)
            collection = path.record(CollectionRecord)
            backups = {p.name: p for p in paths.backups(conn, path)}
            made = _objects(conn, run)
            record = with_object_sizes(backups[name].record(BackupRecord), made)
            builds_on = ancestors(conn, path, record)
        here = self.leases.here()
        if record.parent is not None and record.parent not in run.body.backups:
            there.require(backups[record.parent].record(BackupRecord), name, path.name)
        manifest = Manifest(
            repository=there.marker.id,
            engine=VERSION,
            warehouse=here,
            collection=path.name,
            tables=collection.tables,
            settings=replace(collection.settings, storage=CLUSTER),
            backup=record.for_a_repository(),
            contents={path: Contents.of(table, made) for path, table in record.tables.items()},
        )
        publish(self.runtime.files, there, lease, manifest, builds_on)


def _find_waiting(conn: Connection, name: str, root: str) -> str | None:
    """Return the newest backup that waits in the warehouse and can be uploaded. None: no backup waits.

    A backup waits in the warehouse if the collection's repository was unavailable when the backup was taken.
    The upload of a backup includes all waiting backups that it builds on.

    Args:
        name: Name of the collection.
        root: Folder or URL of its repository.
    """
    path = require_collection(conn, name)
    heads = backup_heads(conn, path)
    busy = {backup.name for backup, _ in heads if backup.state != paths.READY}
    for _, head in reversed(heads):
        if head.stored != root:
            try:
                chain = find_chain(conn, path, head.name)
            except Corrupted:
                continue
            if busy.isdisjoint(record.name for record in chain):
                return head.name
    return None


def _schemas(conn: Connection, target_ids: Iterable[int]) -> dict[int, TableSchema]:
    return {path.id: path.record(TableBody).schema for path in paths.by_ids(conn, target_ids)}


def _objects(conn: Connection, run: SendRun) -> dict[int, tuple[ObjectRecord, ...]]:
    """Return the uploaded objects, by the id of the catalog path whose segments they are."""
    made: dict[int, tuple[ObjectRecord, ...]] = {}
    for batch in run.bodies(conn, "objects", SentBatch):
        for slice_ in batch.slices:
            if slice_.objects is None:
                raise Internal(f"the segments of path {slice_.target_id} were not sent")
            made[slice_.target_id] = (*made.get(slice_.target_id, ()), *slice_.objects)
    return made


def with_object_sizes(record: BackupRecord, made: dict[int, tuple[ObjectRecord, ...]]) -> BackupRecord:
    """Return a backup's record with the sizes of its uploaded objects."""

    def slice_(of: SliceRecord) -> SliceRecord:
        return replace(of, bytes=sum(o.bytes for o in made.get(of.target_id, ())))

    return replace(
        record,
        tables={
            path: replace(
                table,
                slice=slice_(table.slice),
                indexes=tuple(
                    i if i.slice is None else replace(i, slice=slice_(i.slice)) for i in table.indexes
                ),
            )
            for path, table in record.tables.items()
        },
    )


def place_objects(
    tx: Writer, record: BackupRecord, made: dict[int, tuple[ObjectRecord, ...]], root: str
) -> None:
    """Replace the segments of a backup's paths by objects of a repository.

    Args:
        made: Objects in the repository, by the id of the path that holds them.
        root: Folder or URL of the repository.
    """
    targets = [s.target_id for s in record.slices]
    chains.supersede(tx, targets)
    new = {
        target_id: [o.segment(root, f"{target_id}.{n}") for n, o in enumerate(made.get(target_id, ()))]
        for target_id in targets
    }
    chains.attach_all(tx, chains.insert_all(tx, new, record.step), record.step)
