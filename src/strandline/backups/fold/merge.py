"""Merge of neighbouring increments of a chain into one, without reading the tables.

1. Fold the slices of each table and index to the last change of each key, shard by shard. Tombstones stay,
   because earlier backups may have the keys. The new segments are written where the backups are stored: in
   the warehouse, or in their repository. Hidden paths hold them until the end.
2. Check that the digest before the first increment and the digest of the folded changes add up to the digest
   after the last increment.
3. In one transaction, attach the new segments to the last increment and delete the other increments.

The last increment keeps its name, its step and its streams, so the next increment continues it as before. The
collection is locked during the merge.
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
from strandline.backups.fold.fold_kind import FoldKind
from strandline.backups.fold.fold_parts import CompactProgress, Folded, MergeBody, MergeRun
from strandline.backups.fold.fold_plan import runs
from strandline.backups.record import BackupRecord, backup_heads, require_backup, require_collection
from strandline.backups.retention.retention import kept_by_name
from strandline.catalog import definitions, operations, paths
from strandline.catalog.operations import OperationRow
from strandline.catalog.paths import Path, require_id
from strandline.catalog.transactions import Writer
from strandline.errors import InvalidArgument, StrandlineError
from strandline.metrics import event
from strandline.operations.engine import Engine
from strandline.operations.kind import PartPlan, Plan, Planning
from strandline.records import Record, later
from strandline.sql.retention_rules import parse_keep


@dataclass(frozen=True, kw_only=True)
class MergeResult(Record):
    """Result of a merge.

    Attributes:
        backups: Names of the merged backups, oldest first, by the name of the backup that now has their
            changes.
        bytes: Size of the backups into which others were merged.
        warning: Why the merged backups could not be deleted from the repository. None: no error.
    """

    collection: str
    backups: dict[str, tuple[str, ...]]
    bytes: int
    warning: str | None = later()


class MergeIncrements(FoldKind[MergeRequest, MergeBody]):
    """Operation that merges neighbouring increments."""

    name = "merge increments"
    needs_follower = False
    request, body = MergeRequest, MergeBody
    manifest = "merged manifest"

    def plan(self, tx: Writer, run: Planning[MergeRequest]) -> Plan[MergeBody, CompactProgress]:
        path = require_collection(tx.conn, run.request.collection)
        check_ours(path, path.record(CollectionRecord))
        run.lock(tx, [path], "altering")
        chain = find_chain(tx.conn, path, run.request.backup)
        found = _runs(tx, path, chain, run.request.first)
        parts: list[PartPlan] = []
        for first, *_, last in ([record.name for record in each] for each in found):
            names = [record.name for record in chain]
            parts += self.plan_run(tx, run, path, chain[: names.index(last) + 1], names.index(first))
        body = MergeBody(
            collection_id=path.id,
            root=chain[-1].stored,
            runs=tuple(tuple(record.name for record in each) for each in found),
        )
        total = sum(part.bytes or 0 for part in parts)
        return Plan(parts, body, CompactProgress(bytes=0, bytes_total=total))

    def finish(self, tx: Writer, run: MergeRun) -> MergeResult:
        """Attach the merged segments to the last increment of each run, and delete the other increments."""
        body, size = run.body, 0
        collection = require_id(tx.conn, body.collection_id)
        there = {path.name: path for path in paths.backups(tx.conn, collection)}
        for *others, last in body.runs:
            found = Folded(tx.conn, run, last)
            found.place(tx, run)
            size += found.record.bytes
            gone = [p.id for name in others for p in paths.subtree(tx.conn, there[name])]
            paths.set_state(tx, gone, "dropping", run.operation.id)
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
    """Return the runs of increments to merge. The retention rules of the collection are respected.

    Args:
        first: Name of the first backup that may be merged. None: all increments may be merged.
    """
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
