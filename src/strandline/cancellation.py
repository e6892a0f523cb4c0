"""Progress and interruption of work.

Code that takes a while wraps its work in ``phase``, and calls ``check`` regularly. Both cost next to nothing,
and do nothing in threads without a ``Work``.

Ctrl-C does not interrupt the main thread at an arbitrary place, which might be inside a transaction or a call
to a JVM:

1. It is recorded, and work that was started elsewhere is ended.
2. The thread raises ``Interrupted`` at its next ``check``, and undoes its work on the way out.
3. If it reaches no ``check`` within ``PATIENCE_SECONDS``, or after a second Ctrl-C, KeyboardInterrupt is
   raised wherever it is.

Other threads have work that can be ended in the same way by the thread that waits for them (``doing``); they
only leave at a ``check``.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_SECONDS = 1.0
"""Maximum time for a thread to reach a ``check`` after an interruption."""
AGAIN_SECONDS = 0.1
"""Interval at which work started elsewhere is ended again: it may just have been starting."""
RARELY_SECONDS = 5.0
"""The same interval after ``PATIENCE_SECONDS``: the thread hangs, perhaps for the life of the process."""


class Interrupted(KeyboardInterrupt):
    """The work was interrupted, and has left at a place where it could be undone.

    Any other KeyboardInterrupt may come from the middle of a commit. ``is_late``: the work was already done.
    """

    def __init__(self, *, is_late: bool = False) -> None:
        super().__init__("it was done already" if is_late else "nothing of it is visible")
        self.is_late = is_late


@dataclass(eq=False)
class Phase:
    """A phase of work, for progress; ``total`` is in ``unit``, and 0 if it is unknown."""

    name: str
    total: float = 0.0
    unit: str = ""
    done: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def advance(self, by: float = 1.0) -> None:
        """Add to the progress."""
        self.done += by


_UNSEEN = Phase("")


class Work:
    """Work that can be observed and interrupted.

    It is one call of the public API on the main thread, or work on another thread that a caller waits for.
    Watchers read its phases, the innermost last, and may ``end`` it. ``is_main``: it is on the main thread,
    which is interrupted wherever it is if it reaches no ``check``; other threads cannot be.
    """

    def __init__(self, *, is_main: bool = False) -> None:
        self.is_main = is_main
        self.began = time.monotonic()
        self.phases: list[Phase] = []
        self.counts: Callable[[], tuple[int, int]] | None = None
        """Returns how many of the tasks started elsewhere are done, and how many there are."""
        self.is_ending = False
        self.is_leaving = False
        """It has reached a ``check`` after the interruption."""
        self.shields = 0
        """While it is not 0, nothing interrupts the work."""
        self._is_over = threading.Event()
        self._elsewhere: list[Callable[[], None]] = []
        self._at_the_end: list[Callable[[], None]] = []

    def elsewhere(self, end: Callable[[], None], at_the_end: Callable[[], None] = lambda: None) -> None:
        """Register work that was started elsewhere, and that ``end`` ends.

        ``end`` may be called from any thread, and repeatedly. ``at_the_end`` is called by this thread when
        the work is over.
        """
        self._elsewhere.append(end)
        self._at_the_end.append(at_the_end)

    def check(self) -> None:
        """Raise Interrupted if the work is to end; only once, so that cleaning up is not interrupted."""
        if self.is_ending and not self.is_leaving and not self.shields:
            self.is_leaving = True
            raise Interrupted

    def end(self) -> None:
        """Interrupt the work without waiting, so that a signal handler may call it."""
        self.is_ending = True
        threading.Thread(target=self._end, name="strandline-interrupt", daemon=True).start()

    def _end(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        is_torn = is_late = False
        while not self._is_over.wait(RARELY_SECONDS if is_late and not self.is_main else AGAIN_SECONDS):
            self._end_elsewhere()
            is_late = time.monotonic() >= until
            is_over = self._is_over.is_set()  # ending work elsewhere may have taken a while
            if is_late and self.is_main and not (is_over or is_torn or self.is_leaving or self.shields):
                is_torn = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if is_torn:
            # The other side may not have noticed, and may still start something.
            for _ in range(20):
                self._end_elsewhere()
                time.sleep(AGAIN_SECONDS)

    def _end_elsewhere(self) -> None:
        for end in tuple(self._elsewhere):
            with contextlib.suppress(Exception):
                end()

    def over(self) -> None:
        """Mark the work as over."""
        self._is_over.set()
        for each in self._at_the_end:
            with contextlib.suppress(Exception):
                each()


class Watcher(Protocol):
    """An observer: called by the main thread when work begins, and when it is over."""

    def begin(self, work: Work) -> None: ...

    def end(self, work: Work) -> None: ...


_local = threading.local()
_watchers: list[Watcher] = []


@contextlib.contextmanager
def watch_main_thread(watcher: Watcher) -> Iterator[None]:
    """Let a watcher observe all work of the main thread during the block."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def current() -> Work | None:
    """Return the work of this thread, or None."""
    return getattr(_local, "work", None)


