"""Trial restore: restores a backup, compares everything, and rolls back.

The trial runs all steps of a restore: it creates the targets, applies the increments one by one, copies
segments out of the repository, verifies the checksum of every segment, and compares rows with digests and
indexes with tables. The temporary paths can be neither read nor changed. They are removed when the operation
ends: on success, on failure, and by another process after a crash. The collector then deletes the copied
files, because no path refers to them any more.
"""

from __future__ import annotations

from strandline import names
from strandline.backups.restore.restore import RestoreBackup, RestoreResult
from strandline.backups.restore.restore_parts import RestoreRun
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.backups.restore.restore_verify import compare
from strandline.catalog import chains, operations
from strandline.catalog.transactions import Writer
from strandline.settings import Limits

TRIALS = f"{names.BACKUPS}/trials"


def trial_request(collection: str, backup: str, limits: Limits) -> RestoreRequest:
    return RestoreRequest(
        collection=collection,
        at=backup,
        into=f"{TRIALS}/{collection}",
        verify=True,
        trial=True,
        limits=limits,
    )


class TryRestore(RestoreBackup):
    """Restore a backup, compare everything, and roll back."""

    name = "try restore"

    def finish(self, tx: Writer, run: RestoreRun) -> RestoreResult:
        compare(tx.conn, run)
        heads = chains.states(tx.conn, run.body.tables.values())
        operations.roll_back(tx, run.operation.id, run.registry, run.body.directories)
        return RestoreResult(
            backup=run.body.backup,
            tables=(),
            rows=sum(head.digest.rows for head in heads.values()),
            rebuilt_indexes=(),
            verified="data",
            bytes_verified=tx.now,
        )
