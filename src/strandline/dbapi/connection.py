"""Connections (PEP 249): one warehouse and its open transaction."""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any

from strandline.api import Database
from strandline.api import connect as open_database
from strandline.api.execute import run
from strandline.api.result import Result
from strandline.dbapi import exceptions
from strandline.dbapi.cursor import Cursor
from strandline.dbapi.exceptions import InterfaceError, ProgrammingError, translate_errors
from strandline.sql import statements as st

__all__ = ["Connection", "connect"]


_IN_TRANSACTIONS = (st.Change, st.Select, st.Explain, st.ExplainStatement, st.Begin, st.Commit, st.Rollback)
"""Statements that do not commit the open transaction before they run."""


def connect(
    warehouse: str = "warehouse", *, autocommit: bool = False, create: bool = False, **options: Any
) -> Connection:
    """Open a warehouse.

    Args:
        warehouse: a folder or a URL.
        autocommit: commit after each ``execute``.
        create: create the warehouse if the folder is missing or empty.
        options: other arguments of ``strandline.connect``.
    """
    with translate_errors():
        return Connection(open_database(warehouse, create=create, **options), autocommit=autocommit)


class Connection:
    """A connection for one thread at a time. Closing it discards uncommitted changes."""

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
        self._thread: int | None = None
        """The thread with the open transaction. None: no transaction is open."""
        self.autocommit = autocommit

    @property
    def database(self) -> Database:
        """The underlying ``Database``, for features outside PEP 249."""
        if self._database is None:
            raise InterfaceError("the connection is closed")
        return self._database

    def cursor(self) -> Cursor:
        """Return a new cursor. All cursors of a connection share its transaction."""
        self.database  # noqa: B018
        return Cursor(self)

    def run(self, statements: Sequence[st.Statement]) -> Result:
        """Run statements for a cursor; return the result of the last one."""
        changes = [isinstance(statement, st.Change) for statement in statements]
        if not all(isinstance(statement, _IN_TRANSACTIONS) for statement in statements):
            self.commit()
        elif any(changes) and not (self.autocommit or self._is_open() or isinstance(statements[0], st.Begin)):
            self.database._transactions.begin()
        with translate_errors(changing=any(changes)), self.database._guard():
            try:
                return run(self.database, statements)
            finally:
                is_open = self.database._transactions.current is not None
                self._thread = get_ident() if is_open else None

    def commit(self) -> None:
        """Commit all changes since the last commit at one step.

        Raises OperationalError with the code CONFLICT, and commits nothing, if others have changed the same
        rows meanwhile.
        """
        if self._is_open():
            self._thread = None
            with translate_errors(changing=True):
                self.database._transactions.commit()

    def rollback(self) -> None:
        """Discard all changes since the last commit."""
        if self._is_open():
            self._thread = None
            with translate_errors():
                self.database._transactions.rollback()

    def _is_open(self) -> bool:
        """Return whether a transaction is open. Refuse a transaction of another thread."""
        self.database  # noqa: B018
        if self._thread not in (None, get_ident()):
            raise ProgrammingError("the open transaction belongs to another thread")
        return self._thread is not None

    def close(self) -> None:
        """Discard uncommitted changes and close the warehouse."""
        if self._database is not None:
            if self._thread == get_ident():
                self.rollback()
            with translate_errors():
                self._database.close()
            self._database = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Commit after success, roll back after an exception; the connection stays open."""
        self.commit() if kind is None else self.rollback()
