"""Parts of a fold: one kind folds a shard, the other writes the manifest of the folded backup.

A part reads and writes files outside a transaction. Its transaction then attaches the new segments to a
hidden staging path. ``Folded`` is the result of all shards of a run; ``Folded.place`` makes it the content of
the backup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias, TypeVar

from sqlalchemy import Connection

from strandline.backups.chain import find_chain
from strandline.backups.collection import CLUSTER, CollectionRecord, CompactRequest, MergeRequest
from strandline.backups.fold.fold_plan import (
    FoldedManifest,
    FoldedShard,
    FoldedSource,
    HeldSlice,
    MergedShard,
    StandingSlice,
    fold_records,
    is_at,
    sources,
)
from strandline.backups.record import BackupRecord, ancestors
from strandline.backups.repository.lease import RepositoryLease
from strandline.backups.repository.manifest import Contents, Manifest, ObjectRecord
from strandline.backups.repository.repository import Repository
from strandline.backups.repository.repository_writer import Leases, WritingPart, publish
from strandline.backups.repository.upload import as_objects
from strandline.catalog import chains, definitions, paths, tables
from strandline.catalog.paths import Path, require_id
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.errors import Corrupted, Internal
from strandline.model import Chain, Digest, Segment, State, TableSchema, is_elsewhere
from strandline.operations.byte_progress import Transfer
from strandline.operations.kind import Body, Part, Run
from strandline.records import Record
from strandline.runtime import Runtime
from strandline.settings import Limits
from strandline.storage.chain_slices import Slice, Window
from strandline.storage.shards import lies_in
from strandline.storage.throttle import Throttle
from strandline.version import VERSION


@dataclass(frozen=True, kw_only=True)
class CompactBody(Body):
    """State of a compaction.

    Attributes:
        root: Repository of the backup. None: the backup is in the warehouse.
        increments: Number of increments that are folded. 0: the backup is already a full one.
    """

    FORMAT: ClassVar[int] = 2
    """Format 2: the segments of the full backup may be shared.

    Older versions know only format 1. They do not read format 2, because they cannot share these segments.
    """

    collection_id: int
    backup: str
    step: int
    root: str | None
    increments: int


@dataclass(frozen=True, kw_only=True)
class MergeBody(Body):
    """State of a merge.

    Attributes:
        root: Repository of the backups. None: they are in the warehouse.
        runs: Names of the increments of each run, oldest first. All are merged into the last one of the run.
    """

    collection_id: int
    root: str | None
    runs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class CompactProgress(Transfer):
    """Progress of a compaction or merge: bytes in the shards that are folded so far, and in all shards."""


CompactRun: TypeAlias = Run[CompactRequest, CompactBody, CompactProgress]
MergeRun: TypeAlias = Run[MergeRequest, MergeBody, CompactProgress]
FoldRun: TypeAlias = CompactRun | MergeRun


class Folded:
    """The result of folding one run of a chain, after all of its shards are folded.

    Attributes:
        backup: Path of the last backup of the run.
        record: Record of this backup after the fold.
        others: Names of the other backups of the run.
        held: All segments of each table and index of this backup after the fold, by path id.
        placed: The segments in ``held`` that must be attached to their path, by path id.
        replaced: Ids of the paths whose present segments must be detached.
        staging: Ids of the staging paths, by the id of the path that will hold the segments.
    """

    def __init__(self, conn: Connection, run: FoldRun, backup: str) -> None:
        collection = require_id(conn, run.body.collection_id)
        self.backup = next(p for p in paths.backups(conn, collection) if p.name == backup)
        chain = find_chain(conn, collection, backup)
        since = 0
        if isinstance(run.body, MergeBody):
            names = next(names for names in run.body.runs if names[-1] == backup)
            since = [record.name for record in chain].index(names[0])
        self.others = [record.name for record in chain[since:-1]]
        self.sources = sources(conn, chain, since)
        self._shards: dict[int, list[FoldedShard | MergedShard]] = {}
        shards: list[FoldedShard | MergedShard] = []
        shards += run.bodies(conn, "fold", FoldedShard)
        shards += run.bodies(conn, "merge", MergedShard)
        for each in shards:
            self._shards.setdefault(each.shard.target_id, []).append(each)
        wanted = {source.target_id for source in self.sources}
        self.staging: dict[int, int] = {
            i: self._shards[i][0].shard.staging_id for i in wanted & self._shards.keys()
        }
        manifests = [m for kind in MANIFESTS for m in run.bodies(conn, kind, FoldedManifest)]
        standing = {s.target_id: s for m in manifests for s in m.standing if s.target_id in wanted}
        waiting = chains.segments_of_backups(conn, self.staging.values(), chain[-1].step)
        self.held: dict[int, Sequence[Segment]] = {}
        self.placed: dict[int, Sequence[Segment]] = {}
        self.replaced: set[int] = set()
        slices = {}
        for source in self.sources:
            i, found = source.target_id, standing.get(source.target_id)
            if found is not None:
                use = f"{i}.{run.operation.id}"
                root = run.body.root or ""
                held: Sequence[Segment] = [o.segment(root, f"{use}.{n}") for n, o in enumerate(found.objects)]
                rows, tombstones = found.rows, found.tombstones
            else:
                held = self._read_held(source, waiting)
                rows, tombstones = self._count(source)
            self.held[i] = held
            slices[i] = source.fold(rows, tombstones, sum(s.bytes for s in held))
            own = {s.id for s in source.held[-1].segments}
            if not own <= {s.id for s in held}:
                self.replaced.add(i)
            if i in self.replaced or len(held) > len(own):
                self.placed[i] = [s for s in held if s.id not in own]
        self.record = fold_records(chain[since:], slices)

    def _read_held(self, source: FoldedSource, waiting: Mapping[int, Sequence[Segment]]) -> Sequence[Segment]:
        if source.target_id not in self.staging:
            return source.segments
        base, made = self._base(source), waiting.get(self.staging[source.target_id], ())
        return made if base is None else (*base.segments, *made)

    def _base(self, source: FoldedSource) -> HeldSlice | None:
        """Return the slice of the full backup if its segments are shared. None: all slices are folded."""
        shards = self._shards.get(source.target_id, ())
        is_kept = source.is_whole and any(isinstance(s, MergedShard) and not s.whole for s in shards)
        return source.held[0] if is_kept else None

    def _count(self, source: FoldedSource) -> tuple[int, int]:
        """Return the number of changes of a source, and the number of tombstones among these."""
        shards = self._shards.get(source.target_id)
        if shards is None:
            slices = [each.slice for each in source.held]
            return sum(s.rows for s in slices), sum(s.tombstones for s in slices)
        merged = [shard for shard in shards if isinstance(shard, MergedShard)]
        return sum(shard.rows for shard in merged), sum(shard.tombstones for shard in merged)

    def check(self) -> None:
        """Raise CORRUPTED if the digests of the folded rows do not add up to the recorded digests."""
        for source in self.sources:
            shards = self._shards.get(source.target_id)
            if shards is None:
                continue  # All segments are shared. Their digests were checked when the chain was read.
            base = self._base(source)
            found = source.before if base is None else base.slice.after
            for each in shards:
                if each.shard.digest is None:
                    raise Internal(f"a shard of {source.name} is not folded yet")
                found += each.shard.digest
            recorded = source.last.after
            if found != recorded:
                raise Corrupted(
                    f"the chain of {self.backup.name} folds {source.name} to {found.hex} ({found.rows} "
                    f"rows), but {recorded.hex} ({recorded.rows} rows) was recorded",
                    "Nothing was changed. Look for damage with db.verify(), and take a full backup.",
                )

    def place(self, tx: Writer, run: FoldRun) -> None:
        """Check the digests, and make the result the content of the backup.

        The old segments are deleted when no reader needs them any more.
        """
        self.check()
        step, is_full = self.record.step, self.record.kind == "full"
        chains.supersede(tx, self.replaced)
        new = {i: held for i, held in self.placed.items() if not all(s.id for s in held)}
        ids = {i: [s.id for s in held] for i, held in self.placed.items()}
        chains.attach_all(tx, ids | chains.insert_all(tx, new, step), step)
        digests = {
            s.target_id: Digest(s.rows, s.after.value)
            for s in self.record.slices
            if is_full or s.target_id in self.placed
        }
        tables.set_first_digests(tx, digests)
        bodies: dict[int, Record] = {
            path.id: replace(path.record(TableBody), increment=not is_full)
            for path in paths.by_ids(tx.conn, digests)
        }
        definitions.alter_all(tx, {**bodies, self.backup.id: self.record})
        paths.set_state(tx, self.staging.values(), "dropping", run.operation.id)


S = TypeVar("S", FoldedShard, MergedShard)


class FoldPart(WritingPart[FoldRun, S]):
    """Part that folds a shard. The limits of the request apply to its copying.

    If only the full backup has rows in a ``FoldedShard``, its segments are shared. The part then reads these
    segments to check the digest, and writes nothing.
    """

    def __init__(self, runtime: Runtime, leases: Leases, record: type[S]) -> None:
        super().__init__(runtime, leases)
        self.record = record

    def _limits(self, run: FoldRun) -> Limits:
        # A request that an older version has stored has no limits. The limits of the settings apply to it.
        return run.request.limits or self.runtime.limits

    def work(self, run: FoldRun, part: Part[S]) -> Slice:
        body, shard = part.body, part.body.shard
        with self.runtime.catalog.read() as conn:
            schema = require_id(conn, shard.staging_id).record(TableBody).schema
            found = [chains.load(conn, *each).narrow(shard.within).segments for each in shard.slices]
        throttle = self.runtime.throttles.of(run.operation.id, self._limits(run))
        use = f"{shard.staging_id}.{part.id}"
        if isinstance(body, MergedShard):
            segments = tuple(segment for each in found for segment in each)
            return self._fold_changes(run, body, schema, segments, throttle=throttle, use=use)
        return self._fold_rows(run, shard, schema, found, throttle=throttle, use=use)

    def _fold_rows(
        self,
        run: FoldRun,
        shard: FoldedShard,
        schema: TableSchema,
        found: Sequence[Sequence[Segment]],
        *,
        throttle: Throttle,
        use: str,
    ) -> Slice:
        """Fold base segments and changes to new base segments.

        Args:
            found: Segments of each slice, oldest first. The first slice has the base segments.
            use: Text that makes the file names of the new segments unique in the catalog.
        """
        root, store, among = run.body.root, self.runtime.store, run.progress.bytes_total
        first: Sequence[Segment] = found[0]
        changed: list[Segment] = [segment for segments in found[1:] for segment in segments]
        state = State(schema, Chain((*first, *changed), shard.slices[-1][1]), shard.within)
        name = self.runtime.session.file_name(shard.staging_id)
        if not changed and all(lies_in(s, shard.within) and is_at(s, root) for s in first):
            (digest,) = store.checks.digests(state, [schema], among=among, name=name, throttle=throttle)
            return Slice(tuple(first), digest.rows, 0, digest)
        if root is None:
            made = store.fold(state, name, among=among)
            return Slice(made.segments, made.delta.rows, 0, made.delta)
        with self.writing(run) as (there, _):
            target = self.destination(there)
            made = store.fold_into(target, state, name, throttle, among=among)
            self.note_sent(target, (s.file for s in made.segments))
        objects = [ObjectRecord.of(s) for s in made.segments]
        return Slice(_segments(objects, root, use), made.delta.rows, 0, made.delta)

    def _fold_changes(
        self,
        run: FoldRun,
        body: MergedShard,
        schema: TableSchema,
        segments: tuple[Segment, ...],
        *,
        throttle: Throttle,
        use: str,
    ) -> Slice:
        """Fold the changes of increments to the last change of each key.

        Args:
            use: See ``_fold_rows``.
        """
        root, store, shard = run.body.root, self.runtime.store, body.shard
        step = shard.slices[-1][1]
        window = Window(body.after, step, segments, within=shard.within)
        if body.whole:
            window = replace(window, logs=(), chain=Chain(segments, step))
        made = store.slice(schema, window, self.runtime.session.file_name(shard.staging_id), throttle)
        if root is None:
            return made
        try:
            with self.writing(run) as (there, _):
                target, among = self.destination(there), run.progress.bytes_total
                (objects,) = as_objects(store, [(schema, made.segments)], target, throttle, among=among)
                self.note_sent(target, (o.object for o in objects))
        finally:
            self.discard(made)
        return replace(made, segments=_segments(objects, root, use))

    def store(self, tx: Writer, run: FoldRun, part: Part[S], made: Slice) -> S:
        shard = part.body.shard
        step = shard.slices[-1][1]
        shared: list[int] = [s.id for s in made.segments if s.id]
        new: list[int] = chains.insert_segments(tx, [s for s in made.segments if not s.id], step)
        chains.attach(tx, shard.staging_id, [*shared, *new], step)
        workers = self.runtime.settings.workers
        moved = run.progress.report(shard.bytes, began=run.operation.created, now=tx.now, workers=workers)
        run.report(tx, moved)
        return part.body.finish(made)

    def time_limit(self, run: FoldRun, part: Part[S]) -> float | None:
        settings, size = self.runtime.settings, part.body.shard.bytes
        return settings.shard_seconds + settings.workers * self._limits(run).seconds_for(size)

    def discard(self, made: Slice) -> None:
        # Objects in a repository are deleted by its garbage collection.
        new = [s for s in made.segments if not s.id and s.file is not None and not is_elsewhere(s.file)]
        self.runtime.store.discard(new)


def _segments(objects: Sequence[ObjectRecord], root: str, use: str) -> tuple[Segment, ...]:
    return tuple(o.segment(root, f"{use}.{n}") for n, o in enumerate(objects))


class FoldedManifestPart(WritingPart[FoldRun, FoldedManifest]):
    """Part that writes the manifest of the backup after the fold.

    An earlier operation may have written this manifest before it was rolled back. In this case, the manifest
    stays, and the backup uses the objects of the manifest instead of the new ones.
    """

    record = FoldedManifest

    def work(self, run: FoldRun, part: Part[FoldedManifest]) -> Manifest | None:
        with self.writing(run) as (there, lease):
            with self.runtime.catalog.read() as conn:
                found = _fold(conn, run, part)
                path = require_id(conn, run.body.collection_id)
            found.check()
            return self._write(path, found, there, lease)

    def _write(self, path: Path, found: Folded, there: Repository, lease: RepositoryLease) -> Manifest | None:
        """Write the manifest, unless an earlier operation has already written it.

        Return the manifest of the earlier operation if it lists other objects. None: the new objects are
        used.
        """
        record = found.record.for_a_repository()
        objects = {i: tuple(map(self._object, segments)) for i, segments in found.held.items()}
        contents = {name: Contents.of(table, objects) for name, table in record.tables.items()}
        standing = there.find(record)
        if standing is not None and _states(standing.backup) == _states(record):
            return None if standing.contents == contents else standing
        collection = path.record(CollectionRecord)
        manifest = Manifest(
            repository=there.marker.id,
            engine=VERSION,
            warehouse=self.leases.here(),
            collection=path.name,
            tables=collection.tables,
            settings=replace(collection.settings, storage=CLUSTER),
            backup=record,
            contents=contents,
        )
        with self.runtime.catalog.read() as conn:
            builds_on = ancestors(conn, path, record)
        publish(self.runtime.files, there, lease, manifest, builds_on)
        return None

    def _object(self, segment: Segment) -> ObjectRecord:
        if segment.file is None:
            raise Internal(f"the segment {segment.id} of a repository is inline")
        return ObjectRecord.of(replace(segment, file=self.runtime.files.locate(segment.file)[1]))

    def store(
        self, tx: Writer, run: FoldRun, part: Part[FoldedManifest], standing: Manifest | None
    ) -> FoldedManifest:
        if standing is None:
            return part.body
        return replace(part.body, standing=tuple(_list_standing(_fold(tx.conn, run, part), standing)))


MANIFESTS = ("full manifest", "merged manifest")
"""Kinds of parts that write a manifest: of a compacted full backup, and of a merged increment."""


def _fold(conn: Connection, run: FoldRun, part: Part[FoldedManifest]) -> Folded:
    if isinstance(run.body, CompactBody):
        return Folded(conn, run, run.body.backup)
    return Folded(conn, run, part.body.backup or "")


def _list_standing(found: Folded, manifest: Manifest) -> list[StandingSlice]:
    """Return the slice that an existing manifest lists for each table and index."""
    made = []
    for source in found.sources:
        table, contents = manifest.backup.tables[source.path], manifest.contents[source.path]
        index = None if source.index is None else table.index(source.index)
        slice_ = table.slice if index is None else index.slice
        objects = contents.table if source.index is None else contents.indexes[source.index]
        if slice_ is not None:
            made.append(
                StandingSlice(
                    target_id=source.target_id,
                    rows=slice_.rows,
                    tombstones=slice_.tombstones,
                    objects=objects,
                )
            )
    return made


def _states(record: BackupRecord) -> tuple[int, dict[str, list[tuple[str | None, Digest]]]]:
    """Return the step of a backup and the digests of its tables and indexes.

    Two backups hold the same rows if this result is the same for both.
    """
    return record.step, {
        path: [
            (None, table.slice.after),
            *((i.definition.name, i.slice.after) for i in table.indexes if i.slice is not None),
        ]
        for path, table in record.tables.items()
    }
