"""Points of a restore at which something has just become durable, and a process that kills itself there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.backups.restore.story import open_at
from tests.quick_files import QuickFiles

TRANSACTION, MIDDLE, FILE = "a transaction", "half a file", "a file"


class WatchedFiles(QuickFiles):
    """Calls ``meet`` for every copied file, when half of it and when all of it is written.

    The point before a file is the one after the previous write.
    """

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
    """Restore, and kill this process at the point number ``last`` (0: never), without any cleanup."""
    lock = threading.Lock()
    met = 0

    def meet(_: str) -> None:
        nonlocal met
        with lock:  # Other threads may be in the middle of anything.
            met += 1
            if met == last:
                os.kill(os.getpid(), signal.SIGKILL)

    with open_at(folder, url, files=WatchedFiles(folder, meet), workers=workers) as db:
        db._runtime.catalog.after_commit = lambda: meet(TRANSACTION)
        db.sql(statement)
        db._runtime.catalog.after_commit = lambda: None
