"""Restore: the last full backup and the increments after it, one at a time, all shards of each in parallel.

The targets are made first, in state incoming restore, and stay closed until the end. Stage 0 brings the full
backup, stage n the n-th increment: a stage has one part for each shard of each table and index, and begins
only when every part of the stage before it has reported. A part attaches the shard's segments (by reference),
or copies them and checks their checksums on the way. Then come the indexes that have to be rebuilt, the check
of the data if it is wanted, and one transaction in which all of it appears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from strandline.backups.inventory import slice_segments
from strandline.backups.record import BackupRecord, IndexRecord, slices_of
from strandline.backups.restore_parts import RebuildPart, ShardPart, VerifyPart
from strandline.backups.restore_plan import RestorePlan, RestoreRequest, Target, plan_restore
from strandline.catalog import board, chains, operations, paths, tables
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.model import Digest, Segment, TableSchema
from strandline.operations.kind import Kind, PartPlan, Plan, Run
from strandline.runtime import Runtime
from strandline.storage.slices import shard_of

INCOMING = "incoming restore"


class Restore(Kind):
    """Request: a ``RestoreRequest``."""

    name = "restore"

    def __init__(self, runtime: Runtime) -> None:
        self.handlers = {
            "shard": ShardPart(runtime),
            "rebuild": RebuildPart(runtime),
            "verify": VerifyPart(runtime),
        }

    def plan(self, conn: Connection, run: Run) -> Plan:
        request = RestoreRequest.from_json(run.operation.request)
        wanted = plan_restore(conn, request)
        wanted.refuse_if_blocked()
        run.lock(conn, [wanted.collection], "outgoing restore")
        step = board.current_step(conn)
        run.pin(conn, step)
        stages: list[list[PartPlan]] = [[] for _ in wanted.chain]
        rebuilds: list[PartPlan] = []
        checks: list[PartPlan] = []
        made: dict[str, int] = {}
        deadline = request.deadline_seconds
        how = {"copy": request.copy, "until": None if deadline is None else run.operation.created + deadline}
        for target in wanted.targets:
            table_id, rebuilt = _make_target(conn, run, wanted, target, step, stages, how)
            made[target.path] = table_id
            rebuilds += rebuilt
            checks.append(PartPlan("verify", {"table_id": table_id}))
        parts = [replace(plan, stage=n) for n, stage in enumerate(stages) for plan in stage]
        last = len(stages)
        parts += [replace(plan, stage=last) for plan in rebuilds]
        if request.verify:
            parts += [replace(plan, stage=last + 1) for plan in checks]
        sizes = [p.body["bytes"] for p in parts if p.kind == "shard"]
        body = {"backup": wanted.chain[-1].name, "tables": made, "increments": len(stages) - 1, "step": step}
        run.operation = replace(
            run.operation,
            progress={"increments": len(stages) - 1, "increment": 0, "bytes": 0, "bytes_total": sum(sizes)},
        )
        return Plan(parts, body)

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        """Whatever was made begins to live at ``step``."""
        mine = [
            p for p in operations.locked(conn, run.operation.id) if p.state == INCOMING and p.type == "table"
        ]
        tables.begin_at(conn, [p.id for p in mine], step, run.now)
        for path in mine:
            for ref in TableInfo.of(path).indexes:
                if not ref.definition.is_sync:
                    tables.begin_following(conn, ref.impl_id, path.id, step)
        rebuilt = [p.body["index"] for p in operations.parts(conn, run.operation.id) if p.kind == "rebuild"]
        body = run.operation.body
        run.report(conn, increment=body["increments"])  # also if nothing had changed in the last ones
        rows = sum(chains.state(conn, table_id).digest.rows for table_id in body["tables"].values())
        return {
            "backup": body["backup"],
            "tables": sorted(body["tables"]),
            "rows": rows,
            "rebuilt_indexes": sorted(rebuilt),
        }


def _make_target(
    conn: Connection,
    run: Run,
    wanted: RestorePlan,
    target: Target,
    step: int,
    stages: list[list[PartPlan]],
    how: dict[str, Any],
) -> tuple[int, list[PartPlan]]:
    """The paths of one table with its indexes, the shards that will fill it, and the parts that rebuild what
    no backup holds. ``how`` is what every shard has to know."""
    record = target.record
    parent = run.make_parents(conn, target.path, step)
    body = {"schema": record.schema.to_json(), "indexes": []}
    table = _add(conn, run, parent, target.path.rsplit("/", 1)[1], "table", body, step, record.slice.version)
    tables.add_state(conn, table.id, step, run.now, record.slice.after)
    _plan_shards(conn, wanted.chain, target.source, None, table.id, record.schema, stages, how)
    refs: list[IndexRef] = []
    rebuilds: list[PartPlan] = []
    for index in record.indexes:
        ref = _make_index(conn, run, table, record.schema, index, step)
        refs.append(ref)
        if index.holds == "data":
            impl = index.definition.impl_schema(record.schema)
            _plan_shards(
                conn, wanted.chain, target.source, index.definition.name, ref.impl_id, impl, stages, how
            )
        else:
            name = f"{target.path}/{index.definition.name}"
            rebuilds.append(
                PartPlan("rebuild", {"table_id": table.id, "impl_id": ref.impl_id, "index": name, "bytes": 0})
            )
    paths.set_body(conn, table.id, {**body, "indexes": [ref.to_json() for ref in refs]})
    return table.id, rebuilds


def _make_index(
    conn: Connection, run: Run, table: Path, table_schema: TableSchema, index: IndexRecord, step: int
) -> IndexRef:
    definition = index.definition
    row = _add(conn, run, table, definition.name, "index", definition.to_json(), step, index.version)
    body = {"schema": definition.impl_schema(table_schema).to_json(), "indexes": []}
    impl = _add(conn, run, row, IMPL_TABLE, "table", body, step, index.version)
    digest = index.slice.after if index.slice is not None else Digest()
    tables.add_state(conn, impl.id, step, run.now, digest)
    return IndexRef(definition, row.id, impl.id, index.version)


def _add(
    conn: Connection,
    run: Run,
    parent: Path,
    name: str,
    type_: str,
    body: dict[str, Any],
    step: int,
    version: int,
) -> Path:
    return paths.add(
        conn, parent, name, type_, body, step, version=version, state=INCOMING, operation_id=run.operation.id
    )


def _plan_shards(
    conn: Connection,
    chain: Sequence[BackupRecord],
    source: str,
    index: str | None,
    table_id: int,
    table: TableSchema,
    stages: list[list[PartPlan]],
    how: dict[str, Any],
) -> None:
    """For each backup of the chain one part for each shard: the segments whose keys begin in it."""
    for place, slice_ in slices_of(chain, source, index):
        by_shard: dict[int, list[Segment]] = {}
        for segment in slice_segments(conn, chain[place], slice_):
            by_shard.setdefault(shard_of(table, segment.min_key or ()), []).append(segment)
        for shard, found in sorted(by_shard.items()):
            stages[place].append(
                PartPlan(
                    "shard",
                    {
                        "table_id": table_id,
                        "increment": place,
                        "shard": shard,
                        "segments": [s.id for s in found],
                        "bytes": sum(s.bytes for s in found),
                        **how,
                    },
                )
            )
