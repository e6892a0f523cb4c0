"""The Python API for the client of a page: each call is checked, and recorded if it changes something."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from strandline import Database, Status
from strandline.api.verbs import BY_NAME
from strandline.server.auth import Principal
from strandline.server.scopes import require_collection
from strandline.server.verbs import run_verb

STATUS_SECONDS = 5.0
"""Time for which pages show the same status."""


class RecentStatus:
    """The status of the warehouse, computed at most every ``STATUS_SECONDS`` for all clients.

    It takes long with many collections, or if a repository does not answer. While one thread computes it,
    the others get the last one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: tuple[float, Status] | None = None

    def read(self, db: Database) -> Status:
        """Return the status. Its ``time`` says how old it is."""
        found = self._found
        if found is not None and time.monotonic() - found[0] < STATUS_SECONDS:
            return found[1]
        if not self._lock.acquire(blocking=found is None):
            assert found is not None
            return found[1]
        try:
            latest = self._found
            if latest is not None and latest is not found:
                return latest[1]
            status = db.status()
            self._found = time.monotonic(), status
            return status
        finally:
            self._lock.release()


@dataclass(frozen=True)
class PageClient:
    """Who asks for a page, and the database that answers."""

    db: Database
    principal: Principal
    recent: RecentStatus

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Run a method of the Python API, such as ``"Collection.backups"``, in this thread.

        The checks and the entries in the audit log are those of the HTTP API.
        """
        return run_verb(self.db, self.principal, BY_NAME[name], arguments)

    def status(self) -> Status | None:
        """Return the recent status. None: the client is limited to some paths."""
        return self.recent.read(self.db) if self.sees_all else None

    def offers(self, name: str) -> bool:
        """Return whether the service offers a method."""
        return name in BY_NAME

    def collection_database(self, collection: str) -> Database:
        """Return the database to read what belongs to a collection, after checking that the client may."""
        require_collection(self.db, self.principal, collection)
        return self.db

    @property
    def sees_all(self) -> bool:
        """Whether the client may read what concerns the whole warehouse."""
        return self.principal.prefixes is None
