"""What follows a backup that is done: those that the rules of its collection do not keep any more go.

It is an operation of its own, and the backup is good whatever comes of it. If the process dies in between,
the next backup of the collection does what was left.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TypeVar

from strandline import records
from strandline.backups.collection import BackupResult, Retained
from strandline.backups.removal import DropBackups, DropRequest, DropResult, plan_removal
from strandline.catalog import operations
from strandline.catalog.operations import Operation
from strandline.catalog.writer import Writer
from strandline.errors import StrandlineError
from strandline.metrics import event
from strandline.operations.engine import Engine

R = TypeVar("R", bound=Retained)


def retain(engine: Engine, operation: Operation, result: R, taken_by: str | None = None) -> None:
    """Apply the rules that were the collection's when the backup began, and write into the result of the
    operation that has brought it where it is kept what was removed, or why nothing could be. ``taken_by``:
    the one that has taken it before, for who waits for that."""
    collection = engine.run_of(operation).request.collection
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
        # The backup is done, and stays so although nobody can be told the rest.
        with contextlib.suppress(StrandlineError), engine.catalog.write() as tx:
            operations.save(tx, operation.id, result=told)
            if taken_by is not None:
                _tell(tx, taken_by, told)


def _tell(tx: Writer, operation_id: str, told: Retained) -> None:
    """Let the result of a backup say what was told of it later."""
    taken = operations.get(tx.conn, operation_id)
    if taken.result is not None:
        result = records.from_text(BackupResult, taken.result, f"the result of operation {operation_id}")
        known = replace(result, retention=told.retention, removed=told.removed, not_removed=told.not_removed)
        operations.save(tx, operation_id, result=known)


def _remove(engine: Engine, request: DropRequest) -> tuple[tuple[str, ...] | None, StrandlineError | None]:
    """Remove what the rules do not keep, and return what that was, and why it is still in the repository if
    it is; None if another process has to go on with it, because this one ends."""
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
