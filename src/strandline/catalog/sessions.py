"""Sessions: which processes are alive, and which steps they still read.

A session is a connected process that writes files, runs operations or reads for a long time. A thread renews
its lease. When the process dies, the lease expires; if the process ran on this machine, other processes here
also notice that its process id is gone. Then the collector may delete its uncommitted files, it keeps no step
readable any more, and other processes may resume its operations.

A new reader writes nothing to the catalog, because the grace period protects what it reads. The thread
checks regularly for readers that have become old. Well before the grace period is over, it records the
oldest step that they read in the session's row (``reads_from``).

Other processes may consider a process dead that is only slow, or cut off from the catalog. When it continues,
the collector may have removed files that it read or wrote. Two checks keep this harmless:

- A reader learns from the catalog whether missing files were collected (``snapshots.Moments.is_lost_since``).
- The catalog refuses files that were written under an ended session (``find_ended_writer``).
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from strandline.catalog import metrics_buffer, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.transactions import Writer
from strandline.catalog.warehouse_settings import settings_at
from strandline.chunks import chunks
from strandline.errors import AlreadyExists, PathNotFound, StrandlineError
from strandline.settings import SHARED

log = logging.getLogger("strandline")

HOST = socket.gethostname()
_FILE = re.compile(r"data/\d+/([0-9a-f]{16})-")
"""Beginning of the file names that ``Session.file_name`` makes. The group is the session's id."""


_SHORTEST_PAUSE = 0.05
OLD = 4
"""A reader counts as old after ``grace_seconds / OLD``. Then its step is recorded in the catalog.

The thread checks at half this interval, so more than half of the grace period is left to reach the catalog.
"""


@dataclass(frozen=True)
class Reading:
    """A step that this process reads from the time ``since`` until the time ``until``."""

    step: int
    since: float
    until: float = float("inf")


