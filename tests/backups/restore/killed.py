"""Points of a restore at which something has just become durable, and a process that kills itself at one of
them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.backups.restore.story import QuickFiles, open_at

TRANSACTION, MIDDLE, FILE = "a transaction", "half a file", "a file"


class WatchedFiles(QuickFiles):
    """Tells of every file that is copied, when half of it is there and when all of it is. Before a file is
    after something else."""

    def __init__(self, root: Path, meet: Callable[[str], None]) -> None:
        super().__init__(root)
        self._meet = meet

    def copy(self, source: Any, source_name: str, name: str, checksum: str) -> int:
        size = super().copy(source, source_name, name, checksum)
        self._meet(FILE)
        return size

    def _append(self, descriptor: int, data: memoryview) -> int:
        done = super()._append(descriptor, data[: len(data) // 2])
        self._meet(MIDDLE)
        return done + super()._append(descriptor, data[done:])


def restore(folder: Path, url: str | None, statement: str, last: int, workers: int) -> None:
    """Restore in the usual way, and die for real, without any chance to clean up, at the ``last`` point
    (never, if it is 0)."""
    lock = threading.Lock()
    met = 0

    def meet(_: str) -> None:
        nonlocal met
        with lock:  # Others may be in the middle of anything.
            met += 1
            if met == last:
                os.kill(os.getpid(), signal.SIGKILL)

    with open_at(folder, url, files=WatchedFiles(folder, meet), workers=workers) as db:
        db.runtime.catalog.after_commit = lambda: meet(TRANSACTION)
        db.sql(statement)
        db.runtime.catalog.after_commit = lambda: None
