"""Merge of neighbouring increments of a chain into one, without reading the tables.

1. Fold the slices of each table and index to the last change of each key, shard by shard, where the backups
   are stored: in the warehouse, or in their repository. Tombstones stay, because the backups below may have
   the keys. The new segments wait in hidden paths.
2. Check that the changes lead from the digest before the first increment to the digest after the last one.
3. In one transaction, attach the new segments to the last increment and delete the others.

The last increment keeps its name, its step and its streams, so the next increment continues it as before. The
collection is locked meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline import records
from strandline.backups.backup.full import check_ours
from strandline.backups.chain import find_chain
from strandline.backups.collection import CollectionRecord, CollectionRequest, MergeRequest
from strandline.backups.fold.compact import STAGING, refuse_unsent
from strandline.backups.fold.compact_parts import CompactProgress
from strandline.backups.fold.compact_plan import FoldedSource, sources
from strandline.backups.fold.merge_parts import (
    MergeBody,
    Merged,
    MergedManifestPart,
    MergePart,
    MergeRun,
    place,
)
from strandline.backups.fold.merge_plan import MergedManifest, holder, merge_shards, runs
from strandline.backups.record import BackupRecord, backup_heads, require_backup, require_collection
from strandline.backups.repository.repository_writer import Leases, WritingKind
from strandline.backups.retention.retention import kept_by_name
from strandline.catalog import bulk_paths, definitions, operations, paths, tables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.operations import OperationRow
from strandline.catalog.paths import Path, require_id
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.errors import InvalidArgument, StrandlineError
from strandline.metrics import event
from strandline.operations.engine import Engine
from strandline.operations.kind import PartPlan, Plan, Planning
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.sql.retention_rules import parse_keep


@dataclass(frozen=True, kw_only=True)
class MergeResult(Record):
    """Result of a merge.

    Attributes:
        backups: For each backup into which others were merged, the names of these, oldest first.
        warning: Why the merged backups could not be deleted from the repository.
    """

    collection: str
    backups: dict[str, tuple[str, ...]]
    bytes: int
    warning: str | None = later()


class MergeIncrements(WritingKind[MergeRequest, MergeBody, CompactProgress]):
    """Operation that merges neighbouring increments."""

    name = "merge increments"
    needs_follower = False
    request, body, progress = MergeRequest, MergeBody, CompactProgress

    def __init__(self, runtime: Runtime, leases: Leases) -> None:
        super().__init__(leases)
        self.handlers = {
            "merge": MergePart(runtime, leases),
            "merged manifest": MergedManifestPart(runtime, leases),
        }
        self._shard_bytes = runtime.settings.shard_bytes

    def plan(self, tx: Writer, run: Planning[MergeRequest]) -> Plan[MergeBody, CompactProgress]:
        path = require_collection(tx.conn, run.request.collection)
        collection = path.record(CollectionRecord)
        check_ours(path, collection)
        run.lock(tx, [path], "altering")
        chain = find_chain(tx.conn, path, run.request.backup)
        found = _runs(tx, path, chain, run.request.first)
        root = chain[-1].stored
        if found:
            refuse_unsent(path, collection, chain[-1])
        there = {backup.name: backup for backup in paths.backups(tx.conn, path)}
        parts: list[PartPlan] = []
        for chained in found:
            last = there[chained[-1].name]
            run.lock(tx, [last], "altering")
            run.lock(tx, [there[record.name] for record in chained[:-1]], "copying")
            parts += self._shards(tx, run, chain, chained)
            if root is not None:
                parts.append(PartPlan("merged manifest", MergedManifest(backup=last.name), 1, path=last.path))
        body = MergeBody(
            collection_id=path.id,
            root=root,
            runs=tuple(tuple(record.name for record in chained) for chained in found),
        )
        total = sum(part.bytes or 0 for part in parts)
        return Plan(parts, body, CompactProgress(bytes=0, bytes_total=total))

    def _shards(
        self,
        tx: Writer,
        run: Planning[MergeRequest],
        chain: Sequence[BackupRecord],
        records: Sequence[BackupRecord],
    ) -> list[PartPlan]:
        """Create a staging path for each table and index that is folded, and return the parts."""
        names, first, last = [record.name for record in chain], records[0], records[-1]
        held = sources(tx.conn, chain[: names.index(last.name) + 1], names.index(first.name))
        folded = [source for source in held if holder(source, last.stored) is None]
        staging = self._staging(tx, run, last, folded)
        return [
            PartPlan("merge", shard, path=source.name, shard=number, bytes=shard.shard.bytes)
            for source, path in zip(folded, staging, strict=True)
            for number, shard in enumerate(merge_shards(source, path.id, self._shard_bytes, first.after_step))
        ]

    def _staging(
        self, tx: Writer, run: Planning[MergeRequest], last: BackupRecord, folded: Sequence[FoldedSource]
    ) -> list[Path]:
        collection = require_collection(tx.conn, run.request.collection)
        backup = next(p for p in paths.backups(tx.conn, collection) if p.name == last.name)
        new = [
            NewPath(backup, f"{STAGING}{source.target_id}", "table", TableBody(schema=source.schema))
            for source in folded
        ]
        return bulk_paths.add(tx, new, step=last.step, state="creating", operation_id=run.id)

    def finish(self, tx: Writer, run: MergeRun) -> MergeResult:
        """Attach the merged segments to the last increment of each run, and delete the other increments."""
        body, size = run.body, 0
        for names in body.runs:
            found = Merged(tx.conn, run, names)
            found.check()
            size += found.record.bytes
            place(tx, found)
            digests = found.digests()
            tables.set_first_digests(tx, digests)
            bodies: dict[int, Record] = {p.id: p.record(TableBody) for p in paths.by_ids(tx.conn, digests)}
            definitions.alter_all(tx, {**bodies, found.backup.id: found.record})
            gone = [p.id for backup in found.swallowed for p in paths.subtree(tx.conn, backup)]
            paths.set_state(tx, [*found.staging.values(), *gone], "dropping", run.operation.id)
        collection = require_id(tx.conn, body.collection_id)
        if body.runs and body.root is not None:
            record = collection.record(CollectionRecord)
            leaving = {name for names in body.runs for name in names[:-1]}
            changed = replace(record, leaving=tuple(sorted({*record.leaving, *leaving})))
            definitions.alter_all(tx, {collection.id: changed})
        return MergeResult(
            collection=collection.name,
            backups={names[-1]: names[:-1] for names in body.runs},
            bytes=size,
        )

    def follow(self, conn: Connection, run: MergeRun) -> tuple[str, Record] | None:
        """Garbage-collect the repository."""
        if not run.body.runs or run.body.root is None:
            return None
        return "sweep repository", CollectionRequest(collection=run.request.collection)

    def follower_failed(self, engine: Engine, operation: OperationRow, error: StrandlineError) -> None:
        warning = f"the merged backups are still in the repository: {error.message}"
        with suppress(StrandlineError), engine.catalog.write() as tx:
            done = operations.get(tx.conn, operation.id)
            what = f"the result of operation {operation.id}"
            result = records.from_text(MergeResult, done.result or "", what)
            operations.save(tx, operation.id, result=replace(result, warning=warning))
        event("merged backups not removed", operation=operation.id, error=error.message)


def _runs(
    tx: Writer, path: Path, chain: Sequence[BackupRecord], first: str | None
) -> list[list[BackupRecord]]:
    """Return the runs of a chain that are merged, by the retention rules of its collection."""
    heads = [head for _, head in backup_heads(tx.conn, path)]
    if first is not None:
        require_backup(tx.conn, path, [head.name for head in heads], first)
        if first not in [record.name for record in chain]:
            raise InvalidArgument(
                f"{first} is not one of the backups that lead to {chain[-1].name}",
                "Name two backups of one chain, the earlier one after FROM.",
            )
    keep = path.record(CollectionRecord).settings.retention
    kept = kept_by_name(heads, None if keep is None else parse_keep(keep), tx.now)
    return runs(chain, kept, first)
