"""Parts of a compaction: folding a shard, and writing the manifest of the full backup.

A part reads and writes files outside a transaction. Its transaction then attaches the new segments to a
hidden path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlalchemy import Connection

from strandline.backups.chain import find_chain
from strandline.backups.collection import CLUSTER, CollectionRecord, CompactRequest
from strandline.backups.fold.compact_plan import FoldedShard, FoldedSource, is_at, sources, to_full_backup
from strandline.backups.record import BackupRecord, ancestors
from strandline.backups.repository.lease import RepositoryLease
from strandline.backups.repository.manifest import Contents, Manifest, ObjectRecord
from strandline.backups.repository.repository import Repository
from strandline.backups.repository.repository_writer import WritingPart, publish
from strandline.catalog import chains, paths
from strandline.catalog.paths import Path, require_id
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.errors import Corrupted, Internal
from strandline.model import Chain, Digest, Segment, State, is_elsewhere
from strandline.operations.byte_progress import Transfer
from strandline.operations.kind import Body, P, Part, Run, RunT
from strandline.records import Nothing
from strandline.settings import Limits
from strandline.storage.shards import lies_in
from strandline.storage.throttle import Throttle
from strandline.version import VERSION


@dataclass(frozen=True, kw_only=True)
class CompactBody(Body):
    """State of the operation.

    Attributes:
        root: Repository of the backup. None: it is in the warehouse.
        increments: Number of increments that are folded. 0 if the backup is already a full one.
    """

    collection_id: int
    backup: str
    step: int
    root: str | None
    increments: int


@dataclass(frozen=True, kw_only=True)
class CompactProgress(Transfer):
    """Number of bytes in folded shards, of the total."""


CompactRun: TypeAlias = Run[CompactRequest, CompactBody, CompactProgress]
Held: TypeAlias = Mapping[int, Sequence[Segment]]
"""The segments of a backup's paths, by path id."""


class Folded:
    """The result, after all shards are folded.

    Attributes:
        record: The record of the full backup.
        staging: Ids of the staging paths, by the id of the path that will hold the segments.
        sums: Digests of the folded shards, by path id.
        held: The segments that the paths will hold.
        placed: Those of them that the paths do not hold yet.
    """

    def __init__(self, conn: Connection, run: CompactRun) -> None:
        collection = require_id(conn, run.body.collection_id)
        chain = find_chain(conn, collection, run.body.backup)
        self.backup = next(p for p in paths.backups(conn, collection) if p.name == run.body.backup)
        self.record = chain[-1]
        self.sources: list[FoldedSource] = []
        self.staging: dict[int, int] = {}
        self.sums: dict[int, Digest] = {}
        self.placed: dict[int, Sequence[Segment]] = {}
        self.held: dict[int, Sequence[Segment]] = {}
        if run.body.increments:
            self.sources = sources(conn, chain)
            self._read(conn, run)

    def _read(self, conn: Connection, run: CompactRun) -> None:
        for shard in run.bodies(conn, "fold", FoldedShard):
            if shard.digest is None:
                raise Internal(f"a shard of path {shard.target_id} is not folded yet")
            self.staging[shard.target_id] = shard.staging_id
            self.sums[shard.target_id] = self.sums.get(shard.target_id, Digest()) + shard.digest
        waiting = chains.segments_of_backups(conn, self.staging.values(), run.body.step)
        held = self.held
        for source in self.sources:
            target_id, first = source.target_id, source.held[0]
            if target_id in self.staging:
                held[target_id] = waiting.get(self.staging[target_id], ())
            else:
                held[target_id] = first.segments
            if target_id in self.staging or first.slice.target_id != target_id:
                self.placed[target_id] = held[target_id]
        bytes_ = {target_id: sum(s.bytes for s in segments) for target_id, segments in held.items()}
        self.record = to_full_backup(self.record, bytes_)

    def check(self) -> None:
        """Check that the folded rows have the digests that were recorded."""
        for source in self.sources:
            found = self.sums.get(source.target_id, source.last.after)
            if found != source.last.after:
                recorded = source.last.after
                raise Corrupted(
                    f"the chain of {self.record.name} folds {source.name} to {found.hex} ({found.rows} "
                    f"rows), but {recorded.hex} ({recorded.rows} rows) was recorded",
                    "Nothing was changed. Look for damage with db.verify(), and take a full backup.",
                )


@dataclass(frozen=True)
class _Made:
    """Segments of a folded shard: existing ones that are shared, and new ones."""

    shared: Sequence[Segment]
    new: Sequence[Segment]
    digest: Digest


class PacedPart(WritingPart[RunT, P]):
    """A part that folds backups within the limits of its request.

    A request that was stored by an older version has no limits; then those of the settings apply.
    """

    def limits(self, run: RunT) -> Limits:
        asked: Limits | None = run.request.limits
        return asked or self.runtime.limits

    def throttle(self, run: RunT) -> Throttle:
        return self.runtime.throttles.of(run.operation.id, self.limits(run))

    def time_for(self, run: RunT, size: int) -> float:
        """Return the time limit in seconds for folding ``size`` bytes."""
        settings = self.runtime.settings
        return settings.shard_seconds + settings.workers * self.limits(run).seconds_for(size)


