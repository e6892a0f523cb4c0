"""Safe use of SQLite in processes that fork.

SQLite's locks belong to a process. A fork copies SQLite's record of its locks, but not the locks themselves.
If the child closes an inherited connection, even just by exiting, this can remove the write-ahead log with
the last commits of other processes. A new connection of the child to the same file can remove it, too.

Therefore idle connections are closed before a fork, and opened again when needed. If a connection is in use
during the fork, the child never closes it, and may not open its file.
"""

from __future__ import annotations

import os
import sqlite3
import weakref

from sqlalchemy import Engine

from strandline.errors import PreconditionFailed


class TrackedConnection(sqlite3.Connection):
    """A SQLite connection that supports weak references, which its base class does not."""

    file: str


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_connections: weakref.WeakSet[TrackedConnection] = weakref.WeakSet()
_inherited: set[str] = set()
"""Files to which this process has connections inherited from its parent."""


def watch(engine: Engine) -> None:
    _engines.add(engine)


def track_connection(connection: TrackedConnection, file: str) -> None:
    connection.file = os.path.realpath(file)
    _connections.add(connection)


def check_not_inherited(file: str) -> None:
    if os.path.realpath(file) in _inherited:
        raise PreconditionFailed(
            f"the catalog {file} was in use by another thread when this process was forked",
            "Fork while no other thread uses the database, or start the process anew (multiprocessing: the "
            "start method spawn).",
        )


def _close_idle() -> None:
    for engine in list(_engines):
        engine.dispose()


def _keep_inherited() -> None:
    for connection in list(_connections):
        if _is_open(connection):
            # Leak a reference, because the connection may never be closed. A reference in a list would be
            # released when the interpreter ends.
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            _inherited.add(connection.file)


def _is_open(connection: TrackedConnection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


os.register_at_fork(before=_close_idle, after_in_child=_keep_inherited)
