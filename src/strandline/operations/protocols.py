"""Interfaces that an engine needs: a session, and a scheduler that chooses the next part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strandline.catalog.operations import PartRow


class Lease(Protocol):
    """The session that operations of this process belong to; ``catalog.sessions.Session`` implements it."""

    @property
    def id(self) -> str: ...

    @property
    def is_held(self) -> bool:
        """True if the lease has not expired. Until then no other process takes over its operations."""

    def ensure(self) -> str:
        """Store the session and keep it alive; return its id."""


class Scheduler(Protocol):
    """Chooses which of the runnable parts runs next.

    Parts of a stage may run in any order. Tests use a scheduler to choose this order. ``choose`` is called
    for every transition, with at least one part.
    """

    def choose(self, runnable: Sequence[PartRow]) -> PartRow: ...
