"""Storage that fails once, and an outage that begins at one of the catalog's transactions."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from strandline import Database
from strandline.storage.files import LocalFiles
from tests.catalogs import Death, is_session

DISK_FULL, READ_ONLY, BROKEN = errno.ENOSPC, errno.EROFS, errno.EIO


class FaultyFiles(LocalFiles):
    """Files whose n-th change of the disk fails with an error of the operating system (0: none).

    Appends write less than they are given.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        at: int = 0,
        number: int = DISK_FULL,
        *,
        only: tuple[str, ...] = (),
    ) -> None:
        super().__init__(root)
        self.at, self.number, self.only = at, number, only
        self.trail: list[str] = []
        self.failed: str | None = None
        self._lock = threading.Lock()

    def _try(self, what: str) -> None:
        with self._lock:
            if self.only and what not in self.only:
                return
            self.trail.append(what)
            if len(self.trail) != self.at:
                return
            self.failed = what
        raise OSError(self.number, os.strerror(self.number))

    def _mkdir(self, path: str) -> None:
        self._try("mkdir")
        super()._mkdir(path)

    def _create(self, path: str) -> int:
        self._try("create")
        return super()._create(path)

    def _append(self, descriptor: int, data: memoryview) -> int:
        self._try("append")
        return super()._append(descriptor, data[: max(1, len(data) // 2)])

    def _flush(self, descriptor: int) -> None:
        self._try("flush")

    def _sync(self, path: str) -> None:
        self._try("sync")

    def _link(self, path: str, name: str) -> None:
        self._try("link")
        super()._link(path, name)

    def _unlink(self, path: str) -> None:
        self._try("unlink")
        super()._unlink(path)

    def _rmdir(self, path: str) -> None:
        self._try("rmdir")
        super()._rmdir(path)


FULL, LOST, UNANSWERED, ANSWERED, KILLED = "full", "lost", "unanswered", "answered", "killed"
"""What happens at the transaction.

- FULL: its writes, and only writes, are refused.
- LOST: the connection is lost before the commit.
- UNANSWERED: the connection is lost after the commit, before the process gets the response.
- ANSWERED: the connection is lost after the process got the response.
- KILLED: the process dies after the commit.
"""


class Outage:
    """An outage of one process's catalog, from its ``at``-th write transaction on (0: never).

    ``lasts``: the outage ends after this number of refused transactions (None: when ``end`` is called).
    """

    def __init__(self, db: Database, how: str, at: int = 0, lasts: int | None = None) -> None:
        self.how, self.at, self.left = how, at, lasts
        self.count = 0
        self.is_on = False
        self.is_dead = False
        self._lock = threading.Lock()
        catalog = db._runtime.catalog
        self._is_sqlite = catalog.database.is_sqlite
        event.listen(catalog.database.engine, "begin", self._begin, insert=True)
        event.listen(catalog.database.engine, "commit", self._commit)
        catalog.after_commit = self._committed

    def end(self) -> None:
        self.is_on = False

    def _begin(self, conn: Any) -> None:
        is_write = conn.get_execution_options().get("strandline_write", False)
        if self.is_dead:
            raise _lost() if is_session() else Death
        if is_write and not is_session():
            with self._lock:
                self.count += 1
                if self.count == self.at and self.how == FULL:
                    self.is_on = True
        if self.is_on and self.left is not None:
            self.left -= 1
            self.is_on = self.left >= 0
        if self.how == FULL:
            # SQLite itself refuses to write then.
            conn.exec_driver_sql(f"PRAGMA query_only = {int(self.is_on and is_write)}")
        elif self.is_on:
            raise _lost()

    def _commit(self, conn: Any) -> None:
        if self.how == LOST and self._is_now():
            self.is_on = True
            raise _lost()

    def _committed(self) -> None:
        if not self._is_now():
            return
        if self.how == KILLED:
            self.is_dead = True
            raise Death
        self.is_on = self.how in (UNANSWERED, ANSWERED)
        if self.how == UNANSWERED:
            raise _lost()

    def _is_now(self) -> bool:
        with self._lock:
            is_now = self.count == self.at and not is_session()
            if is_now:
                self.at = 0
            return is_now


def _lost() -> OperationalError:
    return OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))
