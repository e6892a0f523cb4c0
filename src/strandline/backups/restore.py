"""Restore: the last full backup and the increments after it, one at a time, all shards of each in parallel.

The targets are made first, in state incoming restore, and stay closed until the end. Stage 0 brings the full
backup, stage n the n-th increment: a stage has one part for each shard of each table and index, and begins
only when every part of the stage before it has reported. A part attaches the shard's segments (by reference),
or copies them and checks their checksums on the way. Then come the indexes that have to be rebuilt, the check
of the data if it is wanted, and one transaction in which all of it appears.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from strandline.backups.inventory import slice_segments
from strandline.backups.record import IndexRecord, slices_of
from strandline.backups.restore_parts import (
    Checked,
    RebuildPart,
    Rebuilt,
    RestoreBody,
    RestoreProgress,
    RestoreRun,
    Shard,
    ShardPart,
    VerifyPart,
)
from strandline.backups.restore_plan import RestorePlan, RestoreRequest, Target, plan_restore
from strandline.catalog import board, chains, operations, paths, tables
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.catalog.writer import Writer
from strandline.model import Digest, Segment, TableSchema
from strandline.operations.kind import Kind, PartPlan, Plan, Planning
from strandline.records import Record
from strandline.runtime import Runtime
from strandline.storage.slices import shard_of

INCOMING = "incoming restore"


@dataclass(frozen=True, kw_only=True)
class RestoreResult(Record):
    """``tables``: the paths that are there now. ``rebuilt_indexes``: those that no backup held."""

    backup: str
    tables: tuple[str, ...]
    rows: int
    rebuilt_indexes: tuple[str, ...]


class Restore(Kind[RestoreRequest, RestoreBody, RestoreProgress]):
    """Bring tables of a backup back."""

    name = "restore"
    request, body, progress = RestoreRequest, RestoreBody, RestoreProgress

    def __init__(self, runtime: Runtime) -> None:
        self.handlers = {
            "shard": ShardPart(runtime),
            "rebuild": RebuildPart(runtime),
            "verify": VerifyPart(runtime),
        }

    def plan(self, tx: Writer, run: Planning[RestoreRequest]) -> Plan[RestoreBody, RestoreProgress]:
        request = run.request
        wanted = plan_restore(tx.conn, request)
        wanted.refuse_if_blocked()
        run.lock(tx, [wanted.collection], "outgoing restore")
        step = board.current_step(tx.conn)
        run.pin(tx, step)
        targets = _Targets(tx, run, wanted, step)
        for target in wanted.targets:
            targets.make(target)
        last = len(wanted.chain)
        shards = sorted(targets.shards, key=lambda shard: shard.increment)
        parts = [PartPlan("shard", shard, shard.increment) for shard in shards]
        parts += [PartPlan("rebuild", rebuilt, last) for rebuilt in targets.rebuilds]
        if request.verify:
            parts += [PartPlan("verify", Checked(table_id=i), last + 1) for i in targets.made.values()]
        body = RestoreBody(backup=wanted.chain[-1].name, tables=targets.made, increments=last - 1, step=step)
        progress = RestoreProgress(
            increments=last - 1, increment=0, bytes=0, bytes_total=sum(shard.bytes for shard in shards)
        )
        return Plan(parts, body, progress)

    def finish(self, tx: Writer, run: RestoreRun) -> RestoreResult:
        """Whatever was made begins to live at the step of the end."""
        mine = [
            p
            for p in operations.locked(tx.conn, run.operation.id)
            if p.state == INCOMING and p.type == "table"
        ]
        tables.begin_at(tx, [p.id for p in mine])
        for path in mine:
            for ref in TableInfo.of(path).indexes:
                if not ref.definition.is_sync:
                    tables.begin_following(tx, ref.impl_id, path.id, tx.step)
        body = run.body
        # Also if nothing had changed in the last ones.
        run.report(tx, replace(run.progress, increment=body.increments))
        return RestoreResult(
            backup=body.backup,
            tables=tuple(sorted(body.tables)),
            rows=sum(chains.state(tx.conn, table_id).digest.rows for table_id in body.tables.values()),
            rebuilt_indexes=tuple(sorted(part.index for part in run.bodies(tx.conn, "rebuild", Rebuilt))),
        )


@dataclass(frozen=True)
class _Targets:
    """Makes the tables of a restore with their indexes, and collects the shards that will fill them and the
    indexes that no backup holds. ``made``: the ids of the tables by path."""

    tx: Writer
    run: Planning[RestoreRequest]
    wanted: RestorePlan
    step: int
    made: dict[str, int] = field(default_factory=dict, init=False)
    shards: list[Shard] = field(default_factory=list, init=False)
    rebuilds: list[Rebuilt] = field(default_factory=list, init=False)

    def make(self, target: Target) -> None:
        record = target.record
        parent = self.run.make_parents(self.tx, target.path, self.step)
        name = target.path.rsplit("/", 1)[1]
        body = TableBody(schema=record.schema)
        table = self._add(parent, name, "table", body=body, version=record.slice.version)
        tables.add_state(self.tx, table.id, self.step, record.slice.after)
        self.made[target.path] = table.id
        self._fill(target.source, None, table.id, record.schema)
        refs = tuple(self._make_index(target, table, index) for index in record.indexes)
        paths.set_body(self.tx, table.id, replace(body, indexes=refs))

    def _make_index(self, target: Target, table: Path, index: IndexRecord) -> IndexRef:
        definition = index.definition
        schema = definition.impl_schema(target.record.schema)
        row = self._add(table, definition.name, "index", body=definition, version=index.version)
        body = TableBody(schema=schema)
        impl = self._add(row, IMPL_TABLE, "table", body=body, version=index.version)
        digest = index.slice.after if index.slice is not None else Digest()
        tables.add_state(self.tx, impl.id, self.step, digest)
        if index.holds == "data":
            self._fill(target.source, definition.name, impl.id, schema)
        else:
            name = f"{target.path}/{definition.name}"
            self.rebuilds.append(Rebuilt(table_id=table.id, impl_id=impl.id, index=name))
        return IndexRef.of(definition, index_id=row.id, impl_id=impl.id, version=index.version)

    def _add(self, parent: Path, name: str, type_: str, *, body: Record, version: int) -> Path:
        return paths.add(
            self.tx,
            parent,
            name,
            type_,
            body=body,
            step=self.step,
            version=version,
            state=INCOMING,
            operation_id=self.run.id,
        )

    def _fill(self, source: str, index: str | None, table_id: int, schema: TableSchema) -> None:
        """For each backup of the chain one part for each shard: the segments whose keys begin in it."""
        request, chain = self.run.request, self.wanted.chain
        deadline = request.deadline_seconds
        for place, slice_ in slices_of(chain, source, index):
            by_shard: dict[int, list[Segment]] = {}
            for segment in slice_segments(self.tx.conn, chain[place], slice_):
                by_shard.setdefault(shard_of(schema, segment.min_key or ()), []).append(segment)
            for shard, found in sorted(by_shard.items()):
                self.shards.append(
                    Shard(
                        table_id=table_id,
                        increment=place,
                        shard=shard,
                        segments=tuple(s.id for s in found),
                        bytes=sum(s.bytes for s in found),
                        copy=request.copy,
                        until=None if deadline is None else self.tx.now + deadline,
                    )
                )
