"""Work on threads of its own: with a limit of time, or several at once.

All of them are daemon threads, which are never joined without end. When the time of work with a limit is
over, it is to end, as by Ctrl-C, and what it brings later is discarded.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from strandline.clock import Clock
from strandline.errors import TimedOut
from strandline.work import PATIENCE_SECONDS, Work, check, doing, shared

_POLL_SECONDS = 0.05
_TURN_SECONDS = 0.25

T = TypeVar("T")
R = TypeVar("R")


class Workers(Generic[T]):
    """Up to so many threads, which take one task after the other and ``do`` it. ``busy``: the tasks that have
    not reported. For one thread that gives and collects, and ends them."""

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
        """Let a thread do this."""
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
        """Wait for a report and raise its error. Wait in short turns: if a signal comes just before the main
        thread begins to wait, its handler only runs when that wait ends."""
        report = None
        while report is None:
            with contextlib.suppress(queue.Empty):
                report = self._reports.get(timeout=_TURN_SECONDS)
        self.busy.remove(report.task)
        if report.error is not None:
            raise report.error

    def end(self) -> None:
        """Let the threads end when they have done what they were given."""
        for _ in range(self._started):
            self._tasks.put(None)


@dataclass(frozen=True)
class _Report(Generic[T]):
    task: T
    error: BaseException | None


def in_parallel(act: Callable[..., R], *arguments: Iterable[Any], threads: int) -> list[R]:
    """Return what ``act`` returns for each of the arguments, called on up to so many threads at a time. They
    leave when the work of this thread is to end, and none of them is left when this returns or raises."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(shared(act), *arguments))


class _TookTooLong(Exception):
    """Work has not answered in time."""


class _Watched(Generic[T]):
    """Work on a thread of its own. ``late``: takes what it brings after nobody waits for it any more."""

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
        with contextlib.suppress(Exception):  # A file that stays is an orphan.
            self._late(self._made)

    def result(self, clock: Clock, until: float, while_waiting: Callable[[], None]) -> T:
        """Return what the work returns or raises, if it does so in time. A caller that stops waiting for
        another reason gives the work a moment to remove what it has begun, and then leaves it alone."""
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
    """Return what ``work`` returns or raises on a thread of this ``name``; TIMEOUT if it takes longer than so
    many seconds. When nobody waits for it any more, it is to end with all that it has begun elsewhere, and
    what it still brings goes to ``late``. ``what``: names it in the error."""
    until = clock.now() + seconds
    try:
        return _Watched(work, late, name).result(clock, until, while_waiting)
    except _TookTooLong:
        raise TimedOut(
            f"{what} did not answer within {seconds:g} seconds",
            "It was interrupted. Give it more time (the setting shard_seconds) if it is only slow.",
        ) from None
