"""Sessions: which processes are alive, and which steps they still read.

A session is a connected process that writes files, reads snapshots or runs operations. Its lease is renewed
by a thread; when the process dies the lease runs out (at once, if it ran on this machine and its process id
is gone), and what it held is free: its files without a commit are orphans, its pins no longer count, its
operations may be resumed by others.

What a session has pinned is kept for as long as the session lives. A process that was only thought dead,
because it slept or could not reach the catalog, must not do harm when it comes back: what it read, and what
it wrote, may have been collected. So whatever it has begun in the name of a session that has ended is refused
(``require``), and so are files that such a session has named (``ended_writer``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from strandline.catalog import board, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.stale import Ended
from strandline.errors import AlreadyExists, PathNotFound, StrandlineError

log = logging.getLogger("strandline")

HOST = socket.gethostname()
_SESSION = select(sqltables.sessions.c.id).where(sqltables.sessions.c.id == bindparam("session"))
SHORT_READ = 60.0
"""Seconds for which a read inside this process keeps its step. A long pin would keep what merges leave behind
from being removed."""
_FILE = re.compile(r"data/\d+/([0-9a-f]{16})-")
"""The beginning of every file name that a session gave out."""


@dataclass(frozen=True)
class Pin:
    """A step that this process may read, the generation of publications that belongs to it, and the session
    that keeps it readable."""

    step: int
    generation: int
    session_id: str


class Session:
    """This process's session on one catalog. Made durable lazily, by the first thing that needs it. Safe to
    use from any thread."""

    def __init__(self, catalog: Catalog, lease_seconds: float) -> None:
        self.id = _new_id()
        self._catalog = catalog
        self._lease = lease_seconds
        self._expires = 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pins: dict[float, tuple[int, float]] = {}
        self._readers: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self._kept: int | None = None
        self._counter = 0

    def ensure(self) -> str:
        """Make the session durable and keep it alive, and return its id, which is a new one if others took
        the old one for dead."""
        with self._lock:
            if self._thread is None:
                self._begin()
                self._thread = threading.Thread(target=self._renew, name="strandline-session", daemon=True)
                self._thread.start()
            elif self._catalog.clock.now() >= self._expires:
                self._extend()
            return self.id

    @property
    def is_durable(self) -> bool:
        """Whether the catalog knows of it yet."""
        return self._thread is not None

    def file_name(self, table_id: int) -> str:
        """A fresh name (without extension) for files of a table; it tells whose they are until a commit
        refers to them."""
        session_id = self.ensure()
        with self._lock:
            self._counter += 1
            return f"data/{table_id}/{session_id}-{self._counter}"

    def pin(
        self,
        seconds: float = SHORT_READ,
        step: int | None = None,
        check: Callable[[Connection], None] = lambda _: None,
    ) -> Pin:
        """Keep the state at ``step`` (default: the current one) and all later ones readable for this process,
        for at least half of ``seconds`` and while the session lives. Writes to the catalog only now and then,
        when no older pin covers the step; ``check`` is called in that transaction and may refuse."""
        now = self._catalog.clock.now()
        with self._lock:
            session_id = self.id
            pinned, fresh_until = self._pins.get(seconds, (0, 0.0))
            fresh_until = min(fresh_until, self._expires)  # Pins end with the session.
        if fresh_until > now and (step is None or pinned <= step):
            with self._catalog.read() as conn:
                return _pin(conn, step, session_id)
        self.ensure()
        session_id = self.confirm()
        with self._catalog.write() as conn:
            require(conn, session_id)
            check(conn)
            made = _pin(conn, step, session_id)
            until = now + max(seconds, self._lease)
            conn.execute(
                insert(sqltables.pins).values(session_id=session_id, name=None, step=made.step, expires=until)
            )
        if step is None:
            with self._lock:
                if session_id == self.id:
                    self._pins[seconds] = made.step, now + seconds / 2
        return made

    def confirm(self) -> str:
        """The session's id, a new one if others have ended it: nothing more may begin in the old one's
        name."""
        with self._lock:
            if self._thread is not None:
                with self._catalog.read() as conn:
                    ended = not is_alive(conn, self.id)
                if ended:
                    self._extend()
            return self.id

    def keep(self, reader: object, step: int) -> None:
        """Keep ``step`` readable for as long as ``reader`` exists in this process. It must be pinned
        already."""
        with self._lock:
            self._readers[reader] = step

    def _renew(self) -> None:
        # Often enough that a reader with a short pin is found before the pin has run out.
        while not self._stop.wait(min(self._lease, SHORT_READ) / 4):
            try:
                with self._lock:
                    self._extend()
            except (
                Exception
            ) as error:  # A catalog that cannot be reached now may be reached in time for the lease.
                log.warning("the session could not be renewed: %s", error)

    def _begin(self) -> None:
        until = self._catalog.clock.now() + self._lease
        with self._catalog.write() as conn:
            conn.execute(
                insert(sqltables.sessions).values(id=self.id, host=HOST, pid=os.getpid(), expires=until)
            )
        self._expires = until

    def _extend(self) -> None:
        now = self._catalog.clock.now()
        with self._catalog.write() as conn:
            renewed = (
                update(sqltables.sessions)
                .where(sqltables.sessions.c.id == self.id)
                .values(expires=now + self._lease)
            )
            alive = conn.execute(renewed).rowcount == 1
            if alive:
                self._kept = self._keep_readers(conn, now)
        if alive:
            self._expires = now + self._lease
            return
        # Its files and pins may be gone, so nothing may happen in its name any more.
        self.id = _new_id()
        self._pins.clear()
        self._readers.clear()
        self._kept = None
        self._begin()

    def _keep_readers(self, conn: Connection, now: float) -> int | None:
        """One pin at the oldest step that a reader of this process looks at, and return its id."""
        step = min(self._readers.values(), default=None)
        if self._kept is not None:
            conn.execute(delete(sqltables.pins).where(sqltables.pins.c.id == self._kept))
        if step is None:
            return None
        values = {
            "session_id": self.id,
            "name": None,
            "step": step,
            "expires": now + max(SHORT_READ, self._lease),
        }
        return int(
            conn.execute(insert(sqltables.pins).values(**values).returning(sqltables.pins.c.id)).scalar_one()
        )

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            with contextlib.suppress(StrandlineError), self._catalog.write() as conn:
                end(conn, [self.id])


def _new_id() -> str:
    return uuid.uuid4().hex[:16]


def _pin(conn: Connection, step: int | None, session_id: str) -> Pin:
    moment = board.moment(conn)
    return Pin(moment.step if step is None else step, moment.generation, session_id)


def is_alive(conn: Connection, session_id: str) -> bool:
    """Whether nobody has ended the session. Until then nothing that it pinned is collected, however late it
    is."""
    return conn.execute(_SESSION, {"session": session_id}).one_or_none() is not None


def require(conn: Connection, session_id: str) -> None:
    """Refuse what was planned in the name of a session that has ended."""
    if not is_alive(conn, session_id):
        raise Ended(0, "this process was taken for dead meanwhile")


def writer_of(file: str) -> str | None:
    """The session that gave out a file's name."""
    found = _FILE.match(file)
    return found[1] if found else None


