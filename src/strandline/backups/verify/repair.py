"""Repair of the damaged objects of a collection (``REPAIR c``).

1. The plan lists the objects that verifications have found damaged and that a backup needs.
2. Each part rewrites some of them. The checksum of an object identifies its content. So the content may come
   from any file of the warehouse or of another collection's repository with the same checksum, from rows that
   the catalog still holds inline, or from another repository that the caller names.
3. Each rewritten object is read again. Only then is it removed from the list of damaged objects.

The new content replaces the damaged one atomically. So a crash at any point leaves either the damaged or the
healed file, and two repairs of the same object do not disturb each other. The manifests do not change: every
backup that names the object is healed, for readers of every version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from sqlalchemy import Connection

from strandline.backups.collection import CLUSTER, CollectionRecord
from strandline.backups.record import BackupRecord, backup_records, require_collection
from strandline.backups.repository.repository_writer import Leases, WritingKind, WritingPart
from strandline.backups.verify.verification_history import keep_healed, key_of, list_damaged_objects
from strandline.catalog import chains, paths
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.chunks import batches
from strandline.errors import Corrupted, PreconditionFailed
from strandline.metrics import event
from strandline.model import Segment, TableSchema, object_of
from strandline.operations.byte_progress import Transfer
from strandline.operations.kind import Body, Part, PartPlan, Plan, Planning, Run
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.settings import Limits
from strandline.storage.file_router import object_names
from strandline.storage.files import Files, read_checked
from strandline.storage.repository_marker import MARKER, Expected, open_repository_files, read_marker
from strandline.storage.segment_files import damage
from strandline.storage.throttle import Throttle, ThrottledSource
from strandline.threads import in_parallel

TOGETHER = 256
"""Maximum number of objects in one part."""


@dataclass(frozen=True, kw_only=True)
class RepairRequest(Record):
    """Request of a repair.

    Attributes:
        source: Another repository that may have the objects. None: no other repository is read.
        limits: Limits for copying bytes.
    """

    collection: str
    source: str | None = None
    limits: Limits


@dataclass(frozen=True, kw_only=True)
class RepairBody(Body):
    """State of the operation.

    Attributes:
        root: Repository of the backups. None: they are in the warehouse.
    """

    collection_id: int
    root: str | None


@dataclass(frozen=True, kw_only=True)
class RepairProgress(Transfer):
    """Progress in bytes: the size of the objects handled so far, and of all damaged objects."""


@dataclass(frozen=True, kw_only=True)
class DamagedObject(Record):
    """A damaged object.

    Attributes:
        object: Name of the object.
        backup: The first backup that needs it.
        segment: Id of its segment in this backup.
        target_id: Id of the path in this backup that holds it.
        source_id: Id of the table that was backed up.
        healed_from: Source of its new content. None: it is not healed.
        problem: Why it could not be healed. None: it is healed, or was not checked yet.
    """

    object: str
    backup: str
    bytes: int
    segment: int
    target_id: int
    source_id: int
    healed_from: str | None = later()
    problem: str | None = later()

    def to_plain(self) -> dict[str, Any]:
        """Return the object as plain values, without ids that only the catalog knows."""
        return {
            "object": self.object,
            "backup": self.backup,
            "bytes": self.bytes,
            "healed_from": self.healed_from,
            "problem": self.problem,
        }


@dataclass(frozen=True, kw_only=True)
class RepairBatch(Record):
    """Objects that one part repairs."""

    objects: tuple[DamagedObject, ...]


RepairResult: TypeAlias = RepairBatch
RepairRun: TypeAlias = Run[RepairRequest, RepairBody, RepairProgress]


class RepairBackups(WritingKind[RepairRequest, RepairBody, RepairProgress]):
    """Operation that rewrites the damaged objects of a collection."""

    name = "repair backups"
    request, body, progress = RepairRequest, RepairBody, RepairProgress

    def __init__(self, runtime: Runtime, leases: Leases) -> None:
        super().__init__(leases)
        self.handlers = {"objects": RepairPart(runtime, leases)}
        self._shard_bytes = runtime.settings.shard_bytes

    def plan(self, tx: Writer, run: Planning[RepairRequest]) -> Plan[RepairBody, RepairProgress]:
        path = require_collection(tx.conn, run.request.collection)
        run.lock(tx, [path], "altering")
        found = find_damaged_objects(tx.conn, backup_records(tx.conn, path))
        parts = [
            PartPlan("objects", RepairBatch(objects=tuple(batch)), path=path.path, bytes=_bytes(batch))
            for batch in batches(found, lambda each: each.bytes, self._shard_bytes, TOGETHER)
        ]
        storage = path.record(CollectionRecord).settings.storage
        body = RepairBody(collection_id=path.id, root=None if storage == CLUSTER else storage)
        return Plan(parts, body, RepairProgress(bytes=0, bytes_total=_bytes(found)))

    def finish(self, tx: Writer, run: RepairRun) -> RepairResult:
        done = run.bodies(tx.conn, "objects", RepairBatch)
        return RepairResult(objects=tuple(each for batch in done for each in batch.objects))


def _bytes(objects: Iterable[DamagedObject]) -> int:
    return sum(each.bytes for each in objects)


def find_damaged_objects(conn: Connection, records: Iterable[BackupRecord]) -> list[DamagedObject]:
    """Return the known damaged objects among the objects of these backups, each once."""
    damaged = list_damaged_objects(conn)
    found: dict[str, DamagedObject] = {}
    for record in records if damaged else ():
        sources = {slice_.target_id: slice_.source_id for slice_ in record.slices}
        for target_id, segments in chains.segments_of_backups(conn, sources, record.step).items():
            for segment in segments:
                if (key := key_of(segment)) in damaged:
                    found.setdefault(
                        key, _damaged_objects(segment, record.name, target_id, sources[target_id])
                    )
    return list(found.values())


def is_damaged(conn: Connection, collection: str) -> bool:
    """Return True if an object of a collection's backups is known to be damaged."""
    path = require_collection(conn, collection)
    return bool(list_damaged_objects(conn)) and bool(find_damaged_objects(conn, backup_records(conn, path)))


