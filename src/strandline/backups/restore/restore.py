"""Restore: the full backup and the increments after it, one at a time, all shards of each in parallel.

1. Create the target tables in state "incoming restore". They cannot be read or changed until the end.
2. Stage 0 restores the full backup, stage n the n-th increment. A stage has one part for each shard of each
   table and index, and begins only when all parts of the stage before it are done. A part attaches the
   shard's segments by reference, or copies them and verifies their checksums.
3. Rebuild the indexes whose entries are not in the backup.
4. Verify the data, if the request asks for it or if segments were copied.
5. Publish everything in one transaction. With REPLACE, the restored tables take the places of the old ones
   (``restore_replace``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from strandline.backups.record import SliceRecord, slice_segments, slices_of
from strandline.backups.restore.restore_parts import (
    Checks,
    InlineShardPart,
    RebuildPart,
    Rebuilt,
    RestoreBody,
    RestoreProgress,
    RestoreRun,
    Shard,
    ShardPart,
)
from strandline.backups.restore.restore_plan import (
    Old,
    ResolvedRestore,
    RestoreRequest,
    RestoreTarget,
    plan_restore,
)
from strandline.backups.restore.restore_replace import exchange, lock_old
from strandline.backups.restore.restore_streams import begin_restored
from strandline.backups.restore.restore_verify import Checked, VerifyPart, VerifyShardPart, compare
from strandline.backups.verify.verification_history import key_of, object_results
from strandline.catalog import bulk_paths, chains, operations, paths, tables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.catalog.transactions import Writer, current_step
from strandline.model import Digest, Segment, TableSchema, is_elsewhere
from strandline.operations.kind import Kind, PartPlan, Plan, Planning
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.sql.tokens import quote
from strandline.storage.shards import cuts, ranges, segments_by_shard, spread

INCOMING = "incoming restore"


@dataclass(frozen=True, kw_only=True)
class RestoreResult(Record):
    """Result of a restore.

    Attributes:
        tables: Paths of the restored tables.
        rebuilt_indexes: Indexes that were built anew, because the backup had only their definitions.
        replaced: Where each replaced table is kept, by its former path.
        to_drop: Statements that drop the replaced tables.
        verified: Verification before publication. ``files``: all files exist with the right size. ``data``:
            also, the rows match the recorded digests, and the indexes match their tables.
        bytes_verified: Earliest of the times (seconds since the epoch) when the objects of the backup were
            last found intact. None: an object was never verified or is damaged, or there are no objects.
        changefeeds: Paths of the changefeeds that were created anew.
    """

    backup: str
    tables: tuple[str, ...]
    rows: int
    rebuilt_indexes: tuple[str, ...]
    verified: Checks | None = later()
    bytes_verified: float | None = later()
    replaced: dict[str, str] | None = later()
    to_drop: tuple[str, ...] = later(())
    changefeeds: tuple[str, ...] = later(())


class RestoreBackup(Kind[RestoreRequest, RestoreBody, RestoreProgress]):
    """Operation that restores tables of a backup."""

    name = "restore"
    request, body, progress = RestoreRequest, RestoreBody, RestoreProgress

    def __init__(self, runtime: Runtime) -> None:
        self.handlers = {
            "shard": ShardPart(runtime),
            "inline shard": InlineShardPart(runtime),
            "rebuild": RebuildPart(runtime),
            "verify": VerifyPart(runtime),
            "verify shard": VerifyShardPart(runtime),
        }
        self._shard_bytes = runtime.settings.shard_bytes

    def plan(self, tx: Writer, run: Planning[RestoreRequest]) -> Plan[RestoreBody, RestoreProgress]:
        request = run.request
        wanted = plan_restore(tx.conn, request)
        wanted.refuse_if_blocked()
        run.lock(tx, [wanted.collection], "outgoing restore")
        step = current_step(tx.conn)
        run.pin(tx, step)
        old = lock_old(tx, run, wanted.targets) if request.replace else Old()
        targets = _Targets(tx, run, wanted, step, self._shard_bytes, old=old)
        targets.make()
        last = len(wanted.chain)
        shards = sorted(targets.shards, key=lambda found: found.shard.increment)
        total = sum(found.shard.bytes for found in shards)
        slowed = request.limits.seconds_for(total)
        parts = [found.part(slowed) for found in shards]
        parts += [PartPlan("rebuild", rebuilt, last, path=rebuilt.index) for rebuilt in targets.rebuilds]
        # Verify the data of copies: a checksum does not prove that a copy was written as it was read.
        checks: Checks = "data" if request.verify or any(found.shard.copy for found in shards) else "files"
        if checks == "data":
            parts += [
                PartPlan("verify", Checked(table_id=i), last + 1, path=path)
                for path, i in targets.made.items()
            ]
        body = RestoreBody(
            backup=wanted.chain[-1].name,
            tables=targets.made,
            increments=last - 1,
            step=step,
            verified=checks,
            bytes_verified=targets.bytes_verified(),
            kept_in=old.kept_in,
        )
        coming = len(parts) + (sum(targets.pieces) if checks == "data" else 0)
        first = shards[0].shard.increment if shards else last - 1
        progress = RestoreProgress(
            increments=last - 1, increment=first, bytes=0, bytes_total=total, parts=coming
        )
        return Plan(parts, body, progress)

    def note_advance(self, tx: Writer, run: RestoreRun) -> None:
        """Report the increment that is being restored. After the last shard, report the last increment."""
        stage, last = operations.first_open_stage(tx.conn, run.operation.id), run.body.increments
        now = last if stage is None else min(stage, last)
        if now != run.progress.increment:
            run.report(tx, replace(run.progress, increment=now))

    def finish(self, tx: Writer, run: RestoreRun) -> RestoreResult:
        """Publish the restored tables at the step of this transaction.

        Raise CORRUPTED if the data was verified and differs from the backup.
        """
        under = paths.under(tx.conn, run.operation.id)
        replaced = exchange(tx, run, under) if run.body.kept_in is not None else {}
        mine = [p for p in under if p.state == INCOMING and p.type == "table"]
        tables.begin_at(tx, [p.id for p in mine])
        for path in mine:
            if path.name != IMPL_TABLE:
                for ref in TableInfo.of(path).indexes:
                    if not ref.definition.is_sync:
                        tables.begin_following(tx, ref.impl_id, path.id, tx.step)
        changefeeds = begin_restored(tx, run, under)
        body = run.body
        # ``verified`` is None in a plan that an earlier version has stored, so check the request too.
        if run.request.verify or body.verified == "data":
            compare(tx.conn, run)
        return RestoreResult(
            backup=body.backup,
            tables=tuple(sorted(body.tables)),
            rows=sum(head.digest.rows for head in chains.states(tx.conn, body.tables.values()).values()),
            rebuilt_indexes=tuple(sorted(part.index for part in run.bodies(tx.conn, "rebuild", Rebuilt))),
            verified=body.verified,
            bytes_verified=body.bytes_verified,
            replaced=dict(sorted(replaced.items())) or None,
            to_drop=tuple(f"DROP TABLE {quote(kept)}" for kept in sorted(replaced.values())),
            changefeeds=changefeeds,
        )


@dataclass(frozen=True)
class _Targets:
    """Creates the tables and indexes of a restore, and collects the shards that fill them.

    Attributes:
        old: The existing tables that are replaced.
        made: Ids of the created tables, by path.
        shards: The planned shards. Each gets a part.
        rebuilds: Indexes that are built anew.
        objects: Keys of all objects that are read.
        pieces: Number of verified shards of each table and index, if the data is verified.
    """

    tx: Writer
    run: Planning[RestoreRequest]
    wanted: ResolvedRestore
    step: int
    shard_bytes: int
    old: Old = field(kw_only=True)
    made: dict[str, int] = field(default_factory=dict, init=False)
    shards: list[PlannedShard] = field(default_factory=list, init=False)
    rebuilds: list[Rebuilt] = field(default_factory=list, init=False)
    objects: set[str] = field(default_factory=set, init=False)
    pieces: list[int] = field(default_factory=list, init=False)

    def bytes_verified(self) -> float | None:
        """Return the earliest of the times when the restored objects were last found intact.

        None: an object was never checked or is damaged, or there are no objects.
        """
        oldest = object_results(self.tx.conn, self.wanted.collection.id).oldest(self.objects, "checksums")
        return None if oldest == inf else oldest

    def make(self) -> None:
        targets = self.wanted.targets
        places = [self.old.place(target.path) for target in targets]
        parents = self.run.make_parents(self.tx, places, self.step)
        tables_ = self._add(
            [
                NewPath(
                    parents[place],
                    place.rsplit("/", 1)[1],
                    "table",
                    TableBody(schema=target.record.schema),
                    version=self.old.version(target.path, target.record.slice.version),
                )
                for target, place in zip(targets, places, strict=True)
            ]
        )
        self.made.update({target.path: table.id for target, table in zip(targets, tables_, strict=True)})
        filled = [
            Filled(target.source, None, table.id, target.record.schema, 1, path=target.path)
            for target, table in zip(targets, tables_, strict=True)
        ]
        states = {table.id: target.record.slice.after for target, table in zip(targets, tables_, strict=True)}
        filled += self._make_indexes(targets, tables_, states)
        tables.add_states(self.tx, states, self.step)
        self._fill(filled)

    def _make_indexes(
        self, targets: Sequence[RestoreTarget], tables_: Sequence[Path], states: dict[int, Digest]
    ) -> list[Filled]:
        """Create the indexes of all tables and add them to the tables. Return the indexes with data.

        Args:
            states: Digests by path id. This method adds the digests of the indexes.
        """
        listed = [
            (target, table, index)
            for target, table in zip(targets, tables_, strict=True)
            for index in target.record.indexes
            # A trial leaves out indexes without data: it could compare a rebuilt index only with itself.
            if index.holds == "data" or not self.run.request.trial
        ]
        versions = [
            self.old.version(f"{target.path}/{index.definition.name}", index.version)
            for target, _, index in listed
        ]
        indexes = self._add(
            [
                NewPath(table, index.definition.name, "index", index.definition, version=version)
                for (_, table, index), version in zip(listed, versions, strict=True)
            ]
        )
        schemas = [index.definition.impl_schema(target.record.schema) for target, _, index in listed]
        impls = self._add(
            [
                NewPath(row, IMPL_TABLE, "table", TableBody(schema=schema), version=row.version)
                for row, schema in zip(indexes, schemas, strict=True)
            ]
        )
        refs: dict[int, list[IndexRef]] = {table.id: [] for table in tables_}
        filled = []
        for (target, table, index), row, impl, schema in zip(listed, indexes, impls, schemas, strict=True):
            definition = index.definition
            name = f"{target.path}/{definition.name}"
            refs[table.id].append(
                IndexRef.of(definition, index_id=row.id, impl_id=impl.id, version=impl.version)
            )
            states[impl.id] = index.slice.after if index.slice is not None else Digest()
            if index.holds == "data":
                least = len(target.record.schema.bounds) + 1
                filled.append(Filled(target.source, definition.name, impl.id, schema, least, path=name))
            else:
                self.pieces.append(len(target.record.schema.bounds) + 1)
                self.rebuilds.append(Rebuilt(table_id=table.id, impl_id=impl.id, index=name))
        bodies = {
            table.id: TableBody(schema=target.record.schema, indexes=tuple(refs[table.id]))
            for target, table in zip(targets, tables_, strict=True)
            if refs[table.id]
        }
        bulk_paths.set_bodies(self.tx, bodies)
        return filled

    def _add(self, new: Sequence[NewPath]) -> list[Path]:
        return bulk_paths.add(self.tx, new, step=self.step, state=INCOMING, operation_id=self.run.id)

    def _fill(self, filled: Sequence[Filled]) -> None:
        """Plan a part for each shard of each slice. A part restores the segments that begin in its shard."""
        chain = self.wanted.chain
        slices = [(of, place, s) for of in filled for place, s in slices_of(chain, of.source, of.index)]
        held: list[list[SliceRecord]] = [[] for _ in chain]
        for _, place, slice_ in slices:
            held[place].append(slice_)
        segments = [slice_segments(self.tx.conn, *each) for each in zip(chain, held, strict=True)]
        whole: dict[int, tuple[Filled, list[Segment]]] = {of.table_id: (of, []) for of in filled}
        for of, place, slice_ in slices:
            there = segments[place][slice_.target_id]
            whole[of.table_id][1].extend(there)
            limits = cuts(of.schema.bounds, there, self.shard_bytes, of.least)
            self.objects.update(map(key_of, there))
            for shard, found in segments_by_shard(limits, there).items():
                self.shards.append(self._shard(of, place, shard, found))
        for of, there_ in whole.values():
            limits = cuts(of.schema.bounds, spread(there_), self.shard_bytes, of.least)
            self.pieces.append(len(ranges(limits)))

    def _shard(self, of: Filled, place: int, shard: int, found: Sequence[Segment]) -> PlannedShard:
        request = self.run.request
        deadline = request.deadline_seconds
        # The warehouse cannot share segments that are in a repository.
        copy = request.copy or any(s.file is not None and is_elsewhere(s.file) for s in found)
        made = Shard(
            table_id=of.table_id,
            increment=place,
            shard=shard,
            segments=tuple(s.id for s in found),
            bytes=sum(s.bytes for s in found),
            copy=copy,
            until=None if deadline is None else self.tx.now + deadline,
        )
        kind = "shard" if copy or any(s.file is not None for s in found) else "inline shard"
        return PlannedShard(kind, of.path, made)


@dataclass(frozen=True)
class PlannedShard:
    """A shard, with the kind of the part that restores it and the path of its table or index."""

    kind: str
    path: str
    shard: Shard

    def part(self, slowed: float) -> PartPlan:
        shard = self.shard
        return PartPlan(
            self.kind,
            replace(shard, slowed=slowed),
            shard.increment,
            increment=shard.increment,
            path=self.path,
            shard=shard.shard,
            bytes=shard.bytes,
        )


@dataclass(frozen=True)
class Filled:
    """A table or index of the backup, and the table into which it is restored.

    Attributes:
        source: Path of the table in the backup.
        index: Name of the index. None: the table itself.
        table_id: Id of the table, or implementation table of the index, into which it is restored.
        least: Wanted minimum number of shards. A slice with few segments may get fewer shards.
        path: Path that is shown for the parts that restore it.
    """

    source: str
    index: str | None
    table_id: int
    schema: TableSchema
    least: int
    path: str = field(kw_only=True)
