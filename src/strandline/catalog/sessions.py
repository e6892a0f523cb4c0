"""Sessions: which processes are alive, and which steps they still read.

A session is a connected process that writes files, runs operations or reads for long. Its lease is renewed
by a thread; when the process dies the lease runs out (at once, if it ran on this machine and its process id
is gone), and what it held is free: its files without a commit are orphans, what it read no longer counts, its
operations may be resumed by others.

Whoever reads writes nothing: what he has begun to read is kept by the grace period. The thread looks now and
then whether a reader has become old, and says in the session's row, long before the grace period is over,
which is the oldest step that is still read (``reads_from``).

A process that was only thought dead, because it slept or could not reach the catalog, must not do harm when
it comes back: what it read, and what it wrote, may have been collected. What is missing to a reader then is
told by the catalog (``moment.Moments.lost_since``); files that an ended session has named are refused
(``ended_writer``).
"""

from __future__ import annotations

import contextlib
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

from strandline.catalog import ledger, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.warehouse_settings import settings_at
from strandline.catalog.writer import Writer
from strandline.chunks import chunks
from strandline.errors import AlreadyExists, PathNotFound, StrandlineError
from strandline.settings import SHARED

log = logging.getLogger("strandline")

HOST = socket.gethostname()
_FILE = re.compile(r"data/\d+/([0-9a-f]{16})-")
"""The beginning of every file name that a session gave out."""


_SHORTEST_PAUSE = 0.05
OLD = 4
"""A reader is said to be there when it is older than one part in so many of the grace period. The thread
looks twice as often, so it has more than half of the grace period left in which to reach the catalog."""


@dataclass(frozen=True)
class Reading:
    """Somebody of this process reads a step, since a time and perhaps until one."""

    step: int
    since: float
    until: float = float("inf")


