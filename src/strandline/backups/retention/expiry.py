"""Retention after a backup: apply the rules of its collection.

The removal is a separate operation, so its failure does not affect the backup. If the process dies before the
removal is done, the next backup of the collection removes the remaining backups.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TypeVar

from strandline import records
from strandline.backups.collection import BackupResult, Retained
from strandline.backups.retention.drop import DropBackups, DropRequest, DropResult, plan_removal
from strandline.catalog import operations
from strandline.catalog.operations import OperationRow
from strandline.catalog.transactions import Writer
from strandline.errors import StrandlineError
from strandline.metrics import event
from strandline.operations.engine import Engine

R = TypeVar("R", bound=Retained)


def retain(engine: Engine, operation: OperationRow, result: R, taken_by: str | None = None) -> None:
    """Remove the backups that the rules do not keep, and record the outcome in the operation's result.

    The rules are those that the collection had when the backup began. The outcome is the list of removed
    backups, or the reason why they could not be removed.

    Args:
        taken_by: Id of the BACKUP operation whose backup ``operation`` has uploaded. The outcome is also
            recorded in the result of BACKUP. None: it is recorded only in the result of ``operation``.
    """
    collection = engine.transitions.run_of(operation).request.collection
    request = DropRequest(collection=collection, keep=result.retention)
    try:
        removed, failure = _remove(engine, request)
        told = replace(result, removed=removed, not_removed=None if failure is None else failure.message)
    except Exception as error:
        message = error.message if isinstance(error, StrandlineError) else repr(error)
        told = replace(result, not_removed=message)
    if told.not_removed is not None:
        event("retention failed", operation=operation.id, collection=collection, error=told.not_removed)
    if told != result:
        # The backup is done, even if the outcome of the retention cannot be recorded.
        with contextlib.suppress(StrandlineError), engine.catalog.write() as tx:
            operations.save(tx, operation.id, result=told)
            if taken_by is not None:
                _tell(tx, taken_by, told)


def _tell(tx: Writer, operation_id: str, told: Retained) -> None:
    """Add the outcome of the retention to the result of the BACKUP operation."""
    taken = operations.get(tx.conn, operation_id)
    if taken.result is not None:
        result = records.from_text(BackupResult, taken.result, f"the result of operation {operation_id}")
        known = replace(result, retention=told.retention, removed=told.removed, not_removed=told.not_removed)
        operations.save(tx, operation_id, result=known)


def _remove(engine: Engine, request: DropRequest) -> tuple[tuple[str, ...] | None, StrandlineError | None]:
    """Remove the backups that the rules do not keep.

    Return their names, and the error of the repository's garbage collection if it failed. The first value is
    None if this process is stopping and another one continues the removal.
    """
    with engine.catalog.read() as conn:
        if not plan_removal(conn, request, engine.catalog.clock.now()).going:
            return (), None
    dropped = engine.run(engine.start(DropBackups.name, request))
    failure = dropped.failure()
    if failure is not None:
        raise failure
    if dropped.result is None:
        return None, None
    result = records.from_text(DropResult, dropped.result, f"the result of operation {dropped.id}")
    sweep = engine.follower(dropped)
    return result.removed, None if sweep is None else engine.get(sweep).failure()
