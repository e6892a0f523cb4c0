"""What a thread does for somebody who looks on, and who may want it to end: one notion for progress and for
Ctrl-C.

Whoever does something that takes a while says so with ``phase``, and asks with ``check`` now and then whether
it is still wanted. Both cost next to nothing, and no more than that where nobody looks on: in threads that
nobody waits for, and while no call of the public API lasts.

Ctrl-C is not let through wherever the main thread happens to be, which might be in the middle of a
transaction or of a conversation with a JVM. It is noted, what was begun elsewhere is ended, and the thread
leaves by itself at its next ``check``, undoing what it has done on its way. If it comes to none within
``PATIENCE_SECONDS``, or if there is another Ctrl-C, it is let through after all. Other threads have work that
can be ended in the same way, by whoever waits for them (``doing``); nothing but a ``check`` lets them leave.
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
"""For so long a thread may look for a good place to leave."""
AGAIN_SECONDS = 0.1
"""So often what was begun elsewhere is ended: it may have been about to begin."""
RARELY_SECONDS = 5.0
"""So often later, when it has not left in time: it hangs, and may do so for as long as the process lives."""


class Interrupted(KeyboardInterrupt):
    """Somebody wanted the work to end, and it has left at a place where it could undo what it had done. (Any
    other KeyboardInterrupt may come from the middle of a commit.) ``is_late``: it was done already."""

    def __init__(self, *, is_late: bool = False) -> None:
        super().__init__("it was done already" if is_late else "nothing of it is visible")
        self.is_late = is_late


@dataclass(eq=False)
class Phase:
    """One thing after the other that work consists of. ``total``: how much there is to do, in ``unit``; 0 if
    nobody knows."""

    name: str
    total: float = 0.0
    unit: str = ""
    done: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def advance(self, by: float = 1.0) -> None:
        """So much more is done."""
        self.done += by


_UNSEEN = Phase("")


class Work:
    """What the main thread does in one call of the public API, or another one as long as somebody waits for
    it. Others may look at its phases, the innermost last, and may ``end`` it. ``is_main``: of the main
    thread, which is interrupted where it is if it comes to no ``check``, as no other can be."""

    def __init__(self, *, is_main: bool = False) -> None:
        self.is_main = is_main
        self.began = time.monotonic()
        self.phases: list[Phase] = []
        self.counts: Callable[[], tuple[int, int]] | None = None
        """How many of the tasks that were begun elsewhere are done, and how many there are."""
        self.is_ending = False
        self.is_leaving = False
        """It has come to a ``check`` since it was to end."""
        self.shields = 0
        """While there are any, nothing interrupts it."""
        self._is_over = threading.Event()
        self._elsewhere: list[Callable[[], None]] = []
        self._at_the_end: list[Callable[[], None]] = []

    def elsewhere(self, end: Callable[[], None], at_the_end: Callable[[], None] = lambda: None) -> None:
        """Something was begun that ``end`` would end, from any thread and as often as it is called.
        ``at_the_end`` is called by this thread when the work is over."""
        self._elsewhere.append(end)
        self._at_the_end.append(at_the_end)

    def check(self) -> None:
        """Leave if it is to end. Once: what is undone on the way out is not to be interrupted."""
        if self.is_ending and not self.is_leaving and not self.shields:
            self.is_leaving = True
            raise Interrupted

    def end(self) -> None:
        """Let it end. Called by whoever must not wait here, such as the main thread itself."""
        self.is_ending = True
        threading.Thread(target=self._end, name="strandline-interrupt", daemon=True).start()

    def _end(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        is_torn = is_late = False
        while not self._is_over.wait(RARELY_SECONDS if is_late and not self.is_main else AGAIN_SECONDS):
            self._end_elsewhere()
            is_late = time.monotonic() >= until
            is_over = self._is_over.is_set()  # To end what is elsewhere may have taken a while.
            if is_late and self.is_main and not (is_over or is_torn or self.is_leaving or self.shields):
                is_torn = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if is_torn:
            # The other side has not heard of it, and may still begin something.
            for _ in range(20):
                self._end_elsewhere()
                time.sleep(AGAIN_SECONDS)

    def _end_elsewhere(self) -> None:
        for end in tuple(self._elsewhere):
            with contextlib.suppress(Exception):
                end()

    def over(self) -> None:
        """Nothing of it is done any more."""
        self._is_over.set()
        for each in self._at_the_end:
            with contextlib.suppress(Exception):
                each()


class Watcher(Protocol):
    """Who looks on: told by the main thread when work begins, and when it is over."""

    def begun(self, work: Work) -> None: ...

    def ended(self, work: Work) -> None: ...


_local = threading.local()
_watchers: list[Watcher] = []


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """While the block lasts, somebody looks on at all that the main thread of this process does."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def current() -> Work | None:
    """Return the work of this thread, if somebody may look on."""
    return getattr(_local, "work", None)


def check() -> None:
    """Leave, with ``Interrupted``, if the work of this thread is to end."""
    work = current() or getattr(_local, "share", None)
    if work is not None and work.is_ending:
        work.check()


def may_end() -> bool:
    """Return whether the work of this thread may have to end before it is done."""
    return current() is not None or getattr(_local, "share", None) is not None


class _Share:
    """What one more thread does for the work of another one. It leaves when that is to end, once."""

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


def shared(act: Callable[P, T]) -> Callable[P, T]:
    """Return a function for other threads that does ``act`` as a share of the work of this thread."""
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
def ended_by(end: Callable[[], None]) -> Iterator[None]:
    """If the work of this thread is to end while the block lasts, another one calls this, once."""
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
def shielded() -> Iterator[None]:
    """The block is not interrupted: it decides what has happened, or comes after that."""
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
    """While the block lasts, this is what the thread does."""
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
    """The block is this work, which another thread may end."""
    _local.work = work
    try:
        yield
    finally:
        work.over()
        _local.work = None


@contextlib.contextmanager
def attended() -> Iterator[None]:
    """The block is work that can be looked at and ended, if it is the main thread's and not part of such work
    already. Ctrl-C ends it, and is then let through."""
    before = signal.getsignal(signal.SIGINT)
    if current() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    if not callable(before):  # Ignored, or not Python's to handle.
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
        with _looked_at(work):
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
def _looked_at(work: Work) -> Iterator[None]:
    for watcher in _watchers:
        watcher.begun(work)
    try:
        with doing(work):
            yield
    finally:
        for watcher in _watchers:
            watcher.ended(work)


def _let_through(before: Callable[..., Any], frame: FrameType | None, raised: KeyboardInterrupt) -> None:
    """What would have happened without us. Python's own way, and PySpark's, which ends all jobs of the
    process, is an exception."""
    module = getattr(before, "__module__", None) or ""
    if before is signal.default_int_handler or module.startswith("pyspark."):
        raise raised from None
    before(signal.SIGINT, frame)
