"""Parts of one operation on several threads at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.catalog.operations import CANCELLING, Operation, Part

if TYPE_CHECKING:
    from strandline.operations.engine import Engine

_POLL_SECONDS = 0.05


@dataclass(frozen=True, eq=False)
class _Task:
    """Parts on a thread: one, or some that share their work."""

    parts: Sequence[Part]


@dataclass(frozen=True)
class _Report:
    task: _Task
    error: BaseException | None


def run_parallel(
    engine: Engine, operation_id: str, workers: int, after_step: Callable[[], None] = lambda: None
) -> None:
    """Carry an operation to its end with up to ``workers`` parts at the same time."""
    reports: queue.SimpleQueue[_Report] = queue.SimpleQueue()
    busy: list[_Task] = []
    while not engine.stopping.is_set():
        operation, runnable = engine.runnable(operation_id)
        if operation.is_over or operation.session_id != engine.lease.id:
            break
        if not busy and (not runnable or operation.state == CANCELLING):
            engine.step(operation_id)
            break
        if operation.state != CANCELLING:
            taken = {p.id for task in busy for p in task.parts}
            idle = [p for p in runnable if p.id not in taken]
            slow = [p for p in idle if not engine.is_quick(operation, p)]
            if idle and not slow:
                # Transactions follow one another anyway, so those who are nothing else need no thread.
                engine.advance(operation, *engine.bunch(operation, idle))
                after_step()
                continue
            _fill(engine, operation, slow, busy, workers=workers, reports=reports)
        # Nothing else becomes possible in between, and to look at an operation of many tables takes its time.
        while not _collect(busy, reports) and not engine.stopping.is_set():
            pass
        after_step()
    # What still works is let come to its end, so that nothing touches files after this call; what hangs is
    # given up in time.
    while busy:
        _collect(busy, reports)


def _fill(
    engine: Engine,
    operation: Operation,
    idle: list[Part],
    busy: list[_Task],
    *,
    workers: int,
    reports: queue.SimpleQueue[_Report],
) -> None:
    while idle and len(busy) < workers:
        parts = engine.bunch(operation, idle)
        idle = [part for part in idle if part not in parts]
        task = _Task(parts)
        busy.append(task)
        threading.Thread(
            target=_work,
            args=(engine, operation, task, reports),
            name=f"strandline-{operation.id}-worker",
            daemon=True,
        ).start()


def _work(engine: Engine, operation: Operation, task: _Task, reports: queue.SimpleQueue[_Report]) -> None:
    try:
        engine.advance(operation, *task.parts)
    except BaseException as error:
        reports.put(_Report(task, error))
    else:
        reports.put(_Report(task, None))


def _collect(busy: list[_Task], reports: queue.SimpleQueue[_Report]) -> bool:
    """Wait for a report; False if none has come for some time."""
    try:
        report = reports.get(timeout=_POLL_SECONDS)
    except queue.Empty:
        return False
    busy.remove(report.task)
    if report.error is not None:
        raise report.error
    return True
