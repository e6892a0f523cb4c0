"""How far operations have come that move bytes, and when they will have moved all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from strandline.records import Record, later

__all__ = ["Transfer"]

T = TypeVar("T", bound="Transfer")


@dataclass(frozen=True, kw_only=True)
class Transfer(Record):
    """The bytes that are there, of all. ``ends``: when all of them will be, judging by what has come so
    far."""

    bytes: int
    bytes_total: int
    ends: float | None = later()

    def moved(self: T, size: int, *, began: float, now: float, workers: int) -> T:
        """So many bytes are there now, too. The other ``workers`` may nearly have as many, for parts that run
        at the same time end one after the other. As long as these can explain why less has come than was
        expected, the end stays where it was."""
        done = self.bytes + size
        ends = self._ends(done, began, now)
        if self.ends is not None and ends is not None:
            soonest = self._ends(min(self.bytes_total, done + size * (workers - 1)), began, now) or ends
            ends = min(ends, self.ends) if soonest <= self.ends else ends
        return replace(self, bytes=done, ends=ends)

    def _ends(self, done: int, began: float, now: float) -> float | None:
        left = max(0, self.bytes_total - done)
        return now + (now - began) * left / done if done and now > began else None
