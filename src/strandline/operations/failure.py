"""What follows when a part, or an operation, cannot go on: another try, or all of it is undone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from strandline.catalog import operations, sessions, shards
from strandline.catalog.operations import FAILED, Failure, Operation, Part
from strandline.catalog.writer import Writer
from strandline.cycles import uncollected
from strandline.errors import Cancelled, Internal, StrandlineError
from strandline.metrics import event

if TYPE_CHECKING:
    from strandline.operations.transitions import Transitions

LOOK_SECONDS = 0.5
"""Whoever waits asks this often whether what he waits for is still wanted."""


class Lost(Exception):
    """The operation has ended, or belongs to another session now."""


class Cancelling(Exception):
    """Somebody wants the operation to be undone."""


def part_failed(transitions: Transitions, operation: Operation, part: Part, error: Exception) -> bool:
    """Try the part again later if its handler thinks that this may help; otherwise fail the operation and
    undo it. The failure of an attempt that was given up before is not news."""
    with transitions.catalog.read() as conn:
        if not transitions.is_present(conn, part):
            return True
    pause = transitions.handler_of(operation, part).retry_after(error, part.attempt + 1)
    if pause is None:
        undo(transitions, operation, FAILED, as_ours(error), part)
        return False
    with contextlib.suppress(Lost, Cancelling), transitions.catalog.write() as tx:
        transitions.fence(tx.conn, operation.id)
        if transitions.is_present(tx.conn, part):
            _save_failed(tx, part, as_ours(error))
    transitions.metrics.part_retries.labels(part.kind).inc()
    event(
        "part retried",
        operation=operation.id,
        part=part.id,
        kind=part.kind,
        attempt=part.attempt + 1,
        error=str(error),
    )
    _pause(transitions, operation.id, pause)
    return True


def _pause(transitions: Transitions, operation_id: str, seconds: float) -> None:
    """Wait before another try, as long as one is wanted."""
    clock = transitions.catalog.clock
    until = clock.now() + seconds
    with contextlib.suppress(Lost, Cancelling):
        while (left := until - clock.now()) > 0:
            clock.sleep(min(left, LOOK_SECONDS))
            transitions.ask_if_wanted(operation_id)


def _save_failed(tx: Writer, part: Part, error: StrandlineError) -> None:
    """Write down one more try of a part that came to nothing."""
    began = tx.now if part.began is None else part.began
    now = began + (part.seconds or 0.0)
    attempt = shards.attempt_of(error, began=began, now=now, process=sessions.this_process())
    shards.save_failed(tx, part, attempt)


def undo(
    transitions: Transitions,
    operation: Operation,
    state: str,
    error: StrandlineError,
    failed: Part | None = None,
) -> None:
    """Roll back all that the operation did, in one transaction. ``failed``: the part that it ends
    over."""
    run = transitions.run_of(operation)
    try:
        with uncollected(), transitions.catalog.write() as tx:
            run.renew(transitions.fence(tx.conn, operation.id, cancelling=True))
            operations.roll_back(tx, operation.id, transitions.registry, run.body.directories)
            if failed is not None:
                _save_failed(tx, failed, error)
            operations.save(tx, operation.id, state=state, error=Failure.of(error), ended=tx.now)
    except Lost:
        return
    transitions.ended(operation, state, error)


def cancelled(operation: Operation) -> Cancelled:
    return Cancelled(f"operation {operation.id} was cancelled")


def as_ours(error: Exception) -> StrandlineError:
    return error if isinstance(error, StrandlineError) else Internal(f"{type(error).__name__}: {error}")