class FoldPart(PacedPart[CompactRun, FoldedShard]):
    """Part that folds a shard.

    If only the first backup has rows in the shard, its segments are shared: they are read to check the
    digest, not written.
    """

    record = FoldedShard

    def work(self, run: CompactRun, part: Part[FoldedShard]) -> _Made:
        body, root, store = part.body, run.body.root, self.runtime.store
        among = run.progress.bytes_total
        with self.runtime.catalog.read() as conn:
            schema = require_id(conn, body.staging_id).record(TableBody).schema
            found = [chains.load(conn, *each).narrow(body.within).segments for each in body.slices]
        changed = [segment for segments in found[1:] for segment in segments]
        state = State(schema, Chain((*found[0], *changed), run.body.step), body.within)
        name = self.runtime.session.file_name(body.staging_id)
        throttle = self.throttle(run)
        if not changed and all(lies_in(s, body.within) and is_at(s, root) for s in found[0]):
            (digest,) = store.checks.digests(state, [schema], among=among, name=name, throttle=throttle)
            return _Made(found[0], (), digest)
        if root is None:
            folded = store.fold(state, name, among=among)
            return _Made((), folded.segments, folded.delta)
        with self.writing(run) as (there, _):
            target = self.destination(there)
            folded = store.fold_into(target, state, name, throttle, among=among)
            self.note_sent(target, (s.file for s in folded.segments))
        use = f"{body.staging_id}.{part.id}"
        new = [ObjectRecord.of(s).segment(root, f"{use}.{n}") for n, s in enumerate(folded.segments)]
        return _Made((), new, folded.delta)

    def configure(self, tx: Writer, run: CompactRun, part: Part[FoldedShard], made: _Made) -> FoldedShard:
        body, step = part.body, run.body.step
        ids = chains.insert_segments(tx, made.new, step)
        chains.attach(tx, body.staging_id, [*(s.id for s in made.shared), *ids], step)
        workers = self.runtime.settings.workers
        moved = run.progress.report(body.bytes, began=run.operation.created, now=tx.now, workers=workers)
        run.report(tx, moved)
        return replace(body, digest=made.digest)

    def time_limit(self, run: CompactRun, part: Part[FoldedShard]) -> float | None:
        return self.time_for(run, part.body.bytes)

    def discard(self, made: _Made) -> None:
        # The garbage collection of the repository deletes an unneeded object.
        here = [s for s in made.new if s.file is not None and not is_elsewhere(s.file)]
        self.runtime.store.discard(here)


class FoldedManifestPart(WritingPart[RunT, P]):
    """Part that writes the manifest of a compacted or merged backup."""

    def write_manifest(
        self, path: Path, record: BackupRecord, held: Held, there: Repository, lease: RepositoryLease
    ) -> Manifest | None:
        """Write the manifest of a backup in its present form.

        If an earlier, rolled-back try has already written it with other objects, return that manifest.
        """
        record = record.for_a_repository()
        objects = {i: tuple(map(self._object, segments)) for i, segments in held.items()}
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


class FullManifestPart(FoldedManifestPart[CompactRun, Nothing]):
    """Part that writes the manifest of the full backup.

    If an earlier try was rolled back after it had written this manifest, that manifest stays and its objects
    are used.
    """

    record = Nothing

    def work(self, run: CompactRun, part: Part[Nothing]) -> Manifest | None:
        with self.writing(run) as (there, lease):
            return self._list(run, there, lease)

    def _list(self, run: CompactRun, there: Repository, lease: RepositoryLease) -> Manifest | None:
        with self.runtime.catalog.read() as conn:
            found = Folded(conn, run)
            path = require_id(conn, run.body.collection_id)
        found.check()
        return self.write_manifest(path, found.record, found.held, there, lease)

    def configure(
        self, tx: Writer, run: CompactRun, part: Part[Nothing], standing: Manifest | None
    ) -> Nothing:
        if standing is not None:
            self._adopt(tx, run, part, standing)
        return part.body

    def _adopt(self, tx: Writer, run: CompactRun, part: Part[Nothing], standing: Manifest) -> None:
        found, root, step = Folded(tx.conn, run), run.body.root or "", run.body.step
        chains.supersede(tx, found.staging.values())
        for source in found.sources:
            contents = standing.contents[source.path]
            objects = contents.table if source.index is None else contents.indexes[source.index]
            if (staging_id := found.staging.get(source.target_id)) is not None:
                use = f"{staging_id}.{part.id}"
                new = [o.segment(root, f"{use}.{n}") for n, o in enumerate(objects)]
                chains.attach(tx, staging_id, chains.insert_segments(tx, new, step), step)


def _states(record: BackupRecord) -> tuple[int, dict[str, list[tuple[str | None, Digest]]]]:
    """Return what identifies a backup's content: its step, and the digests of its tables and indexes."""
    return record.step, {
        path: [
            (None, table.slice.after),
            *((i.definition.name, i.slice.after) for i in table.indexes if i.slice is not None),
        ]
        for path, table in record.tables.items()
    }