def ended_writer(conn: Connection, files: Iterable[str]) -> str | None:
    """The first of the files whose writer's session has ended, so that the file may have been collected."""
    writers = {writer: file for file in files if (writer := writer_of(file)) is not None}
    if not writers:
        return None
    known = set(
        conn.execute(select(sqltables.sessions.c.id).where(sqltables.sessions.c.id.in_(writers))).scalars()
    )
    return next((file for writer, file in writers.items() if writer not in known), None)


def all_sessions(conn: Connection) -> set[str]:
    """Ids of the sessions that have not ended."""
    return set(conn.execute(select(sqltables.sessions.c.id)).scalars())


def live_sessions(conn: Connection, now: float) -> set[str]:
    """Ids of the sessions whose process is alive, as far as can be told from here."""
    return {
        row.id
        for row in conn.execute(select(sqltables.sessions))
        if row.expires > now and not _known_dead(row.host, row.pid)
    }


def end(conn: Connection, ids: list[str]) -> None:
    conn.execute(delete(sqltables.pins).where(sqltables.pins.c.session_id.in_(ids)))
    conn.execute(delete(sqltables.sessions).where(sqltables.sessions.c.id.in_(ids)))


def end_dead(conn: Connection, now: float) -> None:
    """Forget sessions that are over, and pins that have run out."""
    live = live_sessions(conn, now)
    dead = [i for i in conn.execute(select(sqltables.sessions.c.id)).scalars() if i not in live]
    end(conn, dead)
    conn.execute(delete(sqltables.pins).where(sqltables.pins.c.expires < now))


def add_pin(conn: Connection, name: str, step: int) -> None:
    """A named pin keeps the state at ``step`` readable until it is removed."""
    if (
        conn.execute(select(sqltables.pins.c.id).where(sqltables.pins.c.name == name)).one_or_none()
        is not None
    ):
        raise AlreadyExists(
            f"there is already a pin {name!r}", "Remove it with db.unpin(name), or choose another name."
        )
    conn.execute(insert(sqltables.pins).values(session_id=None, name=name, step=step, expires=None))


def named_pins(conn: Connection) -> dict[str, int]:
    """The named pins and the steps that they keep."""
    rows = conn.execute(select(sqltables.pins).where(sqltables.pins.c.name.is_not(None)))
    return {row.name: row.step for row in rows}


def remove_pin(conn: Connection, name: str) -> None:
    if conn.execute(delete(sqltables.pins).where(sqltables.pins.c.name == name)).rowcount == 0:
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
