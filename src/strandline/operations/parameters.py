"""What an engine is given: the session that it works for, and who chooses the next part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strandline.catalog.operations import PartRow


class Lease(Protocol):
    """The session that operations of this process belong to. ``catalog.sessions.Session`` is one."""

    @property
    def id(self) -> str: ...

    @property
    def is_held(self) -> bool:
        """Whether the lease has not run out, so that no other process takes over its operations."""

    def ensure(self) -> str:
        """Make the session durable and keep it alive, and return its id."""


class Scheduler(Protocol):
    """Which of the parts that could go on goes on next. The engine's answer to "in any order": the order is a
    parameter. Called for every transition with parts that are runnable at that moment, never with none."""

    def choose(self, runnable: Sequence[PartRow]) -> PartRow: ...
