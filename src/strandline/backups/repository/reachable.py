"""Check which repositories can be reached at the moment, within a time limit.

A repository on a network drive may not answer for minutes. So each check runs on a daemon thread, and a
repository that has not answered in time counts as away.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Mapping

from strandline.backups.collection import CLUSTER, CollectionRecord
from strandline.backups.health import Standing
from strandline.errors import StrandlineError
from strandline.runtime import Runtime
from strandline.storage.repository_marker import MARKER, read_marker

SECONDS = 10.0
"""Time limit for the checks of all repositories."""
THREADS = 16
"""Maximum number of repositories that are checked at the same time."""


def find_away(runtime: Runtime, found: Iterable[Standing]) -> dict[str, str]:
    """Return the repositories that cannot be reached, with the reason, by location.

    Only repositories that have backups are checked.
    """
    wanted: dict[str, str | None] = {}
    for standing in found:
        if standing.storage != CLUSTER and any(h.stored == standing.storage for _, h in standing.backups):
            wanted[standing.storage] = standing.collection.record(CollectionRecord).repository
    return _check_all(runtime, wanted) if wanted else {}


def _check_all(runtime: Runtime, wanted: Mapping[str, str | None]) -> dict[str, str]:
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for root in wanted:
        waiting.put(root)
    begun: set[str] = set()
    answers: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            try:
                root = waiting.get_nowait()
            except queue.Empty:
                return
            begun.add(root)
            answers.put((root, _check(runtime, root, wanted[root])))

    for _ in range(min(THREADS, len(wanted))):
        threading.Thread(target=work, name="strandline-reach", daemon=True).start()
    known: dict[str, str | None] = {}
    until = time.monotonic() + SECONDS
    while len(known) < len(wanted):
        try:
            root, why = answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        known[root] = why
    while not waiting.empty():  # The threads stop after their present checks.
        try:
            waiting.get_nowait()
        except queue.Empty:
            break
    silent = dict.fromkeys(begun.difference(known), f"it has not answered within {SECONDS:g} seconds")
    return {root: why for root, why in (known | silent).items() if why is not None}


def _check(runtime: Runtime, root: str, expected: str | None) -> str | None:
    """Return why a repository cannot be reached. None: it can be."""
    try:
        marker = read_marker(runtime.files.opener(root))
    except StrandlineError as error:
        return error.message
    except Exception as error:
        return f"{type(error).__name__}"
    if marker is None:
        return f"it has no {MARKER}; its storage may not be mounted"
    if expected not in (None, marker.id):
        return f"another repository is in its place: it has the id {marker.id}, not {expected}"
    return None
