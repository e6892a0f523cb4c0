"""A connection: one warehouse, and the transaction that is open."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from strandline.api import Database
from strandline.api import connect as open_database
from strandline.api.execute import run
from strandline.api.result import Result
from strandline.dbapi import exceptions
from strandline.dbapi.cursor import Cursor
from strandline.dbapi.exceptions import InterfaceError, translated
from strandline.sql import statements as st

__all__ = ["Connection", "connect"]


class _RolledBack(Exception):
    """Ends a transaction without a commit. Never leaves this module."""


def connect(warehouse: str = "warehouse", *, autocommit: bool = False, **options: Any) -> Connection:
    """Open a warehouse; ``options`` are those of ``strandline.connect``. With ``autocommit`` each ``execute``
    is a commit of its own."""
    with translated():
        return Connection(open_database(warehouse, **options), autocommit=autocommit)


class Connection:
    """Used by one thread at a time. Closing it discards what is not committed."""

    Warning = exceptions.Warning
    Error = exceptions.Error
    InterfaceError = exceptions.InterfaceError
    DatabaseError = exceptions.DatabaseError
    DataError = exceptions.DataError
    OperationalError = exceptions.OperationalError
    IntegrityError = exceptions.IntegrityError
    InternalError = exceptions.InternalError
    ProgrammingError = exceptions.ProgrammingError
    NotSupportedError = exceptions.NotSupportedError

    def __init__(self, database: Database, *, autocommit: bool = False) -> None:
        self._database: Database | None = database
        self._transaction: AbstractContextManager[Database] | None = None
        self.autocommit = autocommit

    @property
    def database(self) -> Database:
        """The connection that this one is made of, for all that PEP 249 does not know."""
        if self._database is None:
            raise InterfaceError("the connection is closed")
        return self._database

    def cursor(self) -> Cursor:
        """Return a new cursor. All cursors of a connection share its transaction."""
        self.database  # noqa: B018
        return Cursor(self)

    def run(self, statements: Sequence[st.Statement]) -> Result:
        """Run statements for a cursor, and return the result of the last one."""
        db = self.database
        changes = [isinstance(statement, st.Change) for statement in statements]
        about_rows = all(
            change or isinstance(statement, st.Select | st.Explain)
            for change, statement in zip(changes, statements, strict=True)
        )
        if not about_rows:
            self.commit()
        elif any(changes) and not self.autocommit and self._transaction is None:
            self._transaction = db.transaction()
            self._transaction.__enter__()
        with translated(changing=any(changes)), db.guard():
            return run(db, statements)

    def commit(self) -> None:
        """Make all changes since the last one durable, as one commit at one step. If others have changed the
        same rows meanwhile, this is an OperationalError with the code CONFLICT, and nothing is committed."""
        self.database  # noqa: B018
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with translated(changing=True):
                transaction.__exit__(None, None, None)

    def rollback(self) -> None:
        """Discard all changes since the last commit."""
        self.database  # noqa: B018
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            error = _RolledBack()
            with translated():
                transaction.__exit__(_RolledBack, error, None)

    def close(self) -> None:
        """Discard what is not committed, and close the warehouse."""
        if self._database is not None:
            self.rollback()
            with translated():
                self._database.close()
            self._database = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Commit if the block has ended well, else roll back; the connection stays open."""
        self.commit() if kind is None else self.rollback()
