"""Throttle of file copies: limits bytes per second and concurrent files.

All copies that one operation makes in a process share one ``Throttle``.

Each piece of a file waits for its share of time before it is written. So the total never exceeds the rate,
for any number of threads and any size of files. Segments cannot be copied without a ``Throttle``
(``segment_files.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from strandline.cancellation import check, may_end
from strandline.clock import Clock, SystemClock
from strandline.settings import Limits
from strandline.storage.files import Source

__all__ = ["Throttle", "ThrottledSource", "Throttles"]

LOOK_SECONDS = 0.25
"""Interval at which a waiting copy checks whether it was cancelled."""


class Throttle:
    """The throttle of one operation. Thread-safe. A pickled copy uses the system clock of its machine."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._paid_until = 0.0
        self._free = limits.copies
        self._changed = threading.Condition()

    def __reduce__(self) -> tuple[Any, ...]:
        return Throttle, (self.limits, SystemClock())

    def pay(self, size: int) -> None:
        """Wait until ``size`` more bytes may be copied. Raises ``Interrupted`` if the work is cancelled."""
        check()
        rate = self.limits.bytes_per_second
        if not rate:
            return
        with self._changed:
            # Idle time is not credited: the rate is never exceeded afterwards to catch up.
            self._paid_until = until = max(self._paid_until, self._clock.now()) + size / rate
        while (left := until - self._clock.now()) > 0:
            self._clock.sleep(min(left, LOOK_SECONDS) if may_end() else left)
            check()

    @contextmanager
    def room(self, files: int = 1) -> Iterator[None]:
        """Wait until ``files`` more files may be copied at the same time; reserve these slots."""
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
    def share(self, files: int, *, each: int = 1) -> Iterator[tuple[int, Throttle]]:
        """Reserve slots for copies in the tasks of a job, which cannot share one throttle.

        Yields the number of tasks that may run at once, and the throttle of each task. If a rate is set, the
        tasks get the whole rate while they run. If no rate is set and ``Limits.spread`` is True, the number
        of tasks is not limited: the cluster runs as many at once as it has slots.

        Args:
            files: number of files to copy.
            each: number of files that one task copies at the same time.
        """
        limits = self.limits
        if limits.spread and not limits.bytes_per_second:
            yield -(-files // each), Throttle(Limits(copies=each), self._clock)
            return
        each = min(each, limits.copies)
        tasks = max(1, min(limits.copies // each, -(-files // each)))
        share = Limits(bytes_per_second=limits.bytes_per_second / tasks, copies=each)
        with self.room(limits.copies if limits.bytes_per_second else tasks * each):
            yield tasks, Throttle(share, self._clock)


@dataclass(frozen=True)
class ThrottledSource:
    """Source of files that reads no faster than the throttle allows."""

    files: Source
    throttle: Throttle

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        for piece in self.files.chunks(name):
            self.throttle.pay(len(piece))
            yield piece


class Throttles:
    """The throttles of the operations that run in this process.

    A throttle is dropped when no copy uses it. Its state is not needed any more then, because all its copies
    have waited for their share of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: WeakValueDictionary[str, Throttle] = WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, operation_id: str, limits: Limits) -> Throttle:
        with self._lock:
            found = self._used.get(operation_id)
            if found is None:
                found = self._used[operation_id] = Throttle(limits, self._clock)
            return found
