"""The Python API for the client of a page: each call is checked, and recorded if it changes something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strandline import Database
from strandline.api.verbs import BY_NAME
from strandline.server.auth import Principal
from strandline.server.scopes import require_collection
from strandline.server.verbs import run_verb


@dataclass(frozen=True)
class Client:
    """Who asks for a page, and the database that answers."""

    db: Database
    principal: Principal

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Run a method of the Python API, such as ``"Collection.backups"``, in this thread.

        The checks and the entries in the audit log are those of the HTTP API.
        """
        return run_verb(self.db, self.principal, BY_NAME[name], arguments)

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
