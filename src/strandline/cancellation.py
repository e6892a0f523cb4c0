"""Progress and interruption of work.

Code that takes a while wraps its work in ``phase``, and calls ``check`` regularly. Both cost next to nothing,
and do nothing in threads without a ``Work``.

Ctrl-C does not interrupt the main thread at an arbitrary place, which might be inside a transaction or a call
to a JVM:

1. The signal handler records the interruption. A background thread ends work that was started elsewhere, such
   as jobs on Spark.
2. The main thread raises ``Interrupted`` at its next ``check``, and undoes its work on the way out.
3. If the main thread reaches no ``check`` within ``PATIENCE_SECONDS``, or after a second Ctrl-C,
   KeyboardInterrupt is raised at the place where the thread is.

The work of another thread (``doing``) can be ended in the same way by the thread that waits for it. Such work
is interrupted only at a ``check``.
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
"""Interval between attempts to end work that was started elsewhere.

An attempt may come too early, while that work is just starting.
"""
RARELY_SECONDS = 5.0
"""Interval of these attempts after ``PATIENCE_SECONDS``, for threads other than the main thread.

A thread that has not ended by then hangs, perhaps for the life of the process.
"""


class Interrupted(KeyboardInterrupt):
    """The work was interrupted at a place where it could be undone.

    Any other KeyboardInterrupt may come from the middle of a commit.

    Args:
        is_late: The work was already done when it was interrupted.
    """

    def __init__(self, *, is_late: bool = False) -> None:
        super().__init__("it was done already" if is_late else "nothing of it is visible")
        self.is_late = is_late


@dataclass(eq=False)
class Phase:
    """A phase of work, for the display of progress.

    Attributes:
        total: Amount of work, in ``unit``. 0: unknown.
        done: Amount of finished work, in ``unit``.
    """

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
    Watchers read its phases, the innermost last, and may ``end`` it.

    Args:
        is_main: The work runs on the main thread. Only the main thread can be interrupted if it reaches no
            ``check``.
    """

    def __init__(self, *, is_main: bool = False) -> None:
        self.is_main = is_main
        self.began = time.monotonic()
        self.phases: list[Phase] = []
        self.counts: Callable[[], tuple[int, int]] | None = None
        """Returns the number of finished tasks and of all tasks that were started elsewhere."""
        self.is_ending = False
        self.is_leaving = False
        """Whether the interruption was raised in the work, at a ``check`` or by a second Ctrl-C."""
        self.shields = 0
        """Number of open ``shield`` blocks. Nothing interrupts the work while it is not 0."""
        self._is_over = threading.Event()
        self._elsewhere: list[Callable[[], None]] = []
        self._at_the_end: list[Callable[[], None]] = []

    def elsewhere(self, end: Callable[[], None], at_the_end: Callable[[], None] = lambda: None) -> None:
        """Register work that was started elsewhere, such as jobs on Spark.

        Args:
            end: ends that work. It may be called from any thread, and repeatedly.
            at_the_end: called by this thread when this work is over.
        """
        self._elsewhere.append(end)
        self._at_the_end.append(at_the_end)

    def check(self) -> None:
        """Raise Interrupted if the work was ended, but only once, so that cleaning up is not interrupted."""
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
            # The program that was called may not have noticed the interruption, and may still start work.
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
    """An observer of work. The main thread calls it when work begins and when work is over."""

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
    """Raise Interrupted if the work of this thread was ended."""
    work = current() or getattr(_local, "share", None)
    if work is not None and work.is_ending:
        work.check()


def may_end() -> bool:
    """Return whether the work of this thread can be interrupted."""
    return current() is not None or getattr(_local, "share", None) is not None


class _Share:
    """A part of a thread's work that another thread runs. It is interrupted once after the work was ended."""

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
    """Wrap ``act``, which another thread will call, so that it counts as a part of this thread's work."""
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
    """Call ``end`` once, on another thread, if this thread's work is interrupted during the block."""
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
    """Protect the block from interruption.

    Use it for code that decides whether the work takes effect, such as a commit, and for the code after it.
    """
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
    """Run the block as a phase of this thread's work."""
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
    """Run the block as the given work of this thread, which other threads may end."""
    _local.work = work
    try:
        yield
    finally:
        work.over()
        _local.work = None


@contextlib.contextmanager
def attend_work() -> Iterator[None]:
    """Run the block as work that watchers observe and that Ctrl-C interrupts.

    This has an effect only for the outermost such block of the main thread. After the block, Ctrl-C has its
    usual effect.
    """
    before = signal.getsignal(signal.SIGINT)
    if current() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    if not callable(before):  # The signal is ignored, or its handler is not a Python function.
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
    """Handle Ctrl-C like the former signal handler ``before``.

    For Python's own handler and PySpark's, raise ``raised`` without calling them: PySpark's handler would end
    all jobs of the process.
    """
    module = getattr(before, "__module__", None) or ""
    if before is signal.default_int_handler or module.startswith("pyspark."):
        raise raised from None
    before(signal.SIGINT, frame)
