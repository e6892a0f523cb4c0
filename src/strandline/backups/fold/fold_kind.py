"""Base class of the operations that fold backups of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from strandline.backups.collection import CLUSTER, CollectionRecord
from strandline.backups.fold.fold_parts import CompactProgress, FoldedManifestPart, FoldPart
from strandline.backups.fold.fold_plan import FoldedManifest, FoldedShard, MergedShard, sources
from strandline.backups.record import BackupRecord
from strandline.backups.repository.repository_writer import Leases, WritingKind
from strandline.catalog import bulk_paths, paths
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.errors import PreconditionFailed
from strandline.operations.kind import B, PartPlan, Planning, Q
from strandline.runtime import Runtime
from strandline.sql.constants import constant
from strandline.sql.tokens import word

STAGING = "__ydb_folded_"
"""Name prefix of the hidden staging paths, which hold the new segments until the end of the operation."""


class FoldKind(WritingKind[Q, B, CompactProgress]):
    """An operation that folds runs of neighbouring backups of a chain, each run into its last backup."""

    progress = CompactProgress
    manifest: ClassVar[str]
    """Kind of the part that writes the manifest of a folded backup."""

    def __init__(self, runtime: Runtime, leases: Leases) -> None:
        super().__init__(leases)
        self.handlers = {
            "fold": FoldPart(runtime, leases, FoldedShard),
            "merge": FoldPart(runtime, leases, MergedShard),
            self.manifest: FoldedManifestPart(runtime, leases),
        }
        self._shard_bytes = runtime.settings.shard_bytes
        self._keeps = runtime.store.keeps_base

    def plan_run(
        self, tx: Writer, run: Planning[Q], collection: Path, chain: Sequence[BackupRecord], since: int
    ) -> list[PartPlan]:
        """Lock neighbouring backups of a chain, and return the parts that fold them into the last of them.

        Create a hidden staging path for each table and index that must be folded.

        Args:
            run: The operation that is planned.
            chain: The chain up to the last of the backups to fold.
            since: Position in ``chain`` of the first backup to fold.
        """
        last = chain[-1]
        self._refuse_unsent(collection, last)
        there = {backup.name: backup for backup in paths.backups(tx.conn, collection)}
        backup = there[last.name]
        run.lock(tx, [backup], "altering")
        run.lock(tx, [there[record.name] for record in chain[since:-1]], "copying")
        found = sources(tx.conn, chain, since)
        folded = [f for s in found if (f := s.to_fold(last.stored, self._keeps)) is not None]
        new = [
            NewPath(backup, f"{STAGING}{source.target_id}", "table", TableBody(schema=source.schema))
            for source in folded
        ]
        staging = bulk_paths.add(tx, new, step=last.step, state="creating", operation_id=run.id)
        parts = [
            PartPlan(kind, shard, path=source.name, shard=number, bytes=shard.shard.bytes)
            for source, path in zip(folded, staging, strict=True)
            for number, (kind, shard) in enumerate(source.shards(path.id, self._shard_bytes))
        ]
        if last.stored is not None:
            parts.append(PartPlan(self.manifest, FoldedManifest(backup=last.name), 1, path=backup.path))
        return parts

    def _refuse_unsent(self, path: Path, backup: BackupRecord) -> None:
        storage = path.record(CollectionRecord).settings.storage
        if backup.stored is None and storage != CLUSTER:
            raise PreconditionFailed(
                f"{backup.name} is not in the repository {storage} yet",
                f"Send it first: COPY BACKUP '{backup.name}' FROM {word(path.name)} TO {constant(storage)}.",
            )
