"""Waiting for others: how often to try again, with which pauses, and how long to wait for an answer. One
place for all who do.

Work with a limit of time runs on a daemon thread of its own, which is never joined without end: when its time
is over it is to end, as by Ctrl-C, and what it brings later is discarded.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from strandline.clock import Clock
from strandline.errors import TimedOut
from strandline.work import Work, check, doing

_POLL_SECONDS = 0.05

T = TypeVar("T")


def tries(
    clock: Clock,
    pause: Callable[[int], float],
    *,
    count: int | None = None,
    seconds: float | None = None,
) -> Iterator[int]:
    """Yield the numbers of the tries, from 0 on, until ``count`` were made or ``seconds`` have passed; there
    is always a first one. ``pause`` says how long to wait after the try of a number. Whoever succeeds leaves
    the loop; what comes after the loop is for those who did not."""
    began = clock.now()
    number = 0
    while True:
        check()
        yield number
        number += 1
        if number == count or (seconds is not None and clock.now() - began >= seconds):
            return
        clock.sleep(pause(number - 1))


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
        """Return what the work returns or raises, if it does so in time. Whoever stops waiting, for whatever
        reason, leaves it alone."""
        try:
            while not self._is_over.wait(_POLL_SECONDS):
                check()
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
