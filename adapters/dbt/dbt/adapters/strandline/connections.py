"""The profile of a warehouse, and connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState, Credentials
from dbt.adapters.exceptions import FailedToConnectError
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

import strandline
from strandline import dbapi
from strandline.errors import StrandlineError

DATABASE = "warehouse"


@dataclass(kw_only=True)
class StrandlineCredentials(Credentials):
    """A target of ``profiles.yml``.

    Attributes:
        warehouse: Folder or URL of the warehouse.
        schema: Directory for the tables of models and seeds.
        catalog: URL of the catalog if it is not in the warehouse.
        create: Create the warehouse if the folder is missing or empty.
        database: A constant: dbt wants a name, but a warehouse has directories only.
    """

    warehouse: str = "warehouse"
    catalog: str | None = None
    create: bool = False
    database: str = DATABASE

    def __post_init__(self) -> None:
        self.schema = self.schema.strip("/")
        if self.database != DATABASE:
            raise DbtRuntimeError(
                "The profile has a `database`. Leave it out: the folder is the `warehouse`."
            )

    @property
    def type(self) -> str:
        return "strandline"

    @property
    def unique_field(self) -> str:
        return self.warehouse

    def _connection_keys(self) -> tuple[str, ...]:
        return ("warehouse", "database", "schema")


class StrandlineConnectionManager(SQLConnectionManager):
    """Connections of dbt's threads. They share one open warehouse, and each statement is its own commit."""

    TYPE = "strandline"
    _lock: ClassVar[Lock] = Lock()
    _open: ClassVar[dict[tuple[str, str | None], strandline.Database]] = {}

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state == ConnectionState.OPEN:
            return connection
        credentials: Any = connection.credentials
        place = (credentials.warehouse, credentials.catalog)
        try:
            with cls._lock:
                if place not in cls._open:
                    cls._open[place] = strandline.connect(
                        place[0], catalog=place[1], create=credentials.create
                    )
        except StrandlineError as error:
            connection.handle, connection.state = None, ConnectionState.FAIL
            raise FailedToConnectError(str(error)) from error
        connection.handle = dbapi.Connection(cls._open[place], autocommit=True)
        connection.state = ConnectionState.OPEN
        return connection

    @classmethod
    def _close_handle(cls, connection: Connection) -> None:
        """Leave the warehouse open for the other threads: ``cleanup_all`` closes it."""

    @classmethod
    def _rollback_handle(cls, connection: Connection) -> None:
        """Do nothing: a statement that failed has changed nothing."""

    def cleanup_all(self) -> None:
        super().cleanup_all()
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            yield
        except dbapi.Error as error:
            raise DbtDatabaseError(str(error)) from error

    @classmethod
    def get_response(cls, cursor: Any) -> AdapterResponse:
        rows = cursor.rowcount
        return AdapterResponse(_message="OK" if rows < 0 else f"OK {rows}", rows_affected=rows)

    @classmethod
    def data_type_code_to_name(cls, type_code: str) -> str:
        return type_code

    def cancel(self, connection: Connection) -> None:
        """Do nothing: dbt does not call it, because the adapter is not cancelable."""

    def begin(self) -> Connection:
        """Do nothing: each statement is its own commit."""
        connection: Connection = self.get_thread_connection()
        connection.transaction_open = True
        return connection

    def commit(self) -> Connection:
        """Do nothing: each statement is its own commit."""
        connection: Connection = self.get_thread_connection()
        connection.transaction_open = False
        return connection
