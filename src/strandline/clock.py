"""Time as a parameter, so that a test can stop, move or replay it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in seconds since the epoch, and a way to wait. Safe to use from any thread."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
