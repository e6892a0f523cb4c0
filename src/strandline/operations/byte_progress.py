"""Progress of operations that move bytes, with an estimate of their end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from strandline.records import Record, later

__all__ = ["Transfer"]

T = TypeVar("T", bound="Transfer")


@dataclass(frozen=True, kw_only=True)
class Transfer(Record):
    """Bytes moved so far, of all bytes; ``ends``: the estimated time of the end."""

    bytes: int
    bytes_total: int
    ends: float | None = later()

    def report(self: T, size: int, *, began: float, now: float, workers: int) -> T:
        """Return the progress after ``size`` more bytes.

        Parts that run at the same time finish one after the other, so the other ``workers`` may have moved
        nearly as many bytes. As long as this explains why fewer bytes than expected are reported, ``ends``
        does not move to a later time.
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
