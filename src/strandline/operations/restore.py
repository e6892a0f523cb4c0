"""Restore: the last full backup and the increments after it, one at a time, all shards of each in parallel.

The targets are made first, in state incoming restore, and stay closed until the end. Stage 0 brings the full backup, stage n the n-th
increment: a stage has one part for each shard of each table and index, and begins only when every part of the stage before it has
reported. A part attaches the shard's segments (by reference), or copies them and checks their checksums on the way. Then come the
indexes that have to be rebuilt, the check of the data if it is wanted, and one transaction in which all of it appears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from sqlalchemy import Connection, update

from strandline.backup.records import BackupRecord, IndexRecord, SliceRecord, slices_of
from strandline.catalog import board, chains, operations, paths, schema, tables
from strandline.catalog.operations import Part
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.errors import Corrupted, StrandlineError, TimedOut, Unavailable
from strandline.model import Chain, Digest, Segment, TableSchema
from strandline.operations.context import Context
from strandline.operations.entries import index_entries, projection_digest, state_digest
from strandline.operations.kind import Handler, Kind, PartPlan, Plan, Run
from strandline.operations.restore_plan import RestorePlan, RestoreRequest, Target, plan_restore
from strandline.operations.streams import require_id
from strandline.storage.slices import shard_of

INCOMING = "incoming restore"
RETRY_SECONDS = (0.1, 0.4, 1.6, 6.4)


class Restore(Kind):
    """Request: a ``RestoreRequest``."""

    name = "restore"

    def __init__(self, context: Context) -> None:
        self.handlers = {
            "shard": ShardPart(context),
            "rebuild": RebuildPart(context),
            "verify": VerifyPart(context),
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
        for target in wanted.targets:
            table_id, rebuilt = _make_target(conn, run, wanted, target, step, stages, request)
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
            run.operation, progress={"increments": len(stages) - 1, "increment": 0, "bytes": 0, "bytes_total": sum(sizes)}
        )
        return Plan(parts, body)

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        """Whatever was made begins to live at ``step``."""
        mine = [p for p in operations.locked(conn, run.operation.id) if p.state == INCOMING and p.type == "table"]
        conn.execute(update(schema.tables).where(schema.tables.c.path_id.in_([p.id for p in mine])).values(step=step, kept_from=step))
        conn.execute(update(schema.commits).where(schema.commits.c.table_id.in_([p.id for p in mine])).values(step=step, time=run.now))
        conn.execute(update(schema.chains).where(schema.chains.c.table_id.in_([p.id for p in mine])).values(added=step, reaches=step))
        for path in mine:
            for ref in TableInfo.of(path).indexes:
                if not ref.definition.is_sync:
                    tables.begin_following(conn, ref.impl_id, path.id, step)
        rebuilt = [p.body["index"] for p in operations.parts(conn, run.operation.id) if p.kind == "rebuild"]
        body = run.operation.body
        rows = sum(chains.state(conn, table_id).digest.rows for table_id in body["tables"].values())
        return {"backup": body["backup"], "tables": sorted(body["tables"]), "rows": rows, "rebuilt_indexes": sorted(rebuilt)}


def check_deadline(run: Run, now: float) -> None:
    """The time that a restore may take counts from its first start, however often it is resumed."""
    seconds = run.operation.request["deadline_seconds"]
    if seconds is not None and now > run.operation.created + seconds:
        raise TimedOut(
            f"the restore did not finish within {seconds:g} seconds", "Nothing was published. Allow more time, or restore fewer tables."
        )


def _make_target(
    conn: Connection,
    run: Run,
    wanted: RestorePlan,
    target: Target,
    step: int,
    stages: list[list[PartPlan]],
    request: RestoreRequest,
) -> tuple[int, list[PartPlan]]:
    """The paths of one table with its indexes, the shards that will fill it, and the parts that rebuild what no backup holds."""
    record = target.record
    parent = run.make_parents(conn, target.path, step)
    body = {"schema": record.schema.to_json(), "indexes": []}
    table = _add(conn, run, parent, target.path.rsplit("/", 1)[1], "table", body, step, record.slice.version)
    tables.add_state(conn, table.id, step, run.now, record.slice.after)
    _plan_shards(conn, wanted.chain, target.source, None, table.id, record.schema, stages, request)
    refs: list[IndexRef] = []
    rebuilds: list[PartPlan] = []
    for index in record.indexes:
        ref = _make_index(conn, run, table, record.schema, index, step)
        refs.append(ref)
        if index.holds == "data":
            impl = index.definition.impl_schema(record.schema)
            _plan_shards(conn, wanted.chain, target.source, index.definition.name, ref.impl_id, impl, stages, request)
        else:
            name = f"{target.path}/{index.definition.name}"
            rebuilds.append(PartPlan("rebuild", {"table_id": table.id, "impl_id": ref.impl_id, "index": name, "bytes": 0}))
    paths.set_body(conn, table.id, {**body, "indexes": [ref.to_json() for ref in refs]})
    return table.id, rebuilds


def _make_index(conn: Connection, run: Run, table: Path, table_schema: TableSchema, index: IndexRecord, step: int) -> IndexRef:
    definition = index.definition
    row = _add(conn, run, table, definition.name, "index", definition.to_json(), step, index.version)
    body = {"schema": definition.impl_schema(table_schema).to_json(), "indexes": []}
    impl = _add(conn, run, row, IMPL_TABLE, "table", body, step, index.version)
    digest = index.slice.after if index.slice is not None else Digest()
    tables.add_state(conn, impl.id, step, run.now, digest)
    return IndexRef(definition, row.id, impl.id, index.version)


def _add(conn: Connection, run: Run, parent: Path, name: str, type_: str, body: dict[str, Any], step: int, version: int) -> Path:
    return paths.add(conn, parent, name, type_, body, step, version=version, state=INCOMING, operation_id=run.operation.id)


def _plan_shards(
    conn: Connection,
    chain: Sequence[BackupRecord],
    source: str,
    index: str | None,
    table_id: int,
    table: TableSchema,
    stages: list[list[PartPlan]],
    request: RestoreRequest,
) -> None:
    """For each backup of the chain one part for each shard: the segments whose keys begin in it."""
    for place, slice_ in slices_of(chain, source, index):
        by_shard: dict[int, list[Segment]] = {}
        for segment in _segments(conn, chain[place], slice_):
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
                        "copy": request.copy,
                    },
                )
            )


def _segments(conn: Connection, backup: BackupRecord, slice_: SliceRecord) -> list[Segment]:
    if slice_.target_id is None:
        raise Corrupted(f"{backup.name} has no data where it should", "Restore an earlier backup.")
    return chains.segments(conn, chains.chain_ids(conn, slice_.target_id, backup.step))


class ShardPart(Handler):
    """Brings one shard of one table or index of one increment."""

    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def work(self, run: Run, part: Part) -> list[Segment]:
        """Copies of the segments, if copies are wanted. A try that is given up leaves files that nobody refers to."""
        check_deadline(run, self._context.clock.now())
        if not part.body["copy"]:
            return []
        with self._context.catalog.read() as conn:
            found = chains.segments(conn, part.body["segments"])
        copies: list[Segment] = []
        try:
            for segment in found:
                copies.append(self._copied(segment, part.body["table_id"]))
        except Exception:
            for copy in copies:
                if copy.file is not None:
                    self._context.files.remove(copy.file)
            raise
        return copies

    def _copied(self, segment: Segment, table_id: int) -> Segment:
        """The segment under a new name; its bytes are checked against the checksum on the way."""
        if segment.file is None:
            return replace(segment, id=0)
        name = f"{self._context.session.file_name(table_id)}.parquet"
        self._context.files.copy(self._context.files, segment.file, name, segment.checksum)
        return replace(segment, id=0, file=name)

    def configure(self, conn: Connection, run: Run, part: Part, made: list[Segment]) -> dict[str, Any]:
        step = run.operation.body["step"]
        ids = chains.insert_segments(conn, made, step) if part.body["copy"] else part.body["segments"]
        chains.attach(conn, part.body["table_id"], ids, step)
        progress = run.operation.progress
        run.report(conn, increment=part.body["increment"], bytes=progress.get("bytes", 0) + part.body["bytes"])
        return part.body

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        """Storage may come back; what is damaged or refused stays so."""
        transient = isinstance(error, Unavailable | OSError) or not isinstance(error, StrandlineError)
        return RETRY_SECONDS[attempt] if transient and attempt < len(RETRY_SECONDS) else None

    def time_limit(self, part: Part) -> float | None:
        return self._context.settings.shard_seconds


class RebuildPart(Handler):
    """Builds an index that no backup holds, from the restored table."""

    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def work(self, run: Run, part: Part) -> tuple[tuple[Segment, ...], Digest]:
        check_deadline(run, self._context.clock.now())
        with self._context.catalog.read() as conn:
            table = TableInfo.of(require_id(conn, part.body["table_id"]))
            chain = _incoming_chain(conn, table.id)
        ref = next(r for r in table.indexes if r.impl_id == part.body["impl_id"])
        name = self._context.session.file_name(ref.impl_id)
        impl = ref.definition.impl_schema(table.schema)
        return index_entries(self._context, table.schema, chain, ref.definition, impl, name)

    def configure(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        segments, digest = made
        step, impl_id = run.operation.body["step"], part.body["impl_id"]
        chains.attach(conn, impl_id, chains.insert_segments(conn, segments, step), step)
        conn.execute(update(schema.tables).where(schema.tables.c.path_id == impl_id).values(rows=digest.rows, digest=digest.hex))
        conn.execute(update(schema.commits).where(schema.commits.c.table_id == impl_id).values(rows=digest.rows, digest=digest.hex))
        return part.body


class VerifyPart(Handler):
    """Reads a restored table and its indexes again and compares them with what was recorded when they were backed up."""

    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def work(self, run: Run, part: Part) -> None:
        check_deadline(run, self._context.clock.now())
        context = self._context
        with context.catalog.read() as conn:
            table = TableInfo.of(require_id(conn, part.body["table_id"]))
            chain = _incoming_chain(conn, table.id)
            recorded = chains.state(conn, table.id).digest
            impls = [(r, _incoming_chain(conn, r.impl_id), chains.state(conn, r.impl_id).digest) for r in table.indexes]
        _verify(context, table.path, table.schema, chain, recorded)
        for ref, impl_chain, impl_recorded in impls:
            impl = ref.definition.impl_schema(table.schema)
            _verify(context, f"{table.path}/{ref.definition.name}", impl, impl_chain, impl_recorded)
            if projection_digest(context, table.schema, chain, impl) != impl_recorded:
                raise Corrupted(
                    f"the restored index {table.path}/{ref.definition.name} does not match its table",
                    "Nothing was published. Restore an earlier backup.",
                )


def _verify(context: Context, path: str, table: TableSchema, chain: Chain, recorded: Digest) -> None:
    found = state_digest(context, table, chain)
    if found != recorded:
        raise Corrupted(
            f"{path} was backed up with {recorded.rows} rows ({recorded.hex}), but {found.rows} rows ({found.hex}) came back",
            "Nothing was published. Restore an earlier backup.",
        )


def _incoming_chain(conn: Connection, table_id: int) -> Chain:
    return chains.load(conn, table_id, board.current_step(conn))
