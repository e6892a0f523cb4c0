"""Read a SQLite catalog without write access, and keep a space reserve for a full disk.

Beside its file, a catalog has a write-ahead log (``-wal``) and an index of this log in shared memory
(``-shm``). To read the catalog, SQLite must be able to create both. If it cannot create them, a connection is
opened in one of three ways:

1. There is no log: the file has all data. It is opened as ``immutable``, without locks. ``check_unchanged``
   detects that another process has changed the file during a read.
2. There are a log and its index: SQLite reads both, also while a process on this machine writes them.
3. There is a log without its index, for example after a crash: file and log are copied to a private folder.

The reserve is a file that is deleted before a statement that frees space, so that the commits of this
statement find space on a full disk.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from strandline.catalog import fork_safety
from strandline.errors import Unavailable

RESERVE_BYTES = 256 * 1024
"""Size of the reserve: enough for a few transactions, because the log is emptied often (``SHORT_BYTES``)."""
SHORT_BYTES = 16 * RESERVE_BYTES
"""With less free space than this, the log is emptied after each transaction that frees space."""


class ReadOnlyConnection(fork_safety.TrackedConnection):
    """A connection that only reads.

    Attributes:
        seen: the state of the files when they were opened. None: they were not opened as immutable.
    """

    seen: Any = None


def is_writable(file: str) -> bool:
    """Return whether this process may write the file and create files beside it; True if it is missing."""
    folder = os.path.dirname(os.path.abspath(file))
    return not os.path.exists(file) or (os.access(file, os.W_OK) and os.access(folder, os.W_OK))


class ReadOnlyFiles:
    """Opens read-only connections. One object per catalog and process."""

    def __init__(self, file: str) -> None:
        self.file = os.path.abspath(file)
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._copied: Any = None

    def connect(self) -> ReadOnlyConnection:
        state = _state(self.file)
        log, index = state[1], state[2]
        is_whole = log is None or log[0] == 0
        if not is_whole and index is None:
            return self._open(self._copy_file(state), "")
        connection = self._open(self.file, "?mode=ro&immutable=1" if is_whole else "?mode=ro")
        connection.seen = state[:2] if is_whole else None
        return connection

    def _open(self, file: str, options: str) -> ReadOnlyConnection:
        url = f"file:{quote(file)}{options}"
        # check_same_thread: the pool gives a connection to one thread at a time.
        return sqlite3.connect(
            url, uri=True, timeout=5.0, factory=ReadOnlyConnection, check_same_thread=False
        )

    def _copy_file(self, state: Any) -> str:
        if self._copied != state or self._copy is None:
            self._copy = tempfile.TemporaryDirectory(prefix="strandline-catalog-")
            for suffix in ("", "-wal"):
                shutil.copyfile(self.file + suffix, os.path.join(self._copy.name, f"catalog{suffix}"))
            self._copied = state
        return os.path.join(self._copy.name, "catalog")


def check_unchanged(connection: Any) -> None:
    """Raise Unavailable if another process has changed the files of an immutable connection."""
    seen = getattr(connection, "seen", None)
    if seen is not None and _state(connection.file)[:2] != seen:
        raise Unavailable(
            "another process changed the catalog during a read without write access",
            "Repeat the statement.",
        )


def _state(file: str) -> tuple[Any, Any, Any]:
    """Return size, time and inode of catalog, log and index; None for a file that is missing."""
    return (_look(file), _look(f"{file}-wal"), _look(f"{file}-shm"))


def _look(file: str) -> tuple[int, int, int] | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        found = os.stat(file)
        return found.st_size, found.st_mtime_ns, found.st_ino
    return None


# --- the reserve --------------------------------------------------------------------------------------------


def keep_reserve(file: str) -> None:
    """Allocate the reserve of a catalog; if space is short, allocate a smaller one."""
    name = reserve_of(file)
    with suppress(OSError):
        if os.path.exists(name) and os.path.getsize(name) >= RESERVE_BYTES:
            return
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for size in (RESERVE_BYTES >> n for n in range(4)):
                with suppress(OSError):
                    _allocate(descriptor, size)
                    return
        finally:
            os.close(descriptor)


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.pwrite(descriptor, bytes(size), 0)


def release_reserve(file: str) -> None:
    with suppress(OSError):
        os.unlink(reserve_of(file))


def reserve_of(file: str) -> str:
    return f"{file}-reserve"


def is_short_of_space(file: str) -> bool:
    """Return whether the catalog's disk has less than ``SHORT_BYTES`` left."""
    with suppress(OSError, AttributeError):
        disk = os.statvfs(os.path.dirname(os.path.abspath(file)))
        return disk.f_bavail * disk.f_frsize < SHORT_BYTES
    return False
