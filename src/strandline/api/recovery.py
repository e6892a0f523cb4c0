"""Resume operations of dead processes in the background.

A process starts this thread when it has changed something, or if it found such operations when it connected.
A command that ends within ``carry_on_seconds`` resumes nothing. Operations of live processes, and of newer
versions of Strandline, are left alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.catalog.owners import orphans
from strandline.runtime import Runtime

if TYPE_CHECKING:
    from strandline.api.operations import Operations

log = logging.getLogger("strandline")


class Carrier:
    """A thread that checks for orphaned operations every ``carry_on_seconds``.

    ``running`` is called only if there are any, because loading its modules takes long.
    """

    def __init__(self, runtime: Runtime, running: Callable[[], Operations]) -> None:
        self._runtime = runtime
        self._running = running
        self._is_over = threading.Event()
        self._seconds = runtime.settings.carry_on_seconds
        self._thread = threading.Thread(target=self._run, name="strandline-carrier", daemon=True)
        if self._seconds > 0:
            self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(self._seconds):
            try:
                self.look()
            except Exception as error:  # Retry at the next check.
                log.warning("operations of dead processes could not be resumed: %s", error)

    def look(self) -> list[str]:
        """Resume orphaned operations; return their ids."""
        with self._runtime.catalog.read() as conn:
            found = orphans(conn, self._runtime.clock.now())
        return [i for i in found if not self._is_over.is_set() and self._running().engine.carry_on(i)]

    def stop(self) -> None:
        """Stop checking. Wait up to 30 seconds for the thread."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