class Session:
    """This process's session on one catalog. Safe to use from any thread.

    The session gets its row in the catalog when it is first needed.
    """

    def __init__(self, catalog: Catalog, lease_seconds: float, grace_seconds: float | None) -> None:
        self.id = _new_id()
        self._catalog = catalog
        self._lease = lease_seconds
        self.grace = SHARED["grace_seconds"] if grace_seconds is None else grace_seconds
        """The warehouse's grace period as this process last read it."""
        self._expires = 0.0
        """When the lease expires; 0 if the session is not stored in the catalog yet."""
        self._reads_from: int | None = None
        """The value of ``reads_from`` in the session's row."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.readers: Callable[[], Iterable[Reading]] = tuple
        """Returns the steps that this process reads now."""
        self._is_warned = False
        self._lent: dict[int, Reading] = {}
        self._reading = threading.Lock()
        """Separate from ``_lock``, so that readers never wait for a write to the catalog."""
        self._counter = 0

    def ensure(self) -> str:
        """Store the session in the catalog, keep it alive, and return its id.

        The session gets a new id if another process has ended it.
        """
        with self._lock:
            if self._catalog.clock.now() >= self._expires:
                self._extend()
            session_id = self.id
        self.watch()
        return session_id

    @property
    def is_held(self) -> bool:
        """Whether the lease is valid, so that other processes consider this process alive."""
        return self._catalog.clock.now() < self._expires

    def file_name(self, table_id: int) -> str:
        """Return a new name (without extension) for files of a table.

        It contains the session's id, which protects the files until a commit refers to them.
        """
        session_id = self.ensure()
        with self._lock:
            self._counter += 1
            return f"data/{table_id}/{session_id}-{self._counter}"

    def confirm(self) -> None:
        """Start a new session if another process has ended this one.

        No more files may be written under the id of an ended session.
        """
        with self._lock:
            if self._expires:
                with self._catalog.read() as conn:
                    ended = self.id not in all_sessions(conn)
                if ended:
                    self._extend()

    def has_ended(self, conn: Connection, session_id: str) -> bool:
        """Return whether another process has ended a session of this process.

        Args:
            session_id: the id of this session at an earlier time.
        """
        return session_id != self.id or (self._expires > 0.0 and session_id not in all_sessions(conn))

    def lend(self, step: int, since: float, seconds: float) -> None:
        """Keep ``step`` readable for some seconds, for readers outside this process.

        Args:
            since: a time at which ``step`` was the last step; the grace period begins at this time. 0:
                ``step`` was already in the past, so no grace period protects it.
        """
        until = self._catalog.clock.now() + seconds
        with self._reading:
            known = self._lent.get(step, Reading(step, since, until))
            self._lent[step] = Reading(step, min(known.since, since), max(known.until, until))
        self.watch(at_once=self._is_old(since))

    def watch(self, *, at_once: bool = False) -> None:
        """Start the thread that checks for old readers, if it is not running.

        Args:
            at_once: let the thread check now, because there is an old reader already.
        """
        with self._reading:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._renew, name="strandline-session", daemon=True)
                self._thread.start()
        if at_once:
            self._wake.set()

    def _renew(self) -> None:
        tell_at = time.monotonic() + self._pause
        while True:
            pause = self._pause
            self._wake.wait(pause)
            self._wake.clear()
            if self._is_closed:
                return
            try:
                self.refresh()
                if time.monotonic() >= tell_at:  # not if the thread was only woken early for a reader
                    tell_at = time.monotonic() + pause
                    self.tell()
            except Exception as error:  # The catalog may be reachable again before the lease expires.
                log.warning("the session could not be renewed: %s", error)

    @property
    def _pause(self) -> float:
        return max(_SHORTEST_PAUSE, min(self._lease / 4, self.grace / OLD / 2 or self._lease))

    def refresh(self) -> None:
        """Renew the session's lease and record the oldest step that old readers read, as needed."""
        with self._lock:
            with self._catalog.read() as conn:
                # Another process may have changed the grace period since this one connected.
                self.grace = settings_at(conn, self._catalog.clock.now()).grace_seconds
            if self._is_due():
                if self._catalog.database.is_read_only:
                    self.warn_of_silence()
                    return
                self._extend()

    def warn_of_silence(self) -> None:
        """Warn once that this process cannot record which steps it reads: the catalog is read-only here."""
        if not self._is_warned:
            self._is_warned = True
            log.warning(
                "the catalog is read-only here, so other processes cannot see what this one reads: files "
                "that they remove from a table stay readable for the grace period only, %g seconds",
                self.grace,
            )

    def _is_due(self) -> bool:
        """Return whether the session's row must be created, renewed or changed."""
        late = 0.0 < self._expires <= self._catalog.clock.now() + 0.75 * self._lease
        return late or self._oldest() != self._reads_from

    def _oldest(self) -> int | None:
        """Return the oldest step that an old reader reads. None: there are no old readers."""
        now = self._catalog.clock.now()
        with self._reading:
            self._lent = {step: reading for step, reading in self._lent.items() if reading.until > now}
            lent = [*self._lent.values()]
        found = [*self.readers(), *lent]
        return min((reading.step for reading in found if self._is_old(reading.since)), default=None)

    def _is_old(self, since: float) -> bool:
        return since <= self._catalog.clock.now() - self.grace / OLD

    def _extend(self) -> None:
        with self._catalog.write() as tx:
            reads_from = self._oldest()  # read now, after waiting for other writers
            now = self._catalog.clock.now()
            until = now + self._lease
            renewed = (
                update(sqltables.sessions)
                .where(sqltables.sessions.c.id == self.id)
                .values(expires=until, reads_from=reads_from, seen=now)
            )
            if tx.conn.execute(renewed).rowcount == 0:
                if self._expires:
                    self.id = _new_id()  # Its files may be gone, so its id must not be used any more.
                new = {"id": self.id, "host": HOST, "pid": os.getpid(), "expires": until, "seen": now}
                tx.conn.execute(insert(sqltables.sessions).values(**new, reads_from=reads_from))
        self._expires, self._reads_from = until, reads_from

    def tell(self, *, ends: bool = False) -> None:
        """Write the buffered counters and notices to the catalog.

        Args:
            ends: also delete the session from the catalog.
        """
        untold = self._catalog.ledger
        if self._catalog.database.is_read_only:
            return
        if not (any(untold.news()) or ends):
            return
        with contextlib.ExitStack() as until_settled:
            with self._catalog.write() as tx:
                until_settled.enter_context(untold.lock)
                news = untold.news()
                metrics_buffer.tell(tx, self.id, news)
                if ends:
                    end(tx, [self.id])
            untold.settle(news)

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        with contextlib.suppress(StrandlineError):
            self.tell(ends=self._expires > 0.0)


def this_process() -> str:
    """Return the name of this process for display: host and process id."""
    return f"{HOST}:{os.getpid()}"


