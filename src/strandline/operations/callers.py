"""The guarantees for the caller of an operation, and how they hold while the catalog is unreachable.

1. A statement that returns has taken effect.
2. A statement that raises an error has no effect, and never will, unless its error names the operation and
   says otherwise (``StrandlineError.operation`` and ``outcome``).
3. An operation that was started with NOWAIT, or whose caller died, is continued by any process.

For rule 2, an operation is *refused* when its caller is given an error while the catalog cannot be written.
This process remembers the refused operation. It only undoes the operation, and makes no other transition of
it. A marker in the warehouse tells other processes to do the same when they take the operation over
(``Markers``). The marker is an empty file, so it needs no catalog and hardly any space. If the marker cannot
be written either, or another process may have taken the operation over already, the error says that the
outcome is unknown.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from strandline.catalog.garbage_collection import marker_of
from strandline.catalog.operations import CANCELLING, Failure, OperationRow
from strandline.errors import BEING_UNDONE, GOES_ON, UNKNOWN, OperationNotFound, StrandlineError, Unavailable
from strandline.storage.files import Files

log = logging.getLogger("strandline")

AWAY_SECONDS = 10.0
"""Maximum time for retrying a transition while the catalog is unreachable."""
AGAIN_SECONDS = 1.0
"""Pause between two attempts to finish operations that an unreachable catalog left unfinished."""


class Markers(Protocol):
    """Markers of refused operations, which all processes can read without the catalog."""

    def write(self, operation_id: str) -> None: ...

    def exists(self, operation_id: str) -> bool: ...

    def remove(self, operation_id: str) -> None: ...


class FileMarkers:
    """Markers of refused operations, each stored as an empty file in the warehouse."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def write(self, operation_id: str) -> None:
        self._files.write(marker_of(operation_id), b"")

    def exists(self, operation_id: str) -> bool:
        return self._files.exists(marker_of(operation_id))

    def remove(self, operation_id: str) -> None:
        if self.exists(operation_id):
            self._files.remove(marker_of(operation_id))


class NoMarkers:
    """Markers of an engine without a warehouse. They cannot be written, so no other process can read them."""

    def write(self, operation_id: str) -> None:
        raise Unavailable(f"operation {operation_id} cannot be marked", "Give the engine markers.")

    def exists(self, operation_id: str) -> bool:
        return False

    def remove(self, operation_id: str) -> None:
        pass


@dataclass(eq=False)
class Refusals:
    """The operations that this process must undo instead of continuing them.

    Attributes:
        markers: Markers that tell other processes about refused operations.
        errors: The error that the caller of each refused operation was given, by operation id.
        cancelled: Operations that were cancelled or refused in this process. Their running work is stopped.
        in_doubt: Operations whose start or end may be committed: the catalog did not confirm the commit.
    """

    markers: Markers = field(default_factory=NoMarkers)
    errors: dict[str, StrandlineError] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    in_doubt: set[str] = field(default_factory=set)

    def add(self, operation_id: str, error: StrandlineError) -> None:
        # A copy, because the caller's error gets more details that are not recorded.
        self.errors.setdefault(operation_id, Failure.of(error).error())
        self.cancelled.add(operation_id)

    def is_unwanted(self, operation: OperationRow) -> bool:
        """Return True if an operation must be undone: it was cancelled, or its caller was given an error."""
        return operation.state == CANCELLING or operation.id in self.errors

    def forget(self, operation_id: str) -> None:
        """Forget an operation that has ended. May be repeated."""
        self.cancelled.discard(operation_id)
        self.in_doubt.discard(operation_id)
        if self.errors.pop(operation_id, None) is not None:
            with contextlib.suppress(StrandlineError):  # the collector removes leftover markers
                self.markers.remove(operation_id)


class Recovery:
    """Finishes operations of this process that an unreachable catalog left unfinished.

    One thread tries to end each operation every ``AGAIN_SECONDS``. It stops when all operations have ended.

    Args:
        end: Ends an operation, by its id. Returns False if it must be called again.
        stopping: Set when the engine stops.
    """

    def __init__(self, end: Callable[[str], bool], stopping: threading.Event) -> None:
        self._end = end
        self._stopping = stopping
        self._ids: set[str] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, operation_id: str) -> None:
        with self._lock:
            self._ids.add(operation_id)
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="strandline-recovery", daemon=True)
                self._thread.start()

    def end_all(self, only: Collection[str] | None = None) -> None:
        """Try once to end each operation.

        Args:
            only: Ids of the operations to try. None: all.
        """
        for operation_id in tuple(self._ids):
            if only is not None and operation_id not in only:
                continue
            try:
                has_ended = self._end(operation_id)
            except OperationNotFound:
                has_ended = True
            except Exception as error:  # retried until the process ends
                log.debug("operation %s could not be ended yet: %s", operation_id, error)
                continue
            if has_ended:
                with self._lock:
                    self._ids.discard(operation_id)

    def _run(self) -> None:
        while not self._stopping.wait(AGAIN_SECONDS):
            self.end_all()
            with self._lock:
                if not self._ids:
                    self._thread = None
                    return


def refused_by_other(operation_id: str) -> StrandlineError:
    """Build the error of an operation that another process has marked as refused."""
    return Unavailable(
        f"the catalog was unreachable, and the caller of operation {operation_id} was given this error",
        "Repeat the statement.",
    )


def with_outcome(error: StrandlineError, operation_id: str, outcome: str) -> StrandlineError:
    """Return the error for the caller, with the operation and its outcome."""
    advice = {
        BEING_UNDONE: f"Operation {operation_id} is undone as soon as the catalog can be reached.",
        UNKNOWN: f"Operation {operation_id} may have ended well, or may be carried on later: look with "
        f"db.operation('{operation_id}'), and cancel it with db.cancel('{operation_id}').",
        GOES_ON: f"Operation {operation_id} goes on: wait for it with db.wait('{operation_id}'), or cancel "
        f"it with db.cancel('{operation_id}').",
    }
    return error.about(operation_id, outcome, advice.get(outcome))
