"""The connection to the catalog's database: transactions, waiting for other writers, creation and migration.

All writers are serialized. SQLite does it with BEGIN IMMEDIATE, PostgreSQL by locking the one row of
``clock`` first; so a step is always visible before any later one, and a write transaction sees everything
that was committed before it. Readers get a snapshot and never wait.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from strandline.catalog import forking, sqltables, warehouse
from strandline.catalog.ledger import Ledger
from strandline.catalog.warehouse import Warehouse
from strandline.catalog.writer import Announcement, Writer
from strandline.clock import Clock, SystemClock
from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed, StrandlineError, Unavailable
from strandline.lru import Cache
from strandline.model import Segment
from strandline.retry import tries
from strandline.work import check, shielded

HEAD = "0009"
"""The migration that this version of Strandline works with; the last file in ``migrations/versions``."""
LONGEST_PATH = 504
"""How long the path of a file may be for SQLite, in bytes. It fails beyond that and does not say why."""

CONNECT_SECONDS = 4
"""How long to wait for a PostgreSQL server to answer; connect_timeout in the URL says it otherwise."""


class Catalog:
    """A connection pool to one catalog. Safe to use from any thread; one per process and warehouse.

    ``after_commit`` is called after each durable write transaction: the place where a test lets the process
    die. ``on_publication`` is told of each publication that a transaction of this process made, once it is
    durable."""

    def __init__(self, url: str | URL, clock: Clock | None = None, wait_seconds: float = 120.0) -> None:
        self.clock: Clock = clock or SystemClock()
        self.wait_seconds = wait_seconds
        self.engine = _engine(url, wait_seconds)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        # Segments by id, which never change; bounded by the bytes of inline rows and by number.
        self._segments: Cache[int, Segment] = Cache(64 << 20, lambda s: len(s.data or b"") + 1300)
        self.ledger = Ledger()
        self.after_commit: Callable[[], None] = lambda: None
        self.on_publication: Callable[[Announcement], None] = lambda announcement: None

    def open(
        self, location: str | None = None, admit: Callable[[Warehouse | None], None] = lambda found: None
    ) -> Warehouse:
        """Create or migrate the catalog as needed, and return what it says of its warehouse, which is at
        ``location`` if it is a new one.

        ``admit`` is told which warehouse is there (None: none) before anything is changed, and may refuse it.
        It is asked again if the catalog was new, because another process may have been faster."""
        revision = None if self.is_missing else self._patiently(self._revision)
        found = None
        if revision is not None:
            with self.read() as conn:
                found = warehouse.find(conn)
        admit(found)
        if revision != HEAD:
            self._migrate(revision)
        if found is None:
            found = self._patiently(lambda: self._first_rows(location))
            admit(found)
        return found

    @property
    def is_missing(self) -> bool:
        """Whether there is not even a file yet; SQLite would make one to look into it."""
        return self.is_sqlite and not os.path.exists(str(self.engine.url.database))

    def is_inside(self, folder: str) -> bool:
        """Whether the catalog is a file in this very folder, given by its real path."""
        return self.is_sqlite and os.path.dirname(os.path.realpath(str(self.engine.url.database))) == folder

    @property
    def address(self) -> str:
        """The URL, without what is secret in it."""
        return self.engine.url.set(username=None, password=None, query={}).render_as_string()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot of the catalog. Nothing written inside it is kept."""
        with _plain_errors():
            conn = self._patiently(self._open_read)
            try:
                yield conn
            finally:
                conn.rollback()
                conn.close()

    @contextlib.contextmanager
    def write(self) -> Iterator[Writer]:
        """The one write transaction at this moment. All of it is durable when the block ends, or none after
        an exception."""
        with _plain_errors():
            with self._begin_write() as conn:
                tx = Writer(conn, self.clock.now())
                yield tx
            self.after_commit()
            for announcement in tx.announced:
                self.on_publication(announcement)

    @contextlib.contextmanager
    def _begin_write(self) -> Iterator[Connection]:
        conn = self._patiently(self._open_write)
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

    def _open_read(self) -> Connection:
        conn = self.engine.connect().execution_options(strandline_segments=self._segments)
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

    def _patiently(self, attempt: Callable[[], Any]) -> Any:
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

    def _revision(self) -> str | None:
        with _plain_errors(), self.engine.connect() as conn:
            if not inspect(conn).has_table("alembic_version"):
                return None
            row = conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
            return str(row) if row else None

    def _migrate(self, revision: str | None) -> None:
        # Alembic takes a tenth of a second to import, so only a catalog that needs it pays for it.
        from strandline.catalog import migrate

        if revision is not None and not migrate.knows(revision):
            raise PreconditionFailed(
                f"this warehouse was made by a newer version of Strandline (catalog revision {revision}, "
                f"this version knows {HEAD})",
                "Install a newer Strandline: pip install --upgrade strandline.",
            )

        def upgrade() -> None:
            with _plain_errors():
                migrate.upgrade(self.engine)

        self._patiently(upgrade)

    def _first_rows(self, location: str | None) -> Warehouse:
        """The rows that every catalog has. Two processes may come here at once; the second one finds the
        first one's."""
        with (
            _plain_errors(),
            self.engine.connect().execution_options(strandline_write=True) as conn,
            conn.begin(),
        ):
            if not self.is_sqlite:
                conn.execute(text("LOCK TABLE warehouse IN EXCLUSIVE MODE"))
            found = warehouse.find(conn)
            if found is not None:
                return found
            made = Warehouse(uuid.uuid4().hex, location)
            conn.execute(
                insert(sqltables.warehouse).values(id=made.id, created=self.clock.now(), location=location)
            )
            conn.execute(insert(sqltables.clock).values(id=1, step=0, generation=0))
            conn.execute(
                insert(sqltables.paths).values(
                    parent_id=None,
                    name="",
                    type="directory",
                    version=1,
                    state="ready",
                    created_step=0,
                    body="{}",
                )
            )
            return made

    def close(self) -> None:
        self.engine.dispose()