def _damaged_objects(segment: Segment, backup: str, target_id: int, source_id: int) -> DamagedObject:
    name = f"inline segment {segment.id}" if segment.file is None else object_of(segment.file)
    return DamagedObject(
        object=name,
        backup=backup,
        bytes=segment.bytes,
        segment=segment.id,
        target_id=target_id,
        source_id=source_id,
    )


@dataclass(frozen=True)
class _Content:
    """A candidate for the content of an object.

    Attributes:
        told: Its source, as reported to the user.
        chunks: Its bytes.
    """

    told: str
    chunks: Iterator[bytes | memoryview]


class RepairPart(WritingPart[RepairRun, RepairBatch]):
    """Part that rewrites objects."""

    record = RepairBatch

    def work(self, run: RepairRun, part: Part[RepairBatch]) -> RepairBatch:
        throttle = self.runtime.throttles.of(run.operation.id, run.request.limits)
        with self.runtime.catalog.read() as conn:
            segments = chains.segments(conn, [each.segment for each in part.body.objects])
            twins = chains.same_content(conn, {segment.checksum for segment in segments})
            bodies = {p.id: p for p in paths.by_ids(conn, {each.target_id for each in part.body.objects})}
            logs = {
                each.object: _inline_logs(conn, each.source_id, segment)
                for each, segment in zip(part.body.objects, segments, strict=True)
            }
        schemas = {id_: path.record(TableBody).schema for id_, path in bodies.items()}
        source = self._source(run)

        def repair_object(each: DamagedObject, segment: Segment) -> DamagedObject:
            schema = schemas.get(each.target_id)
            packed = (schema, logs[each.object])
            contents = self._contents(segment, twins.get(segment.checksum, ()), packed, source, throttle)
            return self._repair(each, segment, schema, contents)

        with self._writing(run):
            made = in_parallel(repair_object, part.body.objects, segments, threads=throttle.limits.copies)
            return RepairBatch(objects=tuple(made))

    def _writing(self, run: RepairRun) -> AbstractContextManager[object]:
        """Return a context manager that holds the lease of the repository.

        For backups in the warehouse it does nothing: the lock on the collection is enough.
        """
        if run.body.root is None:
            return nullcontext()
        body, operation = run.body, run.operation
        return self.leases.writing(run.body.root, operation.id, body.collection_id, operation.kind)

    def _source(self, run: RepairRun) -> tuple[str, Files] | None:
        root = run.request.source
        if root is None:
            return None
        place = self.runtime.files.opener(root)
        marker = read_marker(place)
        if marker is None:
            raise PreconditionFailed(
                f"{root} is not a backup repository: it has no {MARKER}",
                "Check the folder or the URL, and that its storage is mounted.",
            )
        # The source need not be trusted: every byte from it is compared with a checksum of the catalog.
        files, _ = open_repository_files(place, self.runtime.settings, Expected(encrypted=marker.encrypted))
        return root, files

    def _contents(
        self,
        segment: Segment,
        twins: Sequence[Segment],
        packed: tuple[TableSchema | None, Sequence[Segment]],
        source: tuple[str, Files] | None,
        throttle: Throttle,
    ) -> Iterator[_Content]:
        """Yield candidates for the content of an object: known files, inline rows, then ``source``.

        Args:
            twins: Segments with the same checksum.
            packed: Schema of the table, and the inline changes from which the object may have been packed.
            source: URL and files of the repository that the caller has named.
        """
        known = {object_of(segment.file or "")}
        for twin in twins:
            name = object_of(twin.file or "")
            if name not in known:
                known.add(name)
                files, inside = self.runtime.files.locate(name)
                yield _Content(name, read_checked(ThrottledSource(files, throttle), inside, segment.checksum))
        schema, logs = packed
        if schema is not None and logs:
            with suppress(Corrupted):  # The inline rows are damaged as well.
                data = self.runtime.store.pack_bytes(schema, logs, segment.checksum)
                if data is not None:
                    yield _Content("rows of the table", iter((data,)))
        if source is not None:
            root, files = source
            for name in object_names(files, segment.checksum):
                if files.exists(name):
                    yield _Content(
                        f"{root}/{name}",
                        read_checked(ThrottledSource(files, throttle), name, segment.checksum),
                    )

    def _repair(
        self, each: DamagedObject, segment: Segment, schema: TableSchema | None, contents: Iterator[_Content]
    ) -> DamagedObject:
        if segment.file is None:
            return replace(each, problem="its rows are in the catalog itself, and there is no other copy")
        if damage(self.runtime.files, segment) is None:
            # The bytes match the checksum. If the record of the object is wrong, other bytes would not help.
            wrong = damage(self.runtime.files, segment, schema)
            if wrong is not None:
                return replace(each, problem=wrong.message)
            return replace(each, healed_from="not needed: its bytes are right again")
        files, name = self.runtime.files.locate(segment.file)
        try:
            files.exists(name)
        except Corrupted as error:
            return replace(each, problem=error.message)  # The name is a link, or a path through a link.
        for content in contents:
            try:
                if files.exists(name):
                    files.replace(name, content.chunks)
                else:
                    files.store_if_absent(name, content.chunks)
            except Corrupted:
                continue  # This candidate is damaged or missing as well.
            if damage(self.runtime.files, segment) is None:
                event("object healed", object=each.object, source=content.told)
                return replace(each, healed_from=content.told)
        return replace(each, problem="no known file has the same content")

    def store(self, tx: Writer, run: RepairRun, part: Part[RepairBatch], made: RepairBatch) -> RepairBatch:
        segments = chains.segments(tx.conn, [each.segment for each in made.objects])
        pairs = zip(made.objects, segments, strict=True)
        keep_healed(tx, [key_of(segment) for each, segment in pairs if each.healed_from is not None])
        size, workers = _bytes(made.objects), self.runtime.settings.workers
        run.report(tx, run.progress.report(size, began=run.operation.created, now=tx.now, workers=workers))
        return made

    def time_limit(self, run: RepairRun, part: Part[RepairBatch]) -> float | None:
        slowed = run.request.limits.seconds_for(_bytes(part.body.objects))
        return self.runtime.settings.shard_seconds + slowed


def _inline_logs(conn: Connection, source_id: int, segment: Segment) -> Sequence[Segment]:
    """Return the inline changes of a table that lie between the first and the last step of a segment.

    The segment's object may have been packed from them.
    """
    if segment.role != "log" or not segment.stepped:
        return ()
    logs = chains.log_between(conn, source_id, segment.after, segment.upto)
    inside = (s for s in logs if s.after >= segment.after and s.upto <= segment.upto)
    return [s for s in inside if s.file is None]