class Session:
    """This process's session on one catalog. Made durable lazily, by the first thing that needs it. Safe to
    use from any thread."""

    def __init__(self, catalog: Catalog, lease_seconds: float, grace_seconds: float | None) -> None:
        self.id = _new_id()
        self._catalog = catalog
        self._lease = lease_seconds
        self.grace = SHARED["grace_seconds"] if grace_seconds is None else grace_seconds
        """The grace period of the warehouse, as far as this process knows."""
        self._expires = 0.0
        """When the lease runs out; 0 if the catalog does not know of the session yet."""
        self._reads_from: int | None = None
        """What the session's row says."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.readers: Callable[[], Iterable[Reading]] = tuple
        """Who of this process reads now."""
        self._is_warned = False
        self._lent: dict[int, Reading] = {}
        self._reading = threading.Lock()
        """Its own: nobody who reads waits for the catalog to be written."""
        self._counter = 0

    def ensure(self) -> str:
        """Make the session durable and keep it alive, and return its id, which is a new one if others took
        the old one for dead."""
        with self._lock:
            if self._catalog.clock.now() >= self._expires:
                self._extend()
            session_id = self.id
        self.watch()
        return session_id

    @property
    def is_held(self) -> bool:
        """Whether the lease has not run out, so that other processes take this one for alive."""
        return self._catalog.clock.now() < self._expires

    def file_name(self, table_id: int) -> str:
        """Return a fresh name (without extension) for files of a table; it tells whose they are until a
        commit refers to them."""
        session_id = self.ensure()
        with self._lock:
            self._counter += 1
            return f"data/{table_id}/{session_id}-{self._counter}"

    def confirm(self) -> None:
        """Begin another session if others have ended this one: nothing more may be written in its name."""
        with self._lock:
            if self._expires:
                with self._catalog.read() as conn:
                    ended = self.id not in all_sessions(conn)
                if ended:
                    self._extend()

    def has_ended(self, conn: Connection, session_id: str) -> bool:
        """Return whether others have ended the session that this process had under an id."""
        return session_id != self.id or (self._expires > 0.0 and session_id not in all_sessions(conn))

    def lend(self, step: int, since: float, seconds: float) -> None:
        """Keep ``step`` readable for so long, for those who read out of this process's sight. It was the last
        step at the time ``since``, so that the grace period covers the first while; 0 if none does."""
        until = self._catalog.clock.now() + seconds
        with self._reading:
            known = self._lent.get(step, Reading(step, since, until))
            self._lent[step] = Reading(step, min(known.since, since), max(known.until, until))
        self.watch(at_once=self._is_old(since))

    def watch(self, *, at_once: bool = False) -> None:
        """Look from now on whether a reader has become old; ``at_once`` if there is one that is."""
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
                if time.monotonic() >= tell_at:  # It may have been woken for a reader, which is urgent.
                    tell_at = time.monotonic() + pause
                    self.tell()
            except (
                Exception
            ) as error:  # A catalog that cannot be reached now may be reached in time for the lease.
                log.warning("the session could not be renewed: %s", error)

    @property
    def _pause(self) -> float:
        return max(_SHORTEST_PAUSE, min(self._lease / 4, self.grace / OLD / 2 or self._lease))

    def refresh(self) -> None:
        """Let the session's row say what this process reads now, not what it read when its thread last
        looked."""
        with self._lock:
            with self._catalog.read() as conn:
                # Others may have changed it since this process connected.
                self.grace = settings_at(conn, self._catalog.clock.now()).grace_seconds
            if self._is_due():
                if self._catalog.is_read_only:
                    self.warn_of_silence()
                    return
                self._extend()

    def warn_of_silence(self) -> None:
        """Say once that a catalog that is read-only here does not learn who reads."""
        if not self._is_warned:
            self._is_warned = True
            log.warning(
                "the catalog is read-only here, so no other process knows what this one reads: files that "
                "leave a table elsewhere stay readable for the grace period only, %g seconds",
                self.grace,
            )

    def _is_due(self) -> bool:
        """Return whether the session's row should say something else, or should be there at all."""
        late = 0.0 < self._expires <= self._catalog.clock.now() + 0.75 * self._lease
        return late or self._oldest() != self._reads_from

    def _oldest(self) -> int | None:
        """Return the oldest step that a reader looks at who has done so for a while."""
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
            reads_from = self._oldest()  # Now, not before it has waited for other writers.
            now = self._catalog.clock.now()
            until = now + self._lease
            renewed = (
                update(sqltables.sessions)
                .where(sqltables.sessions.c.id == self.id)
                .values(expires=until, reads_from=reads_from, seen=now)
            )
            if tx.conn.execute(renewed).rowcount == 0:
                if self._expires:
                    self.id = _new_id()  # Its files may be gone, so nothing may happen in its name any more.
                new = {"id": self.id, "host": HOST, "pid": os.getpid(), "expires": until, "seen": now}
                tx.conn.execute(insert(sqltables.sessions).values(**new, reads_from=reads_from))
        self._expires, self._reads_from = until, reads_from

    def tell(self, *, ends: bool = False) -> None:
        """Write what this process has counted and noticed, if there is anything; and that it ``ends``."""
        untold = self._catalog.ledger
        if self._catalog.is_read_only:
            return
        if not (any(untold.news()) or ends):
            return
        with contextlib.ExitStack() as until_settled:
            with self._catalog.write() as tx:
                until_settled.enter_context(untold.lock)
                news = untold.news()
                ledger.tell(tx, self.id, news)
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
    """Return the name of this process, as people see it."""
    return f"{HOST}:{os.getpid()}"


def _new_id() -> str:
    return uuid.uuid4().hex[:16]


def writer_of(file: str) -> str | None:
    """Return the session that gave out a file's name."""
    found = _FILE.match(file)
    return found[1] if found else None


