"""The connection to the catalog's database: how it is found, opened, created and migrated."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, NullPool, create_engine, event, insert, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from strandline.catalog import fork_safety, sqlite_files, sqltables, warehouse, warehouse_settings
from strandline.catalog.metrics_buffer import Ledger
from strandline.catalog.transactions import Transactions, plain_errors
from strandline.catalog.warehouse import Warehouse
from strandline.clock import Clock, SystemClock
from strandline.errors import InvalidArgument, PreconditionFailed, Unavailable

HEAD = "0011"
"""The schema revision of this version of Strandline: the last file in ``migrations/versions``."""
LONGEST_PATH = 504
"""Maximum length of a SQLite file's path, in bytes. SQLite fails beyond it without naming the reason."""

CONNECT_SECONDS = 4
"""Timeout for connecting to a PostgreSQL server; ``connect_timeout`` in the URL overrides it."""


class Catalog(Transactions):
    """A connection pool to one catalog; one per process and warehouse."""

    def __init__(self, url: str | URL, clock: Clock | None = None, wait_seconds: float = 120.0) -> None:
        engine = _engine(url, wait_seconds)
        is_file = engine.dialect.name == "sqlite"
        reading = _reading_engine(str(engine.url.database)) if is_file else None
        super().__init__(engine, clock or SystemClock(), wait_seconds, reading)
        self.ledger = Ledger()

    def open(
        self,
        location: str | None = None,
        admit: Callable[[Warehouse | None], None] = lambda found: None,
        settings: Mapping[str, float] | None = None,
    ) -> Warehouse:
        """Create or migrate the catalog as needed, and return its warehouse.

        A new catalog stores ``location`` and ``settings``.

        ``admit`` is called before anything is changed, with the warehouse of the catalog (None for a new
        catalog), and may refuse it by an error. It is called again if the catalog was new, because another
        process may have created the warehouse in the meantime.
        """
        revision = None if self.is_missing else self._revision()
        found = None
        if revision is not None:
            with self.read() as conn:
                found = warehouse.find(conn)
        admit(found)
        if revision != HEAD:
            self.check_writable()
            self._migrate(revision)
        if found is None:
            found = self.patiently(lambda: self._first_rows(location, settings or {}))
            admit(found)
            if self.is_sqlite:
                sqlite_files.keep_reserve(str(self.engine.url.database))
        return found

    @property
    def is_missing(self) -> bool:
        """Whether the file does not exist yet; SQLite would create it to look into it."""
        return self.is_sqlite and not os.path.exists(str(self.engine.url.database))

    def is_inside(self, folder: str) -> bool:
        """Return whether the catalog is a file directly in this folder, given by its real path."""
        return self.is_sqlite and os.path.dirname(os.path.realpath(str(self.engine.url.database))) == folder

    @property
    def file_name(self) -> str:
        """The file name of a catalog in SQLite, without its folder."""
        return os.path.basename(os.path.realpath(str(self.engine.url.database)))

    @property
    def address(self) -> str:
        """The URL without secrets."""
        return self.engine.url.set(username=None, password=None, query={}).render_as_string()

    def _revision(self) -> str | None:
        with self.read() as conn:
            found = inspect(conn)
            if not found.has_table("alembic_version"):
                # A PostgreSQL database may be shared with other programs, a SQLite file may not.
                if self.is_sqlite and found.get_table_names():
                    raise PreconditionFailed(
                        f"the file {self.engine.url.database} is a database of another program",
                        "Name another folder, or another file as the catalog.",
                    )
                return None
            row = conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
            return str(row) if row else None

    def _migrate(self, revision: str | None) -> None:
        # Importing Alembic is slow, so only do it when a migration is needed.
        from strandline.catalog import migrate

        if revision is not None and not migrate.knows(revision):
            raise PreconditionFailed(
                f"this warehouse was made by a newer version of Strandline (catalog revision {revision}, "
                f"this version knows {HEAD})",
                "Install a newer Strandline: pip install --upgrade strandline.",
            )

        def upgrade() -> None:
            with plain_errors():
                migrate.upgrade(self.engine)

        self.patiently(upgrade)

    def _first_rows(self, location: str | None, settings: Mapping[str, float]) -> Warehouse:
        """Insert the rows that every catalog has, and return the warehouse.

        If two processes do this at once, the second one returns the first one's.
        """
        with (
            plain_errors(),
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
            warehouse_settings.add_first(conn, settings)
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
        if self.reading is not None:
            self.reading.dispose()
        if self.has_released:  # SQLite has deleted its log, which has freed space on the disk.
            sqlite_files.keep_reserve(str(self.engine.url.database))


def sqlite_url(file: Path) -> URL:
    # Not as text: a folder's name may contain characters with a meaning in a URL.
    return URL.create("sqlite", database=str(file))


def with_password(url: str, password: str) -> str:
    """Return the URL of a catalog with this password, unless it already has one.

    Text that is not a URL is returned unchanged; opening it raises the error.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        return url
    return url if parsed.password else parsed.set(password=password).render_as_string(hide_password=False)


def has_password(url: str) -> bool:
    """Return whether the URL of a catalog contains a password."""
    try:
        return bool(make_url(url).password)
    except ArgumentError:
        return False


def _engine(url: str | URL, wait_seconds: float) -> Engine:
    try:
        str(url).encode()  # Text that cannot be encoded is not a URL.
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise InvalidArgument(
                f"a catalog in {parsed.get_backend_name()} is not supported",
                "Use SQLite (the default) or a URL like postgresql+psycopg://user@host/database.",
            )
        if parsed.get_backend_name() == "sqlite":
            if parsed.database in (None, "", ":memory:"):
                raise InvalidArgument(
                    "a catalog in memory would be lost when this process ends",
                    "Name a file: sqlite:////folder/catalog.sqlite.",
                )
            return _sqlite_engine(str(parsed.database), wait_seconds)
        return _postgresql_engine(parsed, wait_seconds)
    except (
        ArgumentError,
        NoSuchModuleError,
        ValueError,
    ) as error:  # a port that is not a number raises ValueError
        shown = re.sub(r"(//[^/@:]*):[^/@]*@", r"\1:***@", str(url))
        raise InvalidArgument(
            f"{shown!r} is not a catalog URL", "Use a URL like postgresql+psycopg://user@host/database."
        ) from error
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the PostgreSQL driver is not installed", "Install it with: pip install 'strandline[postgres]'."
        ) from error


def _postgresql_engine(url: URL, wait_seconds: float) -> Engine:
    # Without a limit it takes minutes to notice that a host does not answer.
    limit = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_SECONDS}
    engine = create_engine(url, pool_pre_ping=True, pool_timeout=wait_seconds, connect_args=limit)
    # Send many rows in one statement: one by one, each costs the server as much as a statement.
    engine.dialect.use_insertmanyvalues_wo_returning = True

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        # All writers wait for the one that holds the clock. If it has stopped, the server cuts it off before
        # the others give up waiting.
        connection.execute(f"SET idle_in_transaction_session_timeout = {int(wait_seconds * 500)}")
        connection.commit()

    return engine


def _reading_engine(file: str) -> Engine:
    """Return an engine for a file that cannot be written.

    Each new connection chooses a way to read it (``sqlite_files``).
    """
    files = sqlite_files.ReadOnlyFiles(file)
    engine = create_engine("sqlite://", creator=files.connect, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        fork_safety.track_connection(connection, file)
        connection.isolation_level = None

    return engine


def _sqlite_engine(file: str, wait_seconds: float) -> Engine:
    if len(os.fsencode(os.path.realpath(file))) > LONGEST_PATH:
        raise InvalidArgument(
            f"the path of the catalog {file[:40]!r}... has more than the {LONGEST_PATH} bytes that SQLite "
            "can take",
            "Choose a shorter one, or keep the catalog in PostgreSQL.",
        )
    fork_safety.check_not_inherited(file)
    # The URL object keeps names with spaces, quotes and percent signs intact.
    options = {"timeout": 5.0, "factory": fork_safety.TrackedConnection}
    engine = create_engine(
        make_url("sqlite://").set(database=file), connect_args=options, pool_timeout=wait_seconds
    )
    fork_safety.watch(engine)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        fork_safety.track_connection(connection, file)
        connection.isolation_level = None  # transactions begin explicitly
        cursor = connection.cursor()
        try:
            cursor.execute("PRAGMA busy_timeout=5000")
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")  # a reported commit survives a power failure
        finally:
            cursor.close()

    return engine