def sqlite_url(file: Path) -> URL:
    # Not as text: a folder's name may have any character in it that means something in a URL.
    return URL.create("sqlite", database=str(file))


def with_password(url: str, password: str) -> str:
    """Return the URL of a catalog with a password in it, unless it has one; what is none is left to whoever
    opens it, to say so."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return url
    return url if parsed.password else parsed.set(password=password).render_as_string(hide_password=False)


def has_password(url: str) -> bool:
    """Return whether the URL of a catalog has a password in it."""
    try:
        return bool(make_url(url).password)
    except ArgumentError:
        return False


def _engine(url: str | URL, wait_seconds: float) -> Engine:
    try:
        str(url).encode()  # What is no text is no address either.
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise InvalidArgument(
                f"a catalog cannot live in {parsed.get_backend_name()}",
                "Use SQLite (the default) or a URL like postgresql+psycopg://user@host/database.",
            )
        if parsed.get_backend_name() == "sqlite":
            if parsed.database in (None, "", ":memory:"):
                raise InvalidArgument(
                    "a catalog in memory would be gone with this process",
                    "Name a file: sqlite:////folder/catalog.sqlite.",
                )
            return _sqlite_engine(str(parsed.database), wait_seconds)
        return _postgresql_engine(parsed, wait_seconds)
    except (
        ArgumentError,
        NoSuchModuleError,
        ValueError,
    ) as error:  # a port that is no number is a ValueError
        shown = re.sub(r"(//[^/@:]*):[^/@]*@", r"\1:***@", str(url))
        raise InvalidArgument(
            f"{shown!r} is not a catalog URL", "Use a URL like postgresql+psycopg://user@host/database."
        ) from error
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the PostgreSQL driver is not installed", "Install it with: pip install 'strandline[postgres]'."
        ) from error


def _postgresql_engine(url: URL, wait_seconds: float) -> Engine:
    # Without a limit nobody hears for minutes that a host does not answer.
    limit = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_SECONDS}
    engine = create_engine(url, pool_pre_ping=True, pool_timeout=wait_seconds, connect_args=limit)
    # Many rows in one statement: sent one by one, each costs the server as much as a statement.
    engine.dialect.use_insertmanyvalues_wo_returning = True

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        # All writers wait for the one that holds the clock. If that one has stopped, it is cut off before
        # they have waited for too long.
        connection.execute(f"SET idle_in_transaction_session_timeout = {int(wait_seconds * 500)}")
        connection.commit()

    return engine


def _sqlite_engine(file: str, wait_seconds: float) -> Engine:
    if len(os.fsencode(os.path.realpath(file))) > LONGEST_PATH:
        raise InvalidArgument(
            f"the path of the catalog {file[:40]!r}... has more than the {LONGEST_PATH} bytes that SQLite "
            "can take",
            "Choose a shorter one, or keep the catalog in PostgreSQL.",
        )
    forking.check_not_inherited(file)
    # The URL object keeps names with spaces, quotes and percent signs intact.
    options = {"timeout": 5.0, "factory": forking.TrackedConnection}
    engine = create_engine(
        make_url("sqlite://").set(database=file), connect_args=options, pool_timeout=wait_seconds
    )
    forking.watch(engine)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        forking.opened(connection, file)
        connection.isolation_level = None  # transactions begin where we say so
        cursor = connection.cursor()
        try:
            cursor.execute("PRAGMA busy_timeout=5000")
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")  # a commit that was reported survives a power cut
        finally:
            cursor.close()

    @event.listens_for(engine, "begin")
    def begin(conn: Connection) -> None:
        write = conn.get_execution_options().get("strandline_write", False)
        conn.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _is_busy(error: OperationalError) -> bool:
    text_ = str(error.orig).lower()
    return "locked" in text_ or "busy" in text_ or "deadlock" in text_ or "could not serialize" in text_


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Turn the database driver's errors into ours; a busy database stays what it is, for those who wait for
    it."""
    try:
        yield
    except OperationalError as error:
        if _is_busy(error):
            raise
        raise Unavailable(
            f"the catalog cannot be used: {_first_line(error)}",
            "Check the catalog's address, rights and free space.",
        ) from error
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
