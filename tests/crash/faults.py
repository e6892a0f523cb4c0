"""A disk that fails once, and a process that lives on."""

from __future__ import annotations

import errno
import os
import threading

from strandline.storage.files import LocalFiles

FULL, READ_ONLY, BROKEN = errno.ENOSPC, errno.EROFS, errno.EIO


class FaultyFiles(LocalFiles):
    """Files whose n-th change of the disk fails with an error of the operating system (0: none).

    Appends write less than they are given.
    """

    def __init__(
        self, root: str | os.PathLike[str], at: int = 0, number: int = FULL, *, only: tuple[str, ...] = ()
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
