"""Trying whether a backup can be restored: a restore to a place of its own, whose end is that nothing of it
is left.

It does all that a restore does: targets, increments one after the other, copies of what lies in a repository,
the bytes of every segment, rows against digests, indexes against tables. The paths that it makes can neither
be read nor changed by anyone, and are gone with its end, whether that came by success, by failure or in
another process after a crash. Copies are then files that nothing refers to, which the collector removes.
"""

from __future__ import annotations

from strandline import names
from strandline.backups.restore import RestoreBackup, RestoreResult
from strandline.backups.restore_parts import RestoreRun
from strandline.backups.restore_plan import RestoreRequest
from strandline.backups.restore_verify import compare
from strandline.catalog import chains, operations
from strandline.catalog.writer import Writer
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
    """Restore a backup, compare everything, and undo it."""

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
