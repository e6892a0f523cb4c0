"""Carries on, in the background, what processes left unfinished that died.

A process that has changed something, or that met such operations when it connected, looks now and then for
those whose owner is dead. A command that is over before the first look does nothing of the kind. What a live
process carries out is never taken from it, and what a newer version began is left to that.
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
    """A thread that looks every ``carry_on_seconds``. ``running`` is asked for only if there is something to
    carry on: it takes long to load."""

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
            except Exception as error:  # What cannot be reached now may be reached the next time.
                log.warning("operations of dead processes could not be carried on: %s", error)

    def look(self) -> list[str]:
        """Carry on what is there to be carried on, and return the ids."""
        with self._runtime.catalog.read() as conn:
            found = orphans(conn, self._runtime.clock.now())
        return [i for i in found if not self._is_over.is_set() and self._running().engine.carry_on(i)]

    def stop(self) -> None:
        """Look no more. What it carries on at the moment ends as that of other threads does."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
