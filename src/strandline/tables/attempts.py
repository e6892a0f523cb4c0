"""Doing it again: what to do with a statement when the catalog has moved on under its feet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from strandline.catalog.stale import Ended, Stale
from strandline.errors import Conflict, Corrupted
from strandline.retry import tries
from strandline.runtime import Runtime

if TYPE_CHECKING:
    from strandline.catalog.moment import Mark

T = TypeVar("T")

_LONGEST_PAUSE = 0.25


@contextmanager
def once(runtime: Runtime, mark: Mark) -> Iterator[None]:
    """What reads moments, and writes, after a mark and cannot be repeated by itself. Whoever has slept for
    long may look for files that have been collected since: that is no damage, but Stale."""
    try:
        yield
    except Corrupted:
        if not runtime.moments.lost_since(mark):
            raise
        raise Ended(0, "what it read has been collected meanwhile") from None


def repeat(runtime: Runtime, attempt: Callable[[], T]) -> T:
    """What ``attempt`` answers, which plans from the beginning each time it is called; CONFLICT when the
    tries are used up."""
    reason = ""
    count = runtime.settings.commit_tries
    for _ in tries(runtime.clock, _pause, count=count):
        try:
            with once(runtime, runtime.moments.mark()):
                return attempt()
        except Stale as stale:
            reason = stale.reason
            if isinstance(stale, Ended):
                runtime.session.confirm()
    raise Conflict(
        f"others changed what the statement depends on {count} times in a row ({reason}); nothing was "
        "committed"
    )


def _pause(number: int) -> float:
    return random.uniform(0, min(0.002 * 2**number, _LONGEST_PAUSE))
