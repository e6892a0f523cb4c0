"""The transactions of a catalog: read snapshots, and write transactions.

A function that changes the catalog takes a ``Writer``; one that only reads takes a connection, which a writer
has as well. So the signature tells whether a function may change anything.

Writers are serialized: SQLite by BEGIN IMMEDIATE, PostgreSQL by locking the one row of ``clock`` first. So a
step becomes visible before any later one, and a write transaction sees every earlier commit. Readers get a
snapshot and never wait.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Table, event, insert, select, text, update
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from strandline.cancellation import check, shield
from strandline.catalog import sqlite_files, sqltables
from strandline.clock import Clock
from strandline.errors import Corrupted, PreconditionFailed, StrandlineError, Unavailable
from strandline.lru import Cache
from strandline.model import Segment
from strandline.retry import tries

# Built once: SQLAlchemy takes longer to build a statement than SQLite takes to answer it.
_NEXT = {
    column.name: update(sqltables.clock)
    .where(sqltables.clock.c.id == 1)
    .values({column: column + 1})
    .returning(column)
    for column in (sqltables.clock.c.step, sqltables.clock.c.generation)
}
_STEP = select(sqltables.clock.c.step).where(sqltables.clock.c.id == 1)

FEW_ROWS = 50
"""Below this number of rows, an ordinary INSERT is used."""


STEPS_PER_SECOND = 2**20
"""Upper bound for the commits per second of any warehouse."""


def latest_step(now: float) -> int:
    """Return the largest step that is accepted from another warehouse.

    Without a limit, a forged number could exhaust the clock, and nothing could be committed any more. The
    limit grows faster than any warehouse commits, so backups taken after such a number are accepted as well.
    """
    return STEPS_PER_SECOND * max(int(now), 2**30)


def current_step(conn: Connection) -> int:
    """Return the step of the last commit."""
    return int(conn.execute(_STEP).scalar_one())


class Told(NamedTuple):
    """A path to be announced. A tuple, because there may be very many."""

    path_id: int
    path: str
    version: int
    dropped: bool


class Announcement(NamedTuple):
    """The publications of one transaction, and the operation that made them, if any."""

    generation: int
    step: int
    operation_id: str | None
    versions: dict[str, int]


@dataclass
class Writer:
    """A write transaction.

    ``now``: the time when it began, after all commits that it sees. ``announced``: the publications to report
    when it is durable.
    """

    conn: Connection
    now: float
    announced: list[Announcement] = field(default_factory=list)
    _step: int | None = None

    @property
    def step(self) -> int:
        """The step of this transaction, the next one of the commit clock; taken at the first use."""
        if self._step is None:
            self._step = int(self.conn.execute(_NEXT["step"]).scalar_one())
        return self._step

    def skip_to(self, step: int) -> None:
        """Make this transaction's step later than ``step``, that of imported changes of another warehouse.

        Must be called before the step is used.
        """
        if step > latest_step(self.now):
            raise PreconditionFailed(
                f"the step {step} is later than any step that a warehouse can have reached",
                "Its backup was changed, or the clock of this machine is wrong.",
            )
        at = sqltables.clock.c
        self.conn.execute(update(sqltables.clock).where(at.id == 1, at.step < step).values(step=step))

    def announce(self, told: Sequence[Told], operation_id: str | None = None) -> int:
        """Announce changed or dropped paths to the caches of all processes; return their generation.

        All of them have the same generation. The descriptions are recorded already.
        """
        number = int(self.conn.execute(_NEXT["generation"]).scalar_one())
        columns = ("generation", "path_id", "path", "version", "dropped", "time", "step", "operation_id")
        rows = [(number, *each, self.now, self.step, operation_id) for each in told]
        self.insert(sqltables.board, columns, rows)
        versions = {path: version for _, path, version, _ in told}
        self.announced.append(Announcement(number, self.step, operation_id, versions))
        return number

    def insert(self, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows in the fastest way of the database, which returns nothing.

        The values must be of types that the driver itself knows.
        """
        if not rows:
            return
        listed = ", ".join(columns)
        if self.conn.dialect.name != "postgresql":
            marks = ", ".join("?" for _ in columns)
            self.conn.exec_driver_sql(f"INSERT INTO {table.name} ({listed}) VALUES ({marks})", list(rows))
        elif len(rows) < FEW_ROWS:
            self.conn.execute(insert(table), [dict(zip(columns, row, strict=True)) for row in rows])
        else:
            _copy(self.conn, f"COPY {table.name} ({listed}) FROM STDIN", rows)