def check() -> None:
    """Raise Interrupted if the work of this thread is to end."""
    work = current() or getattr(_local, "share", None)
    if work is not None and work.is_ending:
        work.check()


def may_end() -> bool:
    """Return whether the work of this thread can be interrupted."""
    return current() is not None or getattr(_local, "share", None) is not None


class _Share:
    """The share of another thread in some work. It is interrupted once, when that work is to end."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._is_leaving = False

    @property
    def is_ending(self) -> bool:
        return self._work.is_ending

    def check(self) -> None:
        if not self._is_leaving and not self._work.shields:
            self._is_leaving = True
            raise Interrupted


def share_work(act: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs ``act`` on other threads as a share of this thread's work."""
    work = current()
    if work is None:
        return act

    def share(*args: P.args, **kwargs: P.kwargs) -> T:
        before = getattr(_local, "share", None)
        _local.share = _Share(work)
        try:
            return act(*args, **kwargs)
        finally:
            _local.share = before

    return share


@contextlib.contextmanager
def end_with(end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` once, on another thread, if this thread's work is to end during the block."""
    work = current()
    if work is None:
        yield
        return
    todo = [end]

    def once() -> None:
        if todo:
            todo.pop()()

    work.elsewhere(once)
    try:
        yield
    finally:
        todo.clear()


@contextlib.contextmanager
def shield() -> Iterator[None]:
    """Protect the block from interruption: it decides whether the work has happened, or comes after that."""
    work = current()
    if work is None:
        yield
        return
    work.shields += 1
    try:
        yield
    finally:
        work.shields -= 1


@contextlib.contextmanager
def phase(name: str, total: float = 0.0, unit: str = "") -> Iterator[Phase]:
    """Set the present phase of this thread's work during the block."""
    work = current()
    if work is None:
        yield _UNSEEN
        return
    work.check()
    present = Phase(name, total, unit)
    work.phases.append(present)
    try:
        yield present
    finally:
        work.phases.remove(present)


@contextlib.contextmanager
def doing(work: Work) -> Iterator[None]:
    """Make the block the given work, which other threads may end."""
    _local.work = work
    try:
        yield
    finally:
        work.over()
        _local.work = None


@contextlib.contextmanager
def attend_work() -> Iterator[None]:
    """Make the block observable work that Ctrl-C interrupts, if it is the main thread's outermost.

    After the work has ended, Ctrl-C has its usual effect.
    """
    before = signal.getsignal(signal.SIGINT)
    if current() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    if not callable(before):  # ignored, or not handled by Python
        yield
        return
    work = Work(is_main=True)

    def heed(number: int, frame: FrameType | None) -> None:
        if not work.is_ending:
            work.end()
        elif not work.shields:
            work.is_leaving = True
            _let_through(before, frame, KeyboardInterrupt())

    signal.signal(signal.SIGINT, heed)
    failed = True
    try:
        with _is_observed(work):
            yield
        failed = False
    except BaseException:
        if not work.is_ending:
            raise
    finally:
        if signal.getsignal(signal.SIGINT) is heed:
            signal.signal(signal.SIGINT, before)
    if work.is_ending:
        _let_through(before, None, Interrupted(is_late=not failed))
        if failed:
            raise Interrupted from None


@contextlib.contextmanager
def _is_observed(work: Work) -> Iterator[None]:
    for watcher in _watchers:
        watcher.begin(work)
    try:
        with doing(work):
            yield
    finally:
        for watcher in _watchers:
            watcher.end(work)


def _let_through(before: Callable[..., Any], frame: FrameType | None, raised: KeyboardInterrupt) -> None:
    """Do what Ctrl-C would have done otherwise.

    Python's own handler, and PySpark's, which ends all jobs of the process, raise an exception.
    """
    module = getattr(before, "__module__", None) or ""
    if before is signal.default_int_handler or module.startswith("pyspark."):
        raise raised from None
    before(signal.SIGINT, frame)
