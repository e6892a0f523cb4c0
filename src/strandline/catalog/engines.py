"""The SQLAlchemy engines of a catalog, and the URLs that name its database."""

from __future__ import annotations

import math
import os
import re
import select
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, NullPool, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError

from strandline.catalog import fork_safety, sqlite_files
from strandline.errors import InvalidArgument, Unavailable

LONGEST_PATH = 504
"""Maximum length of a SQLite file's path, in bytes. For a longer path, SQLite's error names no reason."""

PING_SECONDS = 5.0
"""Idle time after which a connection is pinged before it is used."""

CONNECT_SECONDS = 4
"""Timeout for connecting to a PostgreSQL server; ``connect_timeout`` in the URL overrides it."""


def sqlite_url(file: Path) -> URL:
    # Not built as text, because a folder's name may contain special characters of URLs.
    return URL.create("sqlite", database=str(file))


def with_password(url: str, password: str) -> str:
    """Return the URL of a catalog with this password, unless it already has one.

    Text that is not a URL is returned unchanged; opening the catalog then raises the error.
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


def engine_at(url: str | URL, wait_seconds: float) -> Engine:
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
    # Without a timeout, it takes minutes to notice that a host does not answer.
    limit = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_SECONDS}
    engine = create_engine(url, pool_timeout=wait_seconds, connect_args=limit)
    # Send many rows in one statement: sent one by one, each row costs the server as much as a statement.
    engine.dialect.use_insertmanyvalues_wo_returning = True

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        # All writers wait for the one that has locked the clock. If its process hangs, the server closes its
        # connection before the other writers time out.
        connection.execute(f"SET idle_in_transaction_session_timeout = {int(wait_seconds * 500)}")
        connection.commit()

    @event.listens_for(engine, "checkin")
    def note_time(_: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def check_alive(connection: Any, record: Any, _: Any) -> None:
        # A ping is a round trip. Ping only if the connection was idle for long or the server has closed it.
        idle = time.monotonic() - record.info.get("idle_since", math.inf)
        if idle >= PING_SECONDS or _has_input(connection):
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise DisconnectionError from error  # The pool opens another connection.

    return engine


def _has_input(connection: Any) -> bool:
    """Return whether the connection has unread input, which the server sends when it closes a connection."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def reading_engine(file: str) -> Engine:
    """Return an engine for a SQLite file that this process cannot write.

    Each new connection chooses how to read the file (``sqlite_files``).
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