class Transactions:
    """The transactions of one database. Safe to use from any thread.

    ``after_commit`` is called after each durable write transaction; tests let the process die there.
    ``on_publication`` is called with the fields of each ``Announcement`` of this process once it is durable.
    """

    def __init__(
        self, engine: Engine, clock: Clock, wait_seconds: float, reading: Engine | None = None
    ) -> None:
        self.engine = engine
        self.reading = reading
        """Reads a catalog in SQLite that cannot be written."""
        self.clock = clock
        self.wait_seconds = wait_seconds
        self.is_sqlite = engine.dialect.name == "sqlite"
        if self.is_sqlite:
            event.listen(engine, "begin", _begin)
        if reading is not None:
            event.listen(reading, "begin", _begin)
        # Segments by id, which never change. Limited by the bytes of inline rows and by number.
        self._segments: Cache[int, Segment] = Cache(64 << 20, lambda s: len(s.data or b"") + 1300)
        self._freeing = 0
        self.has_released = False
        """The reserve was released, and there may have been no space to allocate it again."""
        self.after_commit: Callable[[], None] = lambda: None
        self.on_publication: Callable[[int, int, str | None, dict[str, int]], None] = lambda *_: None

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a snapshot of the catalog. Nothing written inside it is kept."""
        with plain_errors():
            conn = self.patiently(self._open_read)
            raw = conn.connection.driver_connection
            try:
                yield conn
            except DBAPIError:
                sqlite_files.check_unchanged(raw)  # changed by another process, not damaged
                raise
            else:
                sqlite_files.check_unchanged(raw)
            finally:
                conn.rollback()
                conn.close()

    @property
    def is_read_only(self) -> bool:
        """Whether this process may not write the catalog's file or create files beside it."""
        return self.is_sqlite and not sqlite_files.is_writable(str(self.engine.url.database))

    @contextlib.contextmanager
    def freeing_space(self) -> Iterator[None]:
        """Let the commits in the block, which free space, use the reserve for a full disk."""
        if not self.is_sqlite or self.is_read_only:
            yield
            return
        file = str(self.engine.url.database)
        sqlite_files.release_reserve(file)
        self._freeing, self.has_released = self._freeing + 1, True
        try:
            yield
        finally:
            self._freeing -= 1
            sqlite_files.keep_reserve(file)

    def _empty_log(self) -> None:
        """Move SQLite's log into the catalog's file, so that the next commit finds space."""
        if self._freeing and sqlite_files.is_short_of_space(str(self.engine.url.database)):
            with contextlib.suppress(DBAPIError), self.engine.connect() as conn:
                driver: Any = conn.connection.driver_connection
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextlib.contextmanager
    def write(self) -> Iterator[Writer]:
        """Open the only write transaction. It is durable when the block ends; an exception rolls it back."""
        with plain_errors():
            with self._begin_write() as conn:
                tx = Writer(conn, self.clock.now())
                yield tx
            self._empty_log()
            self.after_commit()
            for announcement in tx.announced:
                self.on_publication(*announcement)

    @contextlib.contextmanager
    def _begin_write(self) -> Iterator[Connection]:
        self.check_writable()
        conn = self.patiently(self._open_write)
        try:
            yield conn
            check()  # the last point where a cancelled statement has no effect
            with shield():
                conn.commit()
        except BaseException:
            conn.rollback()
            raise
        finally:
            conn.close()

    def check_writable(self) -> None:
        if self.is_read_only:
            raise Unavailable(
                f"the catalog {self.engine.url.database} cannot be written: it is read-only for this process",
                "Reading works here. To change something, open the warehouse where it can be written.",
            )

    def _open_read(self) -> Connection:
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
        conn = engine.connect().execution_options(strandline_segments=self._segments)
        try:
            if not self.is_sqlite:
                conn = conn.execution_options(isolation_level="REPEATABLE READ")
            conn.begin()
            if self.is_sqlite:
                # SQLite takes its snapshot with the first statement, and only that one may have to wait.
                conn.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1")
        except BaseException:
            conn.close()
            raise
        return conn

    def _open_write(self) -> Connection:
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
        """Retry while other writers lock the database: "database is locked" never reaches a user."""
        busy: OperationalError | None = None
        for _ in tries(self.clock, lambda _: random.uniform(0.005, 0.05), seconds=self.wait_seconds):
            try:
                return attempt()
            except OperationalError as error:
                if not _is_busy(error):
                    raise
                busy = error
        raise Unavailable(
            f"the catalog was busy for {self.wait_seconds:.0f} seconds",
            "Look for a process that holds a transaction open on the catalog, then try again.",
        ) from busy


def _copy(conn: Connection, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
    driver: Any = conn.dialect.dbapi
    try:
        with conn.connection.cursor().copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except driver.Error as error:
        # Callers handle the errors of SQLAlchemy.
        lost = conn.dialect.is_disconnect(error, None, None)
        raise DBAPIError.instance(
            statement, None, error, driver.Error, connection_invalidated=lost, dialect=conn.dialect
        ) from error


def _begin(conn: Connection) -> None:
    """Begin a SQLite transaction, because the driver is configured not to."""
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
    """Turn the database driver's errors into Strandline's.

    Errors about a locked database are left as they are, for callers that retry.
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
