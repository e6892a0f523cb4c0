"""Run the operations of a ``Database``, and resume operations of dead processes in the background.

A process resumes operations of dead processes after it has changed something, or if such operations existed
when it connected. A command that ends within ``carry_on_seconds`` resumes nothing. Operations of live
processes, and of newer versions of Strandline, are not resumed.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from strandline.catalog.owners import orphans
from strandline.runtime import Runtime

if TYPE_CHECKING:
    from strandline.api.operations import Operations
    from strandline.operations.engine import Engine
    from strandline.operations.kind import Kind
    from strandline.records import Record

log = logging.getLogger("strandline")


class OperationRunner:
    """Runs operations in this process. Thread-safe.

    The modules of operations are imported when they are first needed, because the import is slow.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._loaded: Operations | None = None
        self.carrier: Carrier | None = None

    @property
    def loaded(self) -> Operations:
        with self._lock:
            if self._loaded is None:
                from strandline.api.operations import Operations

                self._loaded = Operations(self._runtime)
            return self._loaded

    @property
    def engine(self) -> Engine:
        return self.loaded.engine

    def kind(self, name: str) -> Kind[Any, Any, Any]:
        """Return the implementation of a kind of operations."""
        return self.engine.transitions.kind_of(name)

    def start(self, kind: str, request: Record) -> str:
        """Start an operation in the background; return its id."""
        self.note_change()
        return self.loaded.start(kind, request)

    def run(self, kind: str, request: Record) -> str:
        """Run an operation to its end; return its id."""
        self.note_change()
        return self.engine.execute(kind, request)

    def let_go(self) -> None:
        """Stop working on operations at once, so that another process continues them after ``close``."""
        self.engine.let_go()

    def note_change(self) -> None:
        """Start to resume operations of dead processes in the background.

        Called when this process changes something.
        """
        if self.carrier is None:
            with self._lock:
                if self.carrier is None:
                    self.carrier = Carrier(self._runtime, self)

    def note_orphans(self) -> None:
        """Start to resume operations in the background if dead processes have left any."""
        with self._runtime.catalog.read() as conn:
            found = orphans(conn, self._runtime.clock.now())
        if found:
            self.note_change()

    def close(self) -> None:
        """Stop the background threads, and wait up to 30 seconds for each."""
        if self._loaded is not None:
            self._loaded.close()
        if self.carrier is not None:
            self.carrier.stop()


class Carrier:
    """A thread that checks for orphaned operations every ``carry_on_seconds``."""

    def __init__(self, runtime: Runtime, operations: OperationRunner) -> None:
        self._runtime = runtime
        self._operations = operations
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
        return [i for i in found if not self._is_over.is_set() and self._operations.engine.carry_on(i)]

    def stop(self) -> None:
        """Stop checking. Wait up to 30 seconds for the thread."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
