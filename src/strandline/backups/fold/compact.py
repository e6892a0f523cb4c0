"""Compaction of a chain: an increment becomes a synthetic full backup, without reading the tables.

1. For each table and index of the chain, fold base segments and increments into new base segments, shard by
   shard. This happens where the backup is stored: in the warehouse, or in its repository. The new segments
   wait in hidden paths.
2. Compare their digests with those that were recorded when the backup was taken.
3. In one transaction, attach the new segments to the backup. From then on it needs no earlier backup.

The backup keeps its name, its step and its streams, so the next increment continues it as before. Earlier
backups do not change.

The backups of the chain are locked meanwhile. The collection is locked only if its backups are in a
repository, because a repository has one writer at a time. Otherwise backups and restores can run at the same
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline.backups.backup.full import check_ours
from strandline.backups.chain import find_chain
from strandline.backups.collection import CLUSTER, CollectionRecord, CompactRequest
from strandline.backups.fold.compact_parts import (
    CompactBody,
    CompactProgress,
    CompactRun,
    Folded,
    FoldPart,
    FullManifestPart,
)
from strandline.backups.fold.compact_plan import sources
from strandline.backups.record import BackupRecord, require_collection
from strandline.backups.repository.repository_writer import Leases, WritingKind
from strandline.catalog import bulk_paths, chains, definitions, paths, tables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.errors import PreconditionFailed
from strandline.operations.kind import PartPlan, Plan, Planning
from strandline.records import Nothing, Record
from strandline.runtime import Runtime
from strandline.sql.constants import constant
from strandline.sql.tokens import word

STAGING = "__ydb_folded_"
"""Name prefix of the hidden paths in which new segments wait."""


@dataclass(frozen=True, kw_only=True)
class CompactResult(Record):
    """Result of a compaction.

    Attributes:
        increments: Number of increments that were folded into the backup.
        rows: Number of rows that the backup holds.
        bytes: Size of what the backup holds.
    """

    backup: str
    increments: int
    rows: int
    bytes: int


def refuse_unsent(path: Path, collection: CollectionRecord, backup: BackupRecord) -> None:
    """Refuse to compact a backup that is not uploaded to its repository yet."""
    storage = collection.settings.storage
    if backup.stored is None and storage != CLUSTER:
        raise PreconditionFailed(
            f"{backup.name} is not in the repository {storage} yet",
            f"Send it first: COPY BACKUP '{backup.name}' FROM {word(path.name)} TO {constant(storage)}.",
        )


class CompactChain(WritingKind[CompactRequest, CompactBody, CompactProgress]):
    """Operation that turns an increment into a synthetic full backup."""

    name = "compact backups"
    request, body, progress = CompactRequest, CompactBody, CompactProgress

    def __init__(self, runtime: Runtime, leases: Leases) -> None:
        super().__init__(leases)
        self.handlers = {
            "fold": FoldPart(runtime, leases),
            "full manifest": FullManifestPart(runtime, leases),
        }
        self._shard_bytes = runtime.settings.shard_bytes

    def plan(self, tx: Writer, run: Planning[CompactRequest]) -> Plan[CompactBody, CompactProgress]:
        request = run.request
        path = require_collection(tx.conn, request.collection)
        collection = path.record(CollectionRecord)
        check_ours(path, collection)
        chain = find_chain(tx.conn, path, request.backup)
        last = chain[-1]
        body = CompactBody(
            collection_id=path.id,
            backup=last.name,
            step=last.step,
            root=last.stored,
            increments=len(chain) - 1,
        )
        if body.increments == 0:
            return Plan([], body, CompactProgress(bytes=0, bytes_total=0))
        refuse_unsent(path, collection, last)
        there = {backup.name: backup for backup in paths.backups(tx.conn, path)}
        if last.stored is not None:
            run.lock(tx, [path], "altering")  # A repository has one writer at a time.
        run.lock(tx, [there[last.name]], "altering")
        run.lock(tx, [there[record.name] for record in chain[:-1]], "copying")
        parts = self._shards(tx, run, chain, there[last.name])
        total = sum(part.bytes or 0 for part in parts)
        if last.stored is not None:
            parts.append(PartPlan("full manifest", Nothing(), 1, path=there[last.name].path))
        return Plan(parts, body, CompactProgress(bytes=0, bytes_total=total))

    def _shards(
        self, tx: Writer, run: Planning[CompactRequest], chain: Sequence[BackupRecord], backup: Path
    ) -> list[PartPlan]:
        """Create a staging path for each table and index that is folded, and return the parts."""
        root, step = chain[-1].stored, chain[-1].step
        folded = [source for source in sources(tx.conn, chain) if not source.is_shared(root)]
        new = [
            NewPath(backup, f"{STAGING}{source.target_id}", "table", TableBody(schema=source.schema))
            for source in folded
        ]
        staging = bulk_paths.add(tx, new, step=step, state="creating", operation_id=run.id)
        return [
            PartPlan("fold", shard, path=source.name, shard=number, bytes=shard.bytes)
            for source, path in zip(folded, staging, strict=True)
            for number, shard in enumerate(source.shards(path.id, self._shard_bytes))
        ]

    def finish(self, tx: Writer, run: CompactRun) -> CompactResult:
        """Attach the folded segments to the backup. The old segments are freed when no reader needs them."""
        found = Folded(tx.conn, run)
        if run.body.increments:
            found.check()
            backup = found.backup
            chains.supersede(tx, found.placed)
            ids = {target_id: [s.id for s in held] for target_id, held in found.placed.items()}
            chains.attach_all(tx, ids, run.body.step)
            digests = {source.target_id: source.last.after for source in found.sources}
            tables.set_first_digests(tx, digests)
            bodies: dict[int, Record] = {
                path.id: replace(path.record(TableBody), increment=False)
                for path in paths.by_ids(tx.conn, digests)
            }
            definitions.alter_all(tx, {**bodies, backup.id: found.record})
            paths.set_state(tx, found.staging.values(), "dropping", run.operation.id)
        return CompactResult(
            backup=run.body.backup,
            increments=run.body.increments,
            rows=found.record.rows,
            bytes=found.record.bytes,
        )
