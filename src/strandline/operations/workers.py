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


@dataclass(frozen=True, eq=False)
class _Task:
    """Parts on a thread: one, or some that share their work."""

    operation: Operation
    parts: Sequence[Part]


@dataclass(frozen=True)
class _Report:
    task: _Task
    error: BaseException | None


class _Workers:
    """Up to so many daemon threads, which take one task after the other. ``busy``: the tasks that have not
    reported."""

    def __init__(self, engine: Engine, operation_id: str, most: int) -> None:
        self._engine = engine
        self._name = f"strandline-{operation_id}-worker"
        self._most = most
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._reports: queue.SimpleQueue[_Report] = queue.SimpleQueue()
        self._started = 0
        self.busy: list[_Task] = []

    @property
    def is_full(self) -> bool:
        return len(self.busy) >= self._most

    def give(self, task: _Task) -> None:
        self.busy.append(task)
        if self._started < len(self.busy):
            self._started += 1
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._tasks.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._engine.advance(task.operation, *task.parts)
            except BaseException as error:
                self._reports.put(_Report(task, error))
            else:
                self._reports.put(_Report(task, None))

    def collect(self) -> None:
        """Wait for a report."""
        report = self._reports.get()
        self.busy.remove(report.task)
        if report.error is not None:
            raise report.error

    def end(self) -> None:
        for _ in range(self._started):
            self._tasks.put(None)


def run_parallel(
    engine: Engine, operation_id: str, workers: int, after_step: Callable[[], None] = lambda: None
) -> None:
    """Carry an operation to its end with up to ``workers`` parts at the same time."""
    at_work = _Workers(engine, operation_id, workers)
    try:
        _carry_out(engine, operation_id, at_work, after_step)
    finally:
        at_work.end()


def _carry_out(engine: Engine, operation_id: str, at_work: _Workers, after_step: Callable[[], None]) -> None:
    busy = at_work.busy
    while not engine.stopping.is_set():
        operation, runnable = engine.runnable(operation_id)
        if operation.is_over or operation.session_id != engine.lease.id:
            break
        if not busy and (not runnable or operation.state == CANCELLING):
            engine.step(operation_id)
            return
        if operation.state != CANCELLING:
            taken = {p.id for task in busy for p in task.parts}
            idle = [p for p in runnable if p.id not in taken]
            slow = [p for p in idle if not engine.is_quick(operation, p)]
            if idle and not slow:
                # Transactions follow one another anyway, so those who are nothing else need no thread.
                engine.advance(operation, *engine.bunch(operation, idle))
                after_step()
                continue
            while slow and not at_work.is_full:
                parts = engine.bunch(operation, slow)
                slow = [part for part in slow if part not in parts]
                at_work.give(_Task(operation, parts))
        # Nothing else becomes possible in between, and to look at an operation of many tables takes its time.
        at_work.collect()
        after_step()
    # What still works is let come to its end, so that nothing touches files after this call; what hangs is
    # given up in time.
    while busy:
        at_work.collect()
