"""Which of the parts that could go on goes on next. The engine's answer to "in any order": the order is a
parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strandline.catalog.operations import Part


class Scheduler(Protocol):
    """Chooses the next part; called for every transition with the parts that are runnable at that moment,
    never with none."""

    def choose(self, runnable: Sequence[Part]) -> Part: ...


class InOrder:
    """Each part to its end, in the order they were planned."""

    def choose(self, runnable: Sequence[Part]) -> Part:
        return runnable[0]
