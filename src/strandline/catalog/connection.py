"""A catalog: open it, create or migrate it, and begin its transactions."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping

from sqlalchemy import URL, Connection, insert, inspect, text
from sqlalchemy.exc import DBAPIError

from strandline.cancellation import check, shield
from strandline.catalog import sqlite_files, sqltables, warehouse, warehouse_settings
from strandline.catalog.chain_cache import ChainCache
from strandline.catalog.database import CatalogDatabase, plain_errors
from strandline.catalog.metrics_buffer import Ledger
from strandline.catalog.transactions import Writer
from strandline.catalog.warehouse import Warehouse
from strandline.clock import Clock, SystemClock
from strandline.errors import PreconditionFailed

HEAD = "0016"
"""The schema revision of this version of Strandline: the last file in ``migrations/versions``."""


class Catalog:
    """A catalog as one process uses it. Safe to use from any thread.

    Attributes:
        after_commit: called after each durable write transaction. Tests let the process die there.
        on_publication: called with the fields of each ``Announcement`` of this process once it is durable.
    """

    def __init__(self, url: str | URL, clock: Clock | None = None, wait_seconds: float = 120.0) -> None:
        self.clock = clock or SystemClock()
        self.database = CatalogDatabase(url, self.clock, wait_seconds)
        self.ledger = Ledger()
        self._chains = ChainCache()
        self.after_commit: Callable[[], None] = lambda: None
        self.on_publication: Callable[[int, int, str | None, dict[str, int]], None] = lambda *_: None

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a read transaction on a snapshot of the catalog. Anything written in it is rolled back."""
        with plain_errors():
            conn = self.database.patiently(self.database.open_read)
            conn = conn.execution_options(strandline_chains=self._chains)
            raw = conn.connection.driver_connection
            try:
                yield conn
            except DBAPIError:
                sqlite_files.check_unchanged(raw)  # A file that another process has changed is not damaged.
                raise
            else:
                sqlite_files.check_unchanged(raw)
            finally:
                conn.rollback()
                conn.close()

    @contextlib.contextmanager
    def write(self) -> Iterator[Writer]:
        """Open a write transaction; there is one at a time.

        The transaction is durable when the ``with`` block ends. An exception rolls it back.
        """
        with plain_errors():
            with self._begin_write() as conn:
                tx = Writer(conn, self.clock.now())
                yield tx
            self.database.empty_log()
            self.after_commit()
            for announcement in tx.announced:
                self.on_publication(*announcement)

    @contextlib.contextmanager
    def _begin_write(self) -> Iterator[Connection]:
        self.database.check_writable()
        with self.database.turn() as has_begun:
            conn = self.database.patiently(self.database.open_write)
            try:
                has_begun()
                yield conn
                check()  # the last point where a cancelled statement has no effect
                with shield():
                    conn.commit()
            except BaseException:
                conn.rollback()
                raise
            finally:
                conn.close()

    def open(
        self,
        location: str | None = None,
        admit: Callable[[Warehouse | None], None] = lambda found: None,
        settings: Mapping[str, float] | None = None,
    ) -> Warehouse:
        """Create or migrate the catalog as needed, and return its warehouse.

        Args:
            location: the folder of the warehouse, stored in a new catalog.
            admit: called with the warehouse of the catalog (None for a new catalog) before anything is
                changed; may raise an error to refuse the catalog. For a new catalog it is called again after
                the creation, because another process may have created the warehouse in the meantime.
            settings: the settings to store in a new catalog.
        """
        revision = None if self.database.is_missing else self._revision()
        found = None
        if revision is not None:
            with self.read() as conn:
                found = warehouse.find(conn)
        admit(found)
        if revision != HEAD:
            self.database.check_writable()
            self._migrate(revision)
        if found is None:
            found = self.database.patiently(lambda: self._first_rows(location, settings or {}))
            admit(found)
            if self.database.is_sqlite:
                sqlite_files.keep_reserve(self.database.file)
        return found

    def _revision(self) -> str | None:
        with self.read() as conn:
            found = inspect(conn)
            if not found.has_table("alembic_version"):
                # A PostgreSQL database may be shared with other programs, a SQLite file may not.
                if self.database.is_sqlite and found.get_table_names():
                    raise PreconditionFailed(
                        f"the file {self.database.file} is a database of another program",
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
                migrate.upgrade(self.database.engine)

        self.database.patiently(upgrade)

    def _first_rows(self, location: str | None, settings: Mapping[str, float]) -> Warehouse:
        """Insert the rows that every catalog has, and return the warehouse.

        If two processes do this at once, the second process returns the warehouse of the first.
        """
        with (
            plain_errors(),
            self.database.engine.connect().execution_options(strandline_write=True) as conn,
            conn.begin(),
        ):
            if not self.database.is_sqlite:
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
        self.database.close()
