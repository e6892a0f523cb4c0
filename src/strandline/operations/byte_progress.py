"""Progress of operations that move bytes, with an estimate of their end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from strandline.records import Record, later

__all__ = ["Transfer"]

T = TypeVar("T", bound="Transfer")


@dataclass(frozen=True, kw_only=True)
class Transfer(Record):
    """Progress of an operation that moves bytes.

    Attributes:
        bytes: Bytes moved so far.
        bytes_total: All bytes to move.
        ends: Estimated time of the end. None: no estimate is possible yet.
    """

    bytes: int
    bytes_total: int
    ends: float | None = later()

    def report(self: T, size: int, *, began: float, now: float, workers: int) -> T:
        """Return the progress after ``size`` more bytes.

        Parts that run at the same time report their bytes one after the other. So each of the other workers
        may have moved ``size`` bytes that are not reported yet. The estimate ``ends`` becomes later only if
        it would also become later when these bytes are counted.

        Args:
            size: Bytes that a part reports.
            began: Time when the operation began.
            workers: Number of parts that run at the same time.
        """
        done = self.bytes + size
        ends = self._ends(done, began, now)
        if self.ends is not None and ends is not None:
            soonest = self._ends(min(self.bytes_total, done + size * (workers - 1)), began, now) or ends
            ends = min(ends, self.ends) if soonest <= self.ends else ends
        return replace(self, bytes=done, ends=ends)

    def _ends(self, done: int, began: float, now: float) -> float | None:
        left = max(0, self.bytes_total - done)
        return now + (now - began) * left / done if done and now > began else None
