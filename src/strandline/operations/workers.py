"""Work of parts on threads: several parts of an operation at once, and a limit on the time that one may take.

Slow work runs on a daemon thread of its own, which is never joined without end: when its time is over it is
interrupted and counts as failed, and what it brings later is discarded.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from strandline.catalog.operations import CANCELLING, Operation, Part
from strandline.clock import Clock
from strandline.errors import TimedOut

if TYPE_CHECKING:
    from strandline.operations.engine import Engine

_POLL_SECONDS = 0.05

T = TypeVar("T")


class Jobs(Protocol):
    """What slow work has begun outside this process, by the tag under which it was begun.
    ``storage.store.Store`` knows them."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """While the block lasts, all that this thread begins bears the tag."""

    def interrupt(self, tag: str) -> None:
        """End all that bears the tag."""


class NoJobs:
    """All work is done in this process."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def interrupt(self, tag: str) -> None:
        pass


class _TookTooLong(Exception):
    """Work has not answered in time."""


class _Watched(Generic[T]):
    """Work on a thread of its own. ``late``: takes what it brings after nobody waits for it any more."""

    def __init__(self, work: Callable[[], T], late: Callable[[T], None], name: str) -> None:
        self._work = work
        self._late = late
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self.is_left = False
        self._made: T
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._made = self._work()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._is_over.set()
            if not self.is_left or self._error is not None:
                return
        with contextlib.suppress(Exception):  # A file that stays is an orphan.
            self._late(self._made)

    def result(self, clock: Clock, seconds: float, while_waiting: Callable[[], None]) -> T:
        """What the work returns or raises; An error if it does not within so many seconds. Whoever stops
        waiting, for whatever reason, leaves it alone."""
        until = clock.now() + seconds
        try:
            while not self._is_over.wait(_POLL_SECONDS):
                if clock.now() >= until:
                    raise _TookTooLong
                while_waiting()
        except BaseException:
            self._leave()
            raise
        if self._error is not None:
            raise self._error
        return self._made

    def _leave(self) -> None:
        with self._lock:
            self.is_left = True
            is_made = self._is_over.is_set() and self._error is None
        if is_made:
            self._late(self._made)


def within(
    jobs: Jobs,
    clock: Clock,
    seconds: float,
    work: Callable[[], T],
    *,
    name: str,
    what: str = "what was asked for",
    late: Callable[[T], None] = lambda _: None,
    while_waiting: Callable[[], None] = lambda: None,
) -> T:
    """What ``work`` returns or raises on a thread of this ``name``; TIMEOUT if it takes longer than so many
    seconds. All that it has begun elsewhere bears a tag, by which it is ended when nobody waits for it any
    more; what it brings then goes to ``late``."""
    tag = f"{name}-{uuid.uuid4().hex[:8]}"

    def tagged() -> T:
        with jobs.tagged(tag):
            return work()

    watched = _Watched(tagged, late, name)
    try:
        return watched.result(clock, seconds, while_waiting)
    except _TookTooLong:
        raise TimedOut(
            f"{what} did not answer within {seconds:g} seconds",
            "It was interrupted. Give it more time (the setting shard_seconds) if it is only slow.",
        ) from None
    finally:
        if watched.is_left:
            jobs.interrupt(tag)


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