def ended_writer(conn: Connection, files: Iterable[str]) -> str | None:
    """Return the first of the files whose writer's session has ended, so that the file may have been
    collected."""
    writers = {writer: file for file in files if (writer := writer_of(file)) is not None}
    known: set[str] = set()
    for chunk in chunks(writers):
        known |= set(
            conn.execute(select(sqltables.sessions.c.id).where(sqltables.sessions.c.id.in_(chunk))).scalars()
        )
    return next((file for writer, file in writers.items() if writer not in known), None)


def all_sessions(conn: Connection) -> set[str]:
    """Return ids of the sessions that have not ended."""
    return set(conn.execute(select(sqltables.sessions.c.id)).scalars())


def live_sessions(conn: Connection, now: float) -> set[str]:
    """Return ids of the sessions whose process is alive, as far as can be told from here."""
    return {row.id for row in conn.execute(select(sqltables.sessions)) if is_live(row, now)}


def is_live(row: Row[Any], now: float) -> bool:
    """Return whether the process of a session is alive, as far as can be told from here."""
    return bool(row.expires > now and not _known_dead(row.host, row.pid))


def end(tx: Writer, ids: Iterable[str]) -> None:
    for chunk in chunks(ids):
        tx.conn.execute(delete(sqltables.sessions).where(sqltables.sessions.c.id.in_(chunk)))


def end_dead(tx: Writer) -> None:
    """Forget sessions that are over."""
    live = live_sessions(tx.conn, tx.now)
    end(tx, [i for i in tx.conn.execute(select(sqltables.sessions.c.id)).scalars() if i not in live])


def oldest_read(conn: Connection) -> int | None:
    """Return the oldest step that a session says it reads; None if none does."""
    step: int | None = conn.execute(select(func.min(sqltables.sessions.c.reads_from))).scalar_one()
    return step


def promise(tx: Writer, step: int, seconds: float) -> None:
    """Keep ``step`` readable for so long, for those who read it in processes that have no session. What is
    promised is a session as well: one of no process, which ends when its time is over."""
    until = max(promised(tx.conn, step), tx.now + seconds)
    end(tx, [_promise_of(step)])
    row = {"id": _promise_of(step), "host": "", "pid": 0, "expires": until, "reads_from": step}
    tx.conn.execute(insert(sqltables.sessions).values(**row))


def promised(conn: Connection, step: int) -> float:
    """Return until when a step was promised to be readable; 0 if it was not."""
    until: float | None = conn.execute(
        select(sqltables.sessions.c.expires).where(sqltables.sessions.c.id == _promise_of(step))
    ).scalar_one_or_none()
    return until or 0.0


def _promise_of(step: int) -> str:
    return f"reads-{step}"


def oldest_pin(conn: Connection) -> int | None:
    """Return the oldest step that a pin keeps; None if there is none."""
    step: int | None = conn.execute(select(func.min(sqltables.pins.c.step))).scalar_one()
    return step


def add_pin(tx: Writer, name: str, step: int) -> None:
    """A named pin keeps the state at ``step`` readable until it is removed."""
    if (
        tx.conn.execute(select(sqltables.pins.c.id).where(sqltables.pins.c.name == name)).one_or_none()
        is not None
    ):
        raise AlreadyExists(
            f"there is already a pin {name!r}", "Remove it with db.unpin(name), or choose another name."
        )
    tx.conn.execute(insert(sqltables.pins).values(name=name, step=step))


def named_pins(conn: Connection) -> dict[str, int]:
    """Return the named pins and the steps that they keep."""
    return {row.name: row.step for row in conn.execute(select(sqltables.pins))}


def remove_pin(tx: Writer, name: str) -> None:
    if tx.conn.execute(delete(sqltables.pins).where(sqltables.pins.c.name == name)).rowcount == 0:
        raise PathNotFound(f"there is no pin {name!r}", "List the pins with db.pins().")


def _known_dead(host: str, pid: int) -> bool:
    if host != HOST:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
