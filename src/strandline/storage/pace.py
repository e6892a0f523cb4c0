"""How fast files are copied, and how many at a time: one ``Pace`` for all that an operation copies in a
process.

A piece of a file is paid for with time before it is written, so that at no moment more has gone than the
rate allows, however many threads share it and however small the files are. Nobody can copy a segment without
a pace (``stored.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from strandline.clock import Clock, SystemClock
from strandline.settings import Limits
from strandline.storage.files import Source
from strandline.work import check, may_end

__all__ = ["Pace", "Paced", "Paces"]

LOOK_SECONDS = 0.25
"""A copy that waits asks this often whether it is still wanted."""


class Pace:
    """May be used from any thread. On another machine it goes by the clock there."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._paid_until = 0.0
        self._free = limits.copies
        self._changed = threading.Condition()

    def __reduce__(self) -> tuple[Any, ...]:
        return Pace, (self.limits, SystemClock())

    def pay(self, size: int) -> None:
        """Wait until so many bytes more may go. Leaves, with ``Interrupted``, if the work is to end."""
        check()
        rate = self.limits.bytes_per_second
        if not rate:
            return
        with self._changed:
            # Time in which nothing went is not made up for.
            self._paid_until = until = max(self._paid_until, self._clock.now()) + size / rate
        while (left := until - self._clock.now()) > 0:
            self._clock.sleep(min(left, LOOK_SECONDS) if may_end() else left)
            check()

    @contextmanager
    def room(self, files: int = 1) -> Iterator[None]:
        """Wait until so many files may be copied beside the others, and keep the room for them."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._free >= files, LOOK_SECONDS):
                check()
            self._free -= files
        try:
            yield
        finally:
            with self._changed:
                self._free += files
                self._changed.notify_all()

    @contextmanager
    def shared(self, files: int, *, each: int = 1) -> Iterator[tuple[int, Pace]]:
        """Give at most so many files away to tasks that know nothing of each other and copy ``each`` at a
        time: yield how many of them may run at once, and the pace of one. If there is a rate, all of it is
        theirs as long as they run."""
        limits = self.limits
        each = min(each, limits.copies)
        tasks = max(1, min(limits.copies // each, -(-files // each)))
        share = Limits(bytes_per_second=limits.bytes_per_second / tasks, copies=each)
        with self.room(limits.copies if limits.bytes_per_second else tasks * each):
            yield tasks, Pace(share, self._clock)


@dataclass(frozen=True)
class Paced:
    """Files to copy from, no faster than a pace allows."""

    files: Source
    pace: Pace

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        for piece in self.files.chunks(name):
            self.pace.pay(len(piece))
            yield piece


class Paces:
    """The paces of the operations that this process carries out. One that nobody uses has nothing to
    remember, for all that has gone is paid for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: WeakValueDictionary[str, Pace] = WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, operation_id: str, limits: Limits) -> Pace:
        with self._lock:
            found = self._used.get(operation_id)
            if found is None:
                found = self._used[operation_id] = Pace(limits, self._clock)
            return found
