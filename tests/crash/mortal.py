"""A process that crashes at a chosen write, and checks of the state afterwards.

Boundaries are: before each primitive of ``LocalFiles``, in the middle of an append, before a catalog
transaction is committed, and right after it. (After a primitive is before the next one.) A crashed process
does nothing more: whatever its ``finally`` clauses try raises ``Death`` again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import event, select, update

import strandline
from strandline import Database
from strandline.catalog import sqltables
from strandline.clock import Clock
from strandline.errors import Unavailable
from strandline.settings import Settings
from strandline.storage.files import LocalFiles
from strandline.storage.location import is_url
from strandline.storage.objects import ObjectFiles
from tests.catalogs import Death, is_session

NOW = Settings(history_seconds=0.0, grace_seconds=0.0, compaction_share=0.0)
"""No history is kept, so that there is garbage to collect."""


def by_exception() -> NoReturn:
    raise Death


def by_kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class Fate:
    """Ends the process at its n-th boundary (0: never)."""

    def __init__(self, at: int, end: Callable[[], NoReturn] = by_exception) -> None:
        self.at = at
        self.trail: list[str] = []
        self.dead = False
        self._end = end
        self._lock = threading.Lock()

    def meet(self, boundary: str) -> None:
        if is_session():
            return
        with self._lock:
            if self.dead:
                raise Death
            self.trail.append(boundary)
            if len(self.trail) != self.at:
                return
            self.dead = True
        self._end()

    @property
    def place(self) -> str:
        return f"boundary {len(self.trail)}: {self.trail[-1] if self.trail else 'none'}"


class MortalFiles(LocalFiles):
    """Files for which every change of the disk is a boundary."""

    def __init__(self, root: str | os.PathLike[str], fate: Fate) -> None:
        super().__init__(root)
        self._fate = fate

    def _mkdir(self, path: str) -> None:
        self._fate.meet("mkdir")
        super()._mkdir(path)

    def _create(self, path: str) -> int:
        self._fate.meet("create")
        return super()._create(path)

    def _append(self, descriptor: int, data: memoryview) -> int:
        self._fate.meet("append")
        done = super()._append(descriptor, data[: len(data) // 2]) if len(data) > 1 else 0
        self._fate.meet("middle of append")
        return done + super()._append(descriptor, data[done:])

    # A crash of a process does not lose the page cache, so fsync is not needed here.

    def _flush(self, descriptor: int) -> None:
        self._fate.meet("flush")

    def _sync(self, path: str) -> None:
        self._fate.meet("sync")

    def _rename(self, path: str, name: str) -> None:
        self._fate.meet("rename")
        super()._rename(path, name)

    def _exchange(self, path: str, name: str) -> bool:
        self._fate.meet("exchange")
        return super()._exchange(path, name)

    def _link(self, path: str, name: str) -> None:
        self._fate.meet("link")
        super()._link(path, name)

    def _unlink(self, path: str) -> None:
        self._fate.meet("unlink")
        super()._unlink(path)

    def _rmdir(self, path: str) -> None:
        self._fate.meet("rmdir")
        super()._rmdir(path)


class MortalObjects(ObjectFiles):
    """Objects for which every change of the bucket is a boundary."""

    def __init__(self, location: str, fate: Fate) -> None:
        super().__init__(location)
        self._fate = fate

    def _put(self, name: str, data: bytes) -> None:
        self._fate.meet("put")
        super()._put(name, data)

    def _put_over(self, name: str, data: bytes) -> None:
        self._fate.meet("put over")
        super()._put_over(name, data)

    def _put_parts(self, name: str, chunks: Iterable[bytes]) -> None:
        self._fate.meet("put parts")
        super()._put_parts(name, chunks)

    def _delete(self, names: list[str], *, retries: int | None = None) -> None:
        self._fate.meet("delete")
        super()._delete(names, retries=retries)


def connect(
    folder: Path | str,
    url: str | None,
    fate: Fate,
    settings: Settings,
    spark: Any = None,
    *,
    clock: Clock | None = None,
) -> Database:
    """Return a connection that crashes at the boundary of ``fate``."""
    files = MortalObjects(str(folder), fate) if is_url(folder) else MortalFiles(folder, fate)
    # The time of its look for abandoned operations is not deterministic, but boundaries must be.
    settings = replace(settings, carry_on_seconds=0.0)
    db = strandline.connect(folder, catalog=url, files=files, settings=settings, spark=spark, clock=clock)
    engine = db._runtime.catalog.database.engine

    def refuse_the_dead(_: Any) -> None:
        if fate.dead:
            # The thread that renews the session takes this for a catalog outage, until ``bury``.
            raise Unavailable("the process is dead") if is_session() else Death

    event.listen(engine, "begin", refuse_the_dead, insert=True)
    event.listen(engine, "commit", lambda _: fate.meet("before the catalog commits"))
    db._runtime.catalog.after_commit = lambda: fate.meet("after the catalog committed")
    return db


def bury(db: Database, folder: Path | str, url: str | None) -> None:
    """Do what the operating system does with a dead process: stop threads, close connections, free its id."""
    if db._operations.carrier is not None:
        db._operations.carrier.stop()
    session = db._runtime.session
    session._is_closed = True
    session._wake.set()
    if session._thread is not None:
        session._thread.join()
    db._runtime.catalog.close()
    clock = db._runtime.clock
    with (
        strandline.connect(folder, catalog=url, clock=clock) as other,
        other._runtime.catalog.write() as tx,
    ):
        tx.conn.execute(
            update(sqltables.sessions).where(sqltables.sessions.c.id == session.id).values(pid=DEAD)
        )


DEAD = 2**30
"""An id that no process has. The id of an ended process could be reused."""


def rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    return sorted(db.sql(query).rows(), key=repr)


def unknown_files(db: Database) -> set[str]:
    """Return the files that no segment refers to."""
    with db._runtime.catalog.read() as conn:
        known = set(conn.execute(select(sqltables.segments.c.file)).scalars())
    return set(db._runtime.files.names("data")) - known


def lost_files(db: Database) -> set[str]:
    """Return the missing files of segments."""
    with db._runtime.catalog.read() as conn:
        known = set(
            conn.execute(
                select(sqltables.segments.c.file).where(sqltables.segments.c.file.is_not(None))
            ).scalars()
        )
    return known - set(db._runtime.files.names("data"))
