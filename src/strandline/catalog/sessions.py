"""Sessions: which processes are alive, and which steps they still read.

A session is a connected process that writes files, reads snapshots or runs operations. Its lease is renewed by a thread; when the
process dies the lease runs out (at once, if it ran on this machine and its process id is gone), and what it held is free: its
files without a commit are orphans, its pins no longer count, its operations may be resumed by others.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid

from sqlalchemy import Connection, delete, insert, select, update

from strandline.catalog import board, schema
from strandline.catalog.engine import Catalog
from strandline.errors import AlreadyExists, PathNotFound, StrandlineError

HOST = socket.gethostname()
SHORT_READ = 60.0
"""Seconds for which a read inside this process keeps its step. A long pin would keep what merges leave behind from being removed."""


class Session:
    """This process's session on one catalog. Made durable lazily, by the first thing that needs it. Safe to use from any thread."""

    def __init__(self, catalog: Catalog, lease_seconds: float) -> None:
        self.id = uuid.uuid4().hex[:16]
        self._catalog = catalog
        self._lease = lease_seconds
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pins: dict[float, float] = {}
        self._counter = 0

    def ensure(self) -> str:
        """Make the session durable and keep it alive; answers its id."""
        with self._lock:
            if self._thread is None:
                with self._catalog.write() as conn:
                    conn.execute(insert(schema.sessions).values(id=self.id, host=HOST, pid=os.getpid(), expires=self._until()))
                self._thread = threading.Thread(target=self._renew, name="strandline-session", daemon=True)
                self._thread.start()
        return self.id

    def file_name(self, table_id: int) -> str:
        """A fresh name (without extension) for files of a table; it tells whose they are until a commit refers to them."""
        self.ensure()
        with self._lock:
            self._counter += 1
            return f"data/{table_id}/{self.id}-{self._counter}"

    def pin(self, seconds: float = SHORT_READ) -> int:
        """The current step, whose state stays readable for this process for at least half of ``seconds``. Writes to the catalog only now
        and then: a pin at an older step covers all later ones."""
        now = self._catalog.clock.now()
        with self._lock:
            fresh_until = self._pins.get(seconds, 0.0)
        if fresh_until > now:
            with self._catalog.read() as conn:
                return board.current_step(conn)
        self.ensure()
        with self._catalog.write() as conn:
            step = board.current_step(conn)
            conn.execute(insert(schema.pins).values(session_id=self.id, name=None, step=step, expires=now + seconds))
        with self._lock:
            self._pins[seconds] = now + seconds / 2
        return step

    def _renew(self) -> None:
        while not self._stop.wait(self._lease / 3):
            # A catalog that cannot be reached now may be reached in time for the lease.
            with contextlib.suppress(StrandlineError), self._catalog.write() as conn:
                conn.execute(update(schema.sessions).where(schema.sessions.c.id == self.id).values(expires=self._until()))

    def _until(self) -> float:
        return self._catalog.clock.now() + self._lease

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            with contextlib.suppress(StrandlineError), self._catalog.write() as conn:
                end(conn, [self.id])


def live_sessions(conn: Connection, now: float) -> set[str]:
    """Ids of the sessions whose process is alive, as far as can be told from here."""
    return {row.id for row in conn.execute(select(schema.sessions)) if row.expires > now and not _known_dead(row.host, row.pid)}


def end(conn: Connection, ids: list[str]) -> None:
    conn.execute(delete(schema.pins).where(schema.pins.c.session_id.in_(ids)))
    conn.execute(delete(schema.sessions).where(schema.sessions.c.id.in_(ids)))


def end_dead(conn: Connection, now: float) -> None:
    """Forget sessions that are over, and pins that have run out."""
    live = live_sessions(conn, now)
    dead = [i for i in conn.execute(select(schema.sessions.c.id)).scalars() if i not in live]
    end(conn, dead)
    conn.execute(delete(schema.pins).where(schema.pins.c.expires < now))


def add_pin(conn: Connection, name: str, step: int) -> None:
    """A named pin keeps the state at ``step`` readable until it is removed."""
    if conn.execute(select(schema.pins.c.id).where(schema.pins.c.name == name)).one_or_none() is not None:
        raise AlreadyExists(f"there is already a pin {name!r}", "Remove it with db.unpin(name), or choose another name.")
    conn.execute(insert(schema.pins).values(session_id=None, name=name, step=step, expires=None))


def remove_pin(conn: Connection, name: str) -> None:
    if conn.execute(delete(schema.pins).where(schema.pins.c.name == name)).rowcount == 0:
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
