"""Parts of a merge: folding a shard, and writing the manifest of the merged backup.

A part reads and writes files outside a transaction. Its transaction then attaches the new segments to a
hidden path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlalchemy import Connection

from strandline.backups.chain import find_chain
from strandline.backups.collection import MergeRequest
from strandline.backups.fold.compact_parts import CompactProgress, FoldedManifestPart, PacedPart
from strandline.backups.fold.compact_plan import sources
from strandline.backups.fold.merge_plan import (
    Amount,
    MergedManifest,
    MergedShard,
    StandingSlice,
    before,
    holder,
    merge_records,
    merge_slices,
)
from strandline.backups.record import SliceRecord
from strandline.backups.repository.manifest import Manifest
from strandline.backups.repository.upload import as_objects
from strandline.catalog import chains, paths
from strandline.catalog.paths import require_id
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.errors import Corrupted, Internal
from strandline.model import Chain, Digest, Segment, is_elsewhere
from strandline.operations.kind import Body, Part, Run
from strandline.storage.chain_slices import Slice, Window


@dataclass(frozen=True, kw_only=True)
class MergeBody(Body):
    """State of the operation.

    Attributes:
        root: Repository of the backups. None: they are in the warehouse.
        runs: Names of the increments in each run, oldest first. The others are merged into the last one.
    """

    collection_id: int
    root: str | None
    runs: tuple[tuple[str, ...], ...]


MergeRun: TypeAlias = Run[MergeRequest, MergeBody, CompactProgress]


class Merged:
    """The result of one run, after all of its shards are folded.

    Attributes:
        record: The record of the merged backup.
        held: The segments that its paths will hold.
        placed: Those of them that its paths do not hold yet.
    """

    def __init__(self, conn: Connection, run: MergeRun, names: Sequence[str]) -> None:
        collection = require_id(conn, run.body.collection_id)
        chain = find_chain(conn, collection, names[-1])
        since = [record.name for record in chain].index(names[0])
        there = {path.name: path for path in paths.backups(conn, collection)}
        self.backup = there[names[-1]]
        self.swallowed = [there[name] for name in names[:-1]]
        self.sources = sources(conn, chain, since)
        self.staging: dict[int, int] = {}
        self._shards: dict[int, list[MergedShard]] = {}
        wanted = {source.target_id for source in self.sources}
        for merged in run.bodies(conn, "merge", MergedShard):
            if merged.shard.target_id in wanted:
                self._shards.setdefault(merged.shard.target_id, []).append(merged)
                self.staging[merged.shard.target_id] = merged.shard.staging_id
        self._standing = {
            slice_.target_id: slice_
            for part in run.bodies(conn, "merged manifest", MergedManifest)
            for slice_ in part.standing
            if slice_.target_id in wanted
        }
        self.held: dict[int, Sequence[Segment]] = {}
        self.placed: dict[int, Sequence[Segment]] = {}
        self._read(conn, run, chain[-1].step)
        self.record = merge_records(chain[since:], self._slices())

    def _read(self, conn: Connection, run: MergeRun, step: int) -> None:
        root = run.body.root
        waiting = chains.segments_of_backups(conn, self.staging.values(), step)
        self._amounts: dict[int, Amount] = {}
        for source in self.sources:
            target_id = source.target_id
            if (standing := self._standing.get(target_id)) is not None:
                use = f"{target_id}.{run.operation.id}"
                held: Sequence[Segment] = [
                    o.segment(root or "", f"{use}.{n}") for n, o in enumerate(standing.objects)
                ]
                rows, tombstones = standing.rows, standing.tombstones
            elif target_id in self.staging:
                held, shards = waiting.get(self.staging[target_id], ()), self._shards[target_id]
                rows = sum(shard.rows for shard in shards)
                tombstones = sum(shard.tombstones for shard in shards)
            else:
                found = holder(source, root)
                if found is None:
                    raise Internal(f"the changes of {source.name} were not folded")
                held, rows, tombstones = found.segments, found.slice.rows, found.slice.tombstones
            self.held[target_id] = held
            self._amounts[target_id] = Amount(rows, tombstones, sum(s.bytes for s in held))
            if [s.id for s in held] != [s.id for s in source.held[-1].segments] or standing is not None:
                self.placed[target_id] = held

    def _slices(self) -> dict[int, SliceRecord]:
        return {s.target_id: merge_slices(s, self._amounts[s.target_id]) for s in self.sources}

    def digests(self) -> dict[int, Digest]:
        """Return the row count and final digest to store for each path that gets new segments."""
        return {
            source.target_id: Digest(self._amounts[source.target_id].rows, source.last.after.value)
            for source in self.sources
            if source.target_id in self.placed
        }

    def check(self) -> None:
        """Check that the folded changes lead from the first increment's start to the last one's end."""
        for source in self.sources:
            shards = self._shards.get(source.target_id)
            if shards is None:
                continue  # A shared slice was checked when the chain was read.
            found = before(source)
            for merged in shards:
                if merged.shard.digest is None:
                    raise Internal(f"a shard of {source.name} is not folded yet")
                found += merged.shard.digest
            recorded = source.last.after
            if found != recorded:
                raise Corrupted(
                    f"the increments up to {self.backup.name} lead {source.name} to {found.hex} "
                    f"({found.rows} rows), but {recorded.hex} ({recorded.rows} rows) was recorded",
                    "Nothing was changed. Look for damage with db.verify(), and take a full backup.",
                )


class MergePart(PacedPart[MergeRun, MergedShard]):
    """Part that folds a shard of the merged slices."""

    record = MergedShard

    def work(self, run: MergeRun, part: Part[MergedShard]) -> Slice:
        body, root, store = part.body, run.body.root, self.runtime.store
        shard = body.shard
        with self.runtime.catalog.read() as conn:
            schema = require_id(conn, shard.staging_id).record(TableBody).schema
            found = [chains.load(conn, *each).narrow(shard.within).segments for each in shard.slices]
        segments = tuple(segment for each in found for segment in each)
        step = shard.slices[-1][1]
        if body.whole:
            window = Window(body.after, step, chain=Chain(segments, step), within=shard.within)
        else:
            window = Window(body.after, step, segments, within=shard.within)
        throttle = self.throttle(run)
        made = store.slice(schema, window, self.runtime.session.file_name(shard.staging_id), throttle)
        if root is None:
            return made
        try:
            with self.writing(run) as (there, _):
                target, among = self.destination(there), run.progress.bytes_total
                (objects,) = as_objects(store, [(schema, made.segments)], target, throttle, among=among)
                self.note_sent(target, (o.object for o in objects))
        finally:
            store.discard(s for s in made.segments if s.file is not None)
        use = f"{shard.staging_id}.{part.id}"
        return replace(made, segments=tuple(o.segment(root, f"{use}.{n}") for n, o in enumerate(objects)))

    def configure(self, tx: Writer, run: MergeRun, part: Part[MergedShard], made: Slice) -> MergedShard:
        body, shard = part.body, part.body.shard
        step = shard.slices[-1][1]
        chains.attach(tx, shard.staging_id, chains.insert_segments(tx, made.segments, step), step)
        workers = self.runtime.settings.workers
        moved = run.progress.report(shard.bytes, began=run.operation.created, now=tx.now, workers=workers)
        run.report(tx, moved)
        folded = replace(shard, digest=made.delta)
        return replace(body, shard=folded, rows=made.rows, tombstones=made.tombstones)

    def time_limit(self, run: MergeRun, part: Part[MergedShard]) -> float | None:
        return self.time_for(run, part.body.shard.bytes)

    def discard(self, made: Slice) -> None:
        # The garbage collection of the repository deletes an unneeded object.
        self.runtime.store.discard(s for s in made.segments if s.file and not is_elsewhere(s.file))


class MergedManifestPart(FoldedManifestPart[MergeRun, MergedManifest]):
    """Part that writes the manifest of the merged backup.

    If an earlier try was rolled back after it had written this manifest, that manifest stays and its objects
    are used.
    """

    record = MergedManifest

    def work(self, run: MergeRun, part: Part[MergedManifest]) -> Manifest | None:
        with self.writing(run) as (there, lease):
            with self.runtime.catalog.read() as conn:
                found = _merge(conn, run, part)
                path = require_id(conn, run.body.collection_id)
            found.check()
            return self.write_manifest(path, found.record, found.held, there, lease)

    def configure(
        self, tx: Writer, run: MergeRun, part: Part[MergedManifest], standing: Manifest | None
    ) -> MergedManifest:
        if standing is None:
            return part.body
        return replace(part.body, standing=tuple(_standing(_merge(tx.conn, run, part), standing)))


def _merge(conn: Connection, run: MergeRun, part: Part[MergedManifest]) -> Merged:
    return Merged(conn, run, next(names for names in run.body.runs if names[-1] == part.body.backup))


def _standing(found: Merged, manifest: Manifest) -> list[StandingSlice]:
    """Return what an existing manifest has of each merged table and index."""
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


def place(tx: Writer, found: Merged) -> None:
    """Replace the segments of a backup's paths. The old segments are freed when no reader needs them."""
    chains.supersede(tx, found.placed)
    step = found.record.step
    ids = {
        target_id: [s.id for s in held] if all(s.id for s in held) else chains.insert_segments(tx, held, step)
        for target_id, held in found.placed.items()
    }
    chains.attach_all(tx, ids, step)
