"""What follows a backup that is done: those that the rules of its collection do not keep any more go.

It is an operation of its own, and the backup is good whatever comes of it. If the process dies in between,
the next backup of the collection does what was left.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TypeVar

from strandline import records
from strandline.backups.collection import Retained
from strandline.backups.removal import DropBackups, DropRequest, DropResult, plan_removal
from strandline.catalog import operations
from strandline.catalog.operations import Operation
from strandline.errors import StrandlineError
from strandline.metrics import event
from strandline.operations.engine import Engine

R = TypeVar("R", bound=Retained)


def retain(engine: Engine, operation: Operation, result: R) -> None:
    """Apply the rules that were the collection's when the backup began, and write into the result of the
    operation that has brought it where it is kept what was removed, or why nothing could be."""
    collection = engine.run_of(operation).request.collection
    request = DropRequest(collection=collection, keep=result.retention)
    try:
        told = replace(result, removed=_remove(engine, request))
    except Exception as error:
        message = error.message if isinstance(error, StrandlineError) else repr(error)
        told = replace(result, not_removed=message)
        event("retention failed", operation=operation.id, collection=collection, error=message)
    if told != result:
        # The backup is done, and stays so although nobody can be told the rest.
        with contextlib.suppress(StrandlineError), engine.catalog.write() as tx:
            operations.save(tx, operation.id, result=told)


def _remove(engine: Engine, request: DropRequest) -> tuple[str, ...] | None:
    """Remove what the rules do not keep, and return what that was; None if another process has to go on with
    it, because this one ends."""
    with engine.catalog.read() as conn:
        if not plan_removal(conn, request, engine.catalog.clock.now()).going:
            return ()
    dropped = engine.run(engine.start(DropBackups.name, request))
    failure = dropped.failure()
    if failure is not None:
        raise failure
    if dropped.result is None:
        return None
    return records.from_text(DropResult, dropped.result, f"the result of operation {dropped.id}").removed
