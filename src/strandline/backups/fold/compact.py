"""Compaction of a chain: an increment becomes a synthetic full backup, without reading the tables.

1. For each table and index of the chain, fold base segments and increments into new base segments, shard by
   shard. If the increments change only a small part of the rows, fold only the increments, to a log behind
   the base segments, and share the base segments with the full backup. The new segments are written where
   the backup is stored: in the warehouse, or in its repository. Hidden paths hold them until the end.
2. Compare the digests of the new segments with the digests that were recorded when the backup was taken.
3. In one transaction, attach the new segments to the backup. From then on it needs no earlier backup.

The backup keeps its name, its step and its streams, so the next increment continues it as before. Earlier
backups do not change.

During the compaction, the backups of the chain are locked. If they are in a repository, the collection is
locked too, because a repository has one writer at a time. Otherwise other backups and restores can run at the
same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.backups.backup.full import check_ours
from strandline.backups.chain import find_chain
from strandline.backups.collection import CollectionRecord, CompactRequest
from strandline.backups.fold.fold_kind import FoldKind
from strandline.backups.fold.fold_parts import CompactBody, CompactProgress, CompactRun, Folded
from strandline.backups.record import require_collection
from strandline.catalog.transactions import Writer
from strandline.operations.kind import PartPlan, Plan, Planning
from strandline.records import Record


@dataclass(frozen=True, kw_only=True)
class CompactResult(Record):
    """Result of a compaction.

    Attributes:
        increments: Number of increments that were folded into the backup.
        rows: Number of rows in the backup.
        bytes: Size of the backup's segments.
    """

    backup: str
    increments: int
    rows: int
    bytes: int


class CompactChain(FoldKind[CompactRequest, CompactBody]):
    """Operation that turns an increment into a synthetic full backup."""

    name = "compact backups"
    request, body = CompactRequest, CompactBody
    manifest = "full manifest"

    def plan(self, tx: Writer, run: Planning[CompactRequest]) -> Plan[CompactBody, CompactProgress]:
        path = require_collection(tx.conn, run.request.collection)
        check_ours(path, path.record(CollectionRecord))
        chain = find_chain(tx.conn, path, run.request.backup)
        last = chain[-1]
        body = CompactBody(
            collection_id=path.id,
            backup=last.name,
            step=last.step,
            root=last.stored,
            increments=len(chain) - 1,
        )
        parts: list[PartPlan] = []
        if body.increments:
            if last.stored is not None:
                run.lock(tx, [path], "altering")  # A repository has one writer at a time.
            parts = self.plan_run(tx, run, path, chain, 0)
        total = sum(part.bytes or 0 for part in parts)
        return Plan(parts, body, CompactProgress(bytes=0, bytes_total=total))

    def finish(self, tx: Writer, run: CompactRun) -> CompactResult:
        """Make the folded segments the content of the backup."""
        found = Folded(tx.conn, run, run.body.backup)
        if run.body.increments:
            found.place(tx, run)
        return CompactResult(
            backup=run.body.backup,
            increments=run.body.increments,
            rows=found.record.rows,
            bytes=found.record.bytes,
        )
