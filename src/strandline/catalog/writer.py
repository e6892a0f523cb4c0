"""The transactions of a catalog: snapshots to read, and the one write transaction at a moment.

Whatever changes the catalog takes a ``Writer``, whatever only looks takes a connection, which a writer has as
well. So a function says by what it takes whether it may change anything.

All writers are serialized. SQLite does it with BEGIN IMMEDIATE, PostgreSQL by locking the one row of
``clock`` first; so a step is always visible before any later one, and a write transaction sees everything
that was committed before it. Readers get a snapshot and never wait.
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

from strandline.catalog import sqlite_files, sqltables
from strandline.clock import Clock
from strandline.errors import Corrupted, PreconditionFailed, StrandlineError, Unavailable
from strandline.lru import Cache
from strandline.model import Segment
from strandline.retry import tries
from strandline.work import check, shielded

# Built once: SQLAlchemy takes longer to build a statement than SQLite to answer it.
_NEXT = {
    column.name: update(sqltables.clock)
    .where(sqltables.clock.c.id == 1)
    .values({column: column + 1})
    .returning(column)
    for column in (sqltables.clock.c.step, sqltables.clock.c.generation)
}
_STEP = select(sqltables.clock.c.step).where(sqltables.clock.c.id == 1)

FEW_ROWS = 50
"""Fewer rows than these go into a table in a statement as usual."""


STEPS_PER_SECOND = 2**20
"""No warehouse commits faster."""


def latest_step(now: float) -> int:
    """Return the step up to which the clock of another warehouse is believed. Without a limit, one forged
    number could bring the clock to its end, and nothing could be committed any more. The limit grows faster
    than any warehouse commits, so what is backed up after such a number is believed as well."""
    return STEPS_PER_SECOND * max(int(now), 2**30)


def current_step(conn: Connection) -> int:
    """Return the step of the last commit."""
    return int(conn.execute(_STEP).scalar_one())


class Told(NamedTuple):
    """A path that is announced; there may be very many of them."""

    path_id: int
    path: str
    version: int
    dropped: bool


class Announcement(NamedTuple):
    """What one transaction published under one generation, and the operation that it was for, if any."""

    generation: int
    step: int
    operation_id: str | None
    versions: dict[str, int]


@dataclass
class Writer:
    """``now`` is the time when it began: nobody else has written since, so it is not before what it sees was
    committed. ``announced`` is what will be told when it is durable."""

    conn: Connection
    now: float
    announced: list[Announcement] = field(default_factory=list)
    _step: int | None = None

    @property
    def step(self) -> int:
        """The step at which all that it does becomes real, the next one of the commit clock; it is taken by
        the first who needs it."""
        if self._step is None:
            self._step = int(self.conn.execute(_NEXT["step"]).scalar_one())
        return self._step

    def skip_to(self, step: int) -> None:
        """Let its step, which nobody may have asked for yet, be later than ``step``: that of another
        warehouse, some of whose changes come here."""
        if step > latest_step(self.now):
            raise PreconditionFailed(
                f"the step {step} is later than any that a warehouse can have come to by now",
                "Its backup was changed, or the clock of this machine is wrong.",
            )
        at = sqltables.clock.c
        self.conn.execute(update(sqltables.clock).where(at.id == 1, at.step < step).values(step=step))

    def announce(self, told: Sequence[Told], operation_id: str | None = None) -> int:
        """Tell the caches of all processes of paths whose descriptions are recorded, or that are gone: all of
        them under one generation, which is returned."""
        number = int(self.conn.execute(_NEXT["generation"]).scalar_one())
        columns = ("generation", "path_id", "path", "version", "dropped", "time", "step", "operation_id")
        rows = [(number, *each, self.now, self.step, operation_id) for each in told]
        self.insert(sqltables.board, columns, rows)
        versions = {path: version for _, path, version, _ in told}
        self.announced.append(Announcement(number, self.step, operation_id, versions))
        return number

    def insert(self, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows by the thousand, of which nothing is told back: in the way in which the database takes them
        fastest. Their values are such as the driver itself knows."""
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
    """Those of one database. Safe to use from any thread.

    ``after_commit`` is called after each durable write transaction: the place where a test lets the process
    die. ``on_publication`` is told of each publication that a transaction of this process made, once it is
    durable: all that an ``Announcement`` says."""

    def __init__(
        self, engine: Engine, clock: Clock, wait_seconds: float, reading: Engine | None = None
    ) -> None:
        self.engine = engine
        self.reading = reading
        """Of a catalog in SQLite: reads it where it cannot be written."""
        self.clock = clock
        self.wait_seconds = wait_seconds
        self.is_sqlite = engine.dialect.name == "sqlite"
        if self.is_sqlite:
            event.listen(engine, "begin", _begin)
        if reading is not None:
            event.listen(reading, "begin", _begin)
        # Segments by id, which never change; bounded by the bytes of inline rows and by number.
        self._segments: Cache[int, Segment] = Cache(64 << 20, lambda s: len(s.data or b"") + 1300)
        self._freeing = 0
        self.has_released = False
        """The reserve was given back, and perhaps there was no space yet to keep it again."""
        self.after_commit: Callable[[], None] = lambda: None
        self.on_publication: Callable[[int, int, str | None, dict[str, int]], None] = lambda *_: None

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot of the catalog. Nothing written inside it is kept."""
        with plain_errors():
            conn = self.patiently(self._open_read)
            raw = conn.connection.driver_connection
            try:
                yield conn
            except DBAPIError:
                sqlite_files.check_unchanged(raw)  # If another process has changed it, nothing is damaged.
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
        """What is committed in the block frees space, so it may use what is kept for a full disk."""
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
        """Take the log of a catalog in SQLite into its file, so that the next commit finds its space."""
        if self._freeing and sqlite_files.is_short_of_space(str(self.engine.url.database)):
            with contextlib.suppress(DBAPIError), self.engine.connect() as conn:
                driver: Any = conn.connection.driver_connection
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextlib.contextmanager
    def write(self) -> Iterator[Writer]:
        """The one write transaction at this moment. All of it is durable when the block ends, or none after
        an exception."""
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
            check()  # The last moment at which nothing has happened.
            with shielded():
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
            # To read, SQLite needs space for the index of the log.
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
        """Try until other writers let us in: "database is locked" never reaches a user."""
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
        # Whoever waits for the catalog knows the errors of SQLAlchemy.
        lost = conn.dialect.is_disconnect(error, None, None)
        raise DBAPIError.instance(
            statement, None, error, driver.Error, connection_invalidated=lost, dialect=conn.dialect
        ) from error


def _begin(conn: Connection) -> None:
    """Begin a transaction of SQLite, whose driver is told not to do it by itself."""
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
    """Turn the database driver's errors into ours; a busy database stays what it is, for those who wait for
    it."""
    try:
        yield
    except OperationalError as error:
        if _is_busy(error):
            raise
        hint = "Check the catalog's address, rights and free space."
        if _has_no_space(error):
            hint += " On a full disk DROP, PRUNE and db.maintain() still work, and free space."
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
