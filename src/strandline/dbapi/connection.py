"""A connection: one warehouse, and the transaction that is open."""

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
from strandline.dbapi.exceptions import InterfaceError, ProgrammingError, translated
from strandline.sql import statements as st

__all__ = ["Connection", "connect"]


_IN_TRANSACTIONS = (st.Change, st.Select, st.Explain, st.ExplainStatement, st.Begin, st.Commit, st.Rollback)
"""What does not end a transaction by being run."""


def connect(
    warehouse: str = "warehouse", *, autocommit: bool = False, create: bool = False, **options: Any
) -> Connection:
    """Open a warehouse; with ``create``, create it if the folder is missing or empty. ``options`` are those
    of ``strandline.connect``. With ``autocommit`` each ``execute`` is a commit of its own."""
    with translated():
        return Connection(open_database(warehouse, create=create, **options), autocommit=autocommit)


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
        self._thread: int | None = None
        """The thread whose transaction is open."""
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
        changes = [isinstance(statement, st.Change) for statement in statements]
        if not all(isinstance(statement, _IN_TRANSACTIONS) for statement in statements):
            self.commit()
        elif any(changes) and not (self.autocommit or self._is_open() or isinstance(statements[0], st.Begin)):
            self.database.begin()
        with translated(changing=any(changes)), self.database.guard():
            try:
                return run(self.database, statements)
            finally:
                is_open = self.database.current_transaction() is not None
                self._thread = get_ident() if is_open else None

    def commit(self) -> None:
        """Make all changes since the last one durable, as one commit at one step. If others have changed the
        same rows meanwhile, this is an OperationalError with the code CONFLICT, and nothing is committed."""
        if self._is_open():
            self._thread = None
            with translated(changing=True):
                self.database.commit()

    def rollback(self) -> None:
        """Discard all changes since the last commit."""
        if self._is_open():
            self._thread = None
            with translated():
                self.database.rollback()

    def _is_open(self) -> bool:
        """Return whether a transaction is open. A thread knows only its own, so no other must be asked to end
        it."""
        self.database  # noqa: B018
        if self._thread not in (None, get_ident()):
            raise ProgrammingError("the transaction that is open is of another thread")
        return self._thread is not None

    def close(self) -> None:
        """Discard what is not committed, and close the warehouse."""
        if self._database is not None:
            if self._thread == get_ident():
                self.rollback()
            with translated():
                self._database.close()
            self._database = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Commit if the block has ended well, else roll back; the connection stays open."""
        self.commit() if kind is None else self.rollback()
