"""The database of a catalog: open connections, check write access, and translate the driver's errors."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import URL, Connection, Engine, event, text
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from strandline.catalog import sqlite_files
from strandline.catalog.engines import engine_at, reading_engine
from strandline.catalog.write_queue import WriteQueue
from strandline.clock import Clock, SystemClock
from strandline.errors import Corrupted, StrandlineError, Unavailable
from strandline.retry import tries


class CatalogDatabase:
    """The database that holds a catalog. Safe to use from any thread.

    Attributes:
        engine: the ordinary connections.
        reading: the connections to a SQLite file that this process cannot write. None: not SQLite.
    """

    def __init__(self, url: str | URL, clock: Clock, wait_seconds: float) -> None:
        self.engine = engine_at(url, wait_seconds)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.reading: Engine | None = reading_engine(self.file) if self.is_sqlite else None
        # Another process may hold the turn: waiting for it takes real time, even if ``clock`` is simulated.
        self._queue = WriteQueue(self.file, SystemClock(), wait_seconds) if self.is_sqlite else None
        self._clock = clock
        self._wait_seconds = wait_seconds
        for engine in (self.engine, self.reading):
            if self.is_sqlite and engine is not None:
                event.listen(engine, "begin", _begin)
        self._freeing = 0
        self._has_released = False
        """Whether this process has released the reserve. Then the reserve may be missing or too small."""

    @property
    def file(self) -> str:
        """The file of a catalog in SQLite."""
        return str(self.engine.url.database)

    @property
    def is_missing(self) -> bool:
        """Whether the SQLite file does not exist. Opening the file with SQLite would create it."""
        return self.is_sqlite and not os.path.exists(self.file)

    def is_inside(self, folder: str) -> bool:
        """Return whether the catalog is a file directly in a folder.

        Args:
            folder: the real path of the folder.
        """
        return self.is_sqlite and os.path.dirname(os.path.realpath(self.file)) == folder

    @property
    def file_name(self) -> str:
        """The file name of a catalog in SQLite, without its folder."""
        return os.path.basename(os.path.realpath(self.file))

    @property
    def address(self) -> str:
        """The URL without secrets."""
        return self.engine.url.set(username=None, password=None, query={}).render_as_string()

    @property
    def is_read_only(self) -> bool:
        """Whether this process may not write the catalog's file or create files beside it."""
        return self.is_sqlite and not sqlite_files.is_writable(self.file)

    def check_writable(self) -> None:
        if self.is_read_only:
            raise Unavailable(
                f"the catalog {self.file} cannot be written: it is read-only for this process",
                "Reading works here. To change something, open the warehouse where it can be written.",
            )

    @contextlib.contextmanager
    def freeing_space(self) -> Iterator[None]:
        """Release the disk space reserve for the commits in the ``with`` block, which free space."""
        if not self.is_sqlite or self.is_read_only:
            yield
            return
        sqlite_files.release_reserve(self.file)
        self._freeing, self._has_released = self._freeing + 1, True
        try:
            yield
        finally:
            self._freeing -= 1
            sqlite_files.keep_reserve(self.file)

    def empty_log(self) -> None:
        """Move SQLite's log into the catalog's file if disk space is short, so that the next commit fits."""
        if self._freeing and sqlite_files.is_short_of_space(self.file):
            with contextlib.suppress(DBAPIError), self.engine.connect() as conn:
                driver: Any = conn.connection.driver_connection
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def open_read(self) -> Connection:
        if self.reading is not None and self.is_read_only:
            return self._begin_read(self.reading)
        try:
            return self._begin_read(self.engine)
        except OperationalError as error:
            # SQLite needs disk space for the index of the log, even to read.
            if self.reading is None or not _has_no_space(error):
                raise
            return self._begin_read(self.reading)

    def _begin_read(self, engine: Engine) -> Connection:
        conn = engine.connect()
        try:
            if not self.is_sqlite:
                conn = conn.execution_options(isolation_level="REPEATABLE READ")
            conn.begin()
            if self.is_sqlite:
                # SQLite takes its snapshot with the first statement, and only this statement may be blocked.
                conn.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1")
        except BaseException:
            conn.close()
            raise
        return conn

    def turn(self) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """Wait for this writer's turn, which ends with the ``with`` block.

        The ``with`` block gets a function, and must call it when its transaction has begun. PostgreSQL needs
        no turns, because it has a queue for the lock on the row of ``clock``.
        """
        return contextlib.nullcontext(lambda: None) if self._queue is None else self._queue.turn()

    def open_write(self) -> Connection:
        conn = self.engine.connect().execution_options(strandline_write=True)
        try:
            conn.begin()
            if not self.is_sqlite:
                conn.execute(text("SELECT step FROM clock WHERE id = 1 FOR UPDATE"))
        except BaseException:
            conn.close()
            raise
        return conn

    def patiently(self, attempt: Callable[[], Any]) -> Any:
        """Call ``attempt``; retry while other writers lock the database.

        So users never get the error "database is locked".
        """
        busy: OperationalError | None = None
        for _ in tries(self._clock, lambda _: random.uniform(0.005, 0.05), seconds=self._wait_seconds):
            try:
                return attempt()
            except OperationalError as error:
                if not _is_busy(error):
                    raise
                busy = error
        raise Unavailable(
            f"the catalog was busy for {self._wait_seconds:.0f} seconds",
            "Look for a process that holds a transaction open on the catalog, then try again.",
        ) from busy

    def close(self) -> None:
        self.engine.dispose()
        if self.reading is not None:
            self.reading.dispose()
        if self._has_released:  # SQLite has deleted its log, which has freed space on the disk.
            sqlite_files.keep_reserve(self.file)


def _begin(conn: Connection) -> None:
    """Begin a SQLite transaction explicitly, because the driver is configured not to begin any."""
    is_write = conn.get_execution_options().get("strandline_write", False)
    conn.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def _has_no_space(error: OperationalError) -> bool:
    text_ = str(error.orig).lower()
    return "is full" in text_ or "disk i/o error" in text_ or "unable to open" in text_


def _is_busy(error: OperationalError) -> bool:
    text_ = str(error.orig).lower()
    return "locked" in text_ or "busy" in text_ or "deadlock" in text_ or "could not serialize" in text_


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of the database driver into Strandline's errors.

    Errors about a locked database pass unchanged, because callers retry after them.
    """
    try:
        yield
    except OperationalError as error:
        if _is_busy(error):
            raise
        hint = "Check the catalog's address, rights and free space."
        if _has_no_space(error):
            hint += (
                " On a full disk DROP, PRUNE, ALTER WAREHOUSE and db.maintain() still work, and free space; "
                "DROP BACKUP COLLECTION does so at once with PURGE."
            )
        raise Unavailable(f"the catalog cannot be used: {_first_line(error)}", hint) from error
    except PoolTimeout as error:
        raise Unavailable(
            "all connections to the catalog are in use", "Use fewer threads at once, then try again."
        ) from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise Unavailable(
                f"the connection to the catalog cannot be used any more: {_first_line(error)}",
                "Repeat the statement.",
            ) from error
        if isinstance(error, DatabaseError) and "not a database" in str(error.orig):
            raise Corrupted(
                "the catalog file is not a SQLite database", "Restore the file from a copy of the warehouse."
            ) from error
        if "malformed" in str(error.orig):
            raise Corrupted(
                f"the catalog is damaged: {_first_line(error)}",
                "Restore the file from a copy of the warehouse.",
            ) from error
        raise StrandlineError(f"the catalog refused a request: {_first_line(error)}") from error


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