def this_user() -> str:
    """Return the user and the process for display."""
    try:
        return f"{getpass.getuser()} ({this_process()})"
    except (KeyError, OSError, ImportError):
        return this_process()  # A container may run as a user without a name.


def _new_id() -> str:
    return uuid.uuid4().hex[:16]


def writer_of(file: str) -> str | None:
    """Return the id of the session that made a file name. None: no session made it."""
    found = _FILE.match(file)
    return found[1] if found else None


def find_ended_writer(conn: Connection, files: Iterable[str]) -> str | None:
    """Return the first file whose session has ended. None: there is no such file.

    The collector may have deleted the file of an ended session.
    """
    writers = {writer: file for file in files if (writer := writer_of(file)) is not None}
    known: set[str] = set()
    for chunk in chunks(writers):
        known |= set(
            conn.execute(select(sqltables.sessions.c.id).where(sqltables.sessions.c.id.in_(chunk))).scalars()
        )
    return next((file for writer, file in writers.items() if writer not in known), None)


def all_sessions(conn: Connection) -> set[str]:
    """Return the ids of sessions that have not ended."""
    return set(conn.execute(select(sqltables.sessions.c.id)).scalars())


def live_sessions(conn: Connection, now: float) -> set[str]:
    """Return the ids of sessions whose process is alive, as far as this machine can tell."""
    return {row.id for row in conn.execute(select(sqltables.sessions)) if is_live(row, now)}


def is_live(row: Row[Any], now: float) -> bool:
    """Return whether the process of a session is alive, as far as this machine can tell."""
    return bool(row.expires > now and not _is_known_dead(row.host, row.pid))


def end(tx: Writer, ids: Iterable[str]) -> None:
    for chunk in chunks(ids):
        tx.conn.execute(delete(sqltables.sessions).where(sqltables.sessions.c.id.in_(chunk)))


def end_dead(tx: Writer) -> None:
    """Delete sessions whose process is dead."""
    live = live_sessions(tx.conn, tx.now)
    end(tx, [i for i in tx.conn.execute(select(sqltables.sessions.c.id)).scalars() if i not in live])


def oldest_read(conn: Connection) -> int | None:
    """Return the oldest step that a session has recorded as read. None: no session has recorded a step."""
    step: int | None = conn.execute(select(func.min(sqltables.sessions.c.reads_from))).scalar_one()
    return step


def promise(tx: Writer, step: int, seconds: float) -> None:
    """Keep ``step`` readable for some seconds, for readers in processes without a session.

    The promise is stored as a session without a process. This session ends after these seconds.
    """
    until = max(promised_until(tx.conn, step), tx.now + seconds)
    end(tx, [_promise_of(step)])
    row = {"id": _promise_of(step), "host": "", "pid": 0, "expires": until, "reads_from": step}
    tx.conn.execute(insert(sqltables.sessions).values(**row))


def promised_until(conn: Connection, step: int) -> float:
    """Return the time until which ``step`` was promised to stay readable. 0: there is no promise."""
    until: float | None = conn.execute(
        select(sqltables.sessions.c.expires).where(sqltables.sessions.c.id == _promise_of(step))
    ).scalar_one_or_none()
    return until or 0.0


def _promise_of(step: int) -> str:
    return f"reads-{step}"


def oldest_pin(conn: Connection) -> int | None:
    """Return the oldest step that a pin keeps. None: there are no pins."""
    step: int | None = conn.execute(select(func.min(sqltables.pins.c.step))).scalar_one()
    return step


def add_pin(tx: Writer, name: str, step: int) -> None:
    """Keep the state at ``step`` readable until the named pin is removed."""
    if (
        tx.conn.execute(select(sqltables.pins.c.id).where(sqltables.pins.c.name == name)).one_or_none()
        is not None
    ):
        raise AlreadyExists(
            f"there is already a pin {name!r}", "Remove it with db.unpin(name), or choose another name."
        )
    tx.conn.execute(insert(sqltables.pins).values(name=name, step=step))


def list_named_pins(conn: Connection) -> dict[str, int]:
    """Return the steps of the named pins, by name."""
    return {row.name: row.step for row in conn.execute(select(sqltables.pins))}


def remove_pin(tx: Writer, name: str) -> None:
    if tx.conn.execute(delete(sqltables.pins).where(sqltables.pins.c.name == name)).rowcount == 0:
        raise PathNotFound(f"there is no pin {name!r}", "List the pins with db.pins().")


def _is_known_dead(host: str, pid: int) -> bool:
    if host != HOST:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
