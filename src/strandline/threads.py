"""Work on separate threads: with a time limit, or several tasks at once.

``Workers`` and ``within`` use daemon threads, which are never joined. When the time limit of work is over,
the work is interrupted as by Ctrl-C, and its late result is discarded.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from strandline.cancellation import PATIENCE_SECONDS, Work, check, doing, share_work
from strandline.clock import Clock
from strandline.errors import TimedOut

_POLL_SECONDS = 0.05
_TURN_SECONDS = 0.25

T = TypeVar("T")
R = TypeVar("R")


class Workers(Generic[T]):
    """A pool of up to ``most`` threads that call ``do`` with one task after the other.

    Only one thread may use the pool: to give tasks, to collect their reports, and to end the pool.

    Attributes:
        busy: The tasks in progress.
    """

    def __init__(self, do: Callable[[T], object], most: int, name: str) -> None:
        self._do = do
        self._most = most
        self._name = name
        self._tasks: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._reports: queue.SimpleQueue[_Report[T]] = queue.SimpleQueue()
        self._started = 0
        self.busy: list[T] = []

    @property
    def is_full(self) -> bool:
        return len(self.busy) >= self._most

    def give(self, task: T) -> None:
        """Give a task to a thread."""
        self.busy.append(task)
        if self._started < len(self.busy):
            self._started += 1
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._tasks.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._do(task)
            except BaseException as error:
                self._reports.put(_Report(task, error))
            else:
                self._reports.put(_Report(task, None))

    def collect(self) -> None:
        """Wait until a task has ended, and raise its error.

        The wait is split into short ones: if a signal comes just before the main thread begins to wait, the
        signal handler runs only when that wait ends.
        """
        report = None
        while report is None:
            with contextlib.suppress(queue.Empty):
                report = self._reports.get(timeout=_TURN_SECONDS)
        self.busy.remove(report.task)
        if report.error is not None:
            raise report.error

    def end(self) -> None:
        """Let the threads end after their present tasks."""
        for _ in range(self._started):
            self._tasks.put(None)


@dataclass(frozen=True)
class _Report(Generic[T]):
    task: T
    error: BaseException | None


def in_parallel(act: Callable[..., R], *arguments: Iterable[Any], threads: int) -> list[R]:
    """Call ``act`` with each of the arguments on up to ``threads`` threads, and return the results.

    The threads stop when the work of this thread is interrupted. All of them have ended when this function
    returns or raises.
    """
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(share_work(act), *arguments))


class _TookTooLong(Exception):
    """The work exceeded its time limit."""


class _Watched(Generic[T]):
    """Work on a separate thread.

    Args:
        work: the work.
        late: gets the result of the work if the caller has stopped waiting for it.
        name: the name of the thread.
    """

    def __init__(self, work: Callable[[], T], late: Callable[[T], None], name: str) -> None:
        self._work = work
        self._late = late
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._is_left = False
        self._doing = Work()
        self._made: T
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            with doing(self._doing):
                self._made = self._work()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._is_over.set()
            if not self._is_left or self._error is not None:
                return
        with contextlib.suppress(Exception):  # A file that is left over is garbage-collected.
            self._late(self._made)

    def result(self, clock: Clock, until: float, while_waiting: Callable[[], None]) -> T:
        """Wait for the work until the time ``until``; return the result of the work, or raise its error.

        If the caller stops waiting for another reason, the work gets ``PATIENCE_SECONDS`` to clean up.
        """
        try:
            while not self._is_over.wait(_POLL_SECONDS):
                check()
                if clock.now() >= until:
                    raise _TookTooLong
                while_waiting()
        except BaseException as error:
            self._leave()
            if not isinstance(error, _TookTooLong):
                self._is_over.wait(PATIENCE_SECONDS)
            raise
        if self._error is not None:
            raise self._error
        return self._made

    def _leave(self) -> None:
        with self._lock:
            self._is_left = True
            is_over = self._is_over.is_set()
        if not is_over:
            self._doing.end()
        elif self._error is None:
            self._late(self._made)


def within(
    clock: Clock,
    seconds: float,
    work: Callable[[], T],
    *,
    name: str,
    what: str,
    late: Callable[[T], None] = lambda _: None,
    while_waiting: Callable[[], None] = lambda: None,
) -> T:
    """Run ``work`` on a separate thread and return its result; raise TIMEOUT after ``seconds``.

    When the caller stops waiting, the work and everything that it has started elsewhere is interrupted.

    Args:
        clock: measures the time limit.
        seconds: the time limit.
        work: the work. Its error is raised here.
        name: the name of the thread.
        what: names the work in the error.
        late: gets the result if the work still finishes after the caller has stopped waiting.
        while_waiting: called repeatedly by the caller's thread.
    """
    until = clock.now() + seconds
    try:
        return _Watched(work, late, name).result(clock, until, while_waiting)
    except _TookTooLong:
        raise TimedOut(
            f"{what} did not answer within {seconds:g} seconds",
            "It was interrupted. Give it more time (the setting shard_seconds) if it is only slow.",
        ) from None
