"""What an engine is given: the session that it works for, who chooses the next part, and where slow work is
done."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from strandline.catalog.operations import Part


class Lease(Protocol):
    """The session that operations of this process belong to. ``catalog.sessions.Session`` is one."""

    @property
    def id(self) -> str: ...

    def ensure(self) -> str:
        """Make the session durable and keep it alive, and return its id."""


class Scheduler(Protocol):
    """Which of the parts that could go on goes on next. The engine's answer to "in any order": the order is a
    parameter. Called for every transition with parts that are runnable at that moment, never with none."""

    def choose(self, runnable: Sequence[Part]) -> Part: ...


class Jobs(Protocol):
    """What slow work has begun outside this process, by the tag under which it was begun.
    ``storage.store.Store`` knows them."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """While the block lasts, all that this thread begins bears the tag."""

    def interrupt(self, tag: str) -> None:
        """End all that bears the tag."""


class Worker(Protocol):
    """Who has slow work done, by a store that is made when there is some. ``runtime.Runtime`` is one."""

    @property
    def store(self) -> Jobs: ...


class NoJobs:
    """All work is done in this process."""

    @property
    def store(self) -> Jobs:
        return self

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def interrupt(self, tag: str) -> None:
        pass
