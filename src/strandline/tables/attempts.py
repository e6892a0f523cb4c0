"""Doing it again: what to do with a statement when the catalog has moved on under its feet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from strandline.catalog import sessions
from strandline.catalog.stale import Ended, Stale
from strandline.errors import Conflict, Corrupted
from strandline.runtime import Runtime

T = TypeVar("T")

_LONGEST_PAUSE = 0.25


@contextmanager
def once(runtime: Runtime, session_id: str) -> Iterator[None]:
    """What happens in an open transaction, in the name of the session that it reads with. It cannot be
    repeated by itself."""
    try:
        yield
    except Corrupted as error:
        raise _ended(runtime, session_id, error) from None


def _ended(runtime: Runtime, session_id: str, error: Corrupted) -> Ended:
    """Whoever was taken for dead may look for files that have been collected since: that is no damage. Any
    other error is raised."""
    if runtime.session.id == session_id:
        with runtime.catalog.read() as conn:
            if not runtime.session.is_durable or sessions.is_alive(conn, session_id):
                raise error
    return Ended(0, "this process was taken for dead meanwhile")


def repeat(runtime: Runtime, attempt: Callable[[], T]) -> T:
    """What ``attempt`` answers, which plans from the beginning each time it is called; CONFLICT when the
    tries are used up."""
    tries = runtime.settings.commit_tries
    reason = ""
    for number in range(tries):
        session_id = runtime.session.id
        try:
            return attempt()
        except Stale as stale:
            reason = stale.reason
        except Corrupted as error:
            reason = _ended(runtime, session_id, error).reason
        runtime.session.confirm()
        runtime.clock.sleep(random.uniform(0, min(0.002 * 2**number, _LONGEST_PAUSE)))
    raise Conflict(
        f"others changed what the statement depends on {tries} times in a row ({reason}); nothing was "
        "committed"
    )
