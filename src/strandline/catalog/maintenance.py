"""Locks for the maintenance of tables: one process at a time merges or compacts a table.

The lock only avoids double work. Without it, two processes could try to replace the same segments, but
``chains.replace`` would let only one of them succeed.
"""

from __future__ import annotations

from sqlalchemy import select, update

from strandline.catalog import sessions, sqltables
from strandline.catalog.conflicts import Stale
from strandline.catalog.transactions import Writer


def take(tx: Writer, table_id: int, session_id: str) -> bool:
    """Lock a table's maintenance for a session; return False if another live session has locked it.

    The lock ends with ``release``, or when the session ends.
    """
    row = tx.conn.execute(
        select(sqltables.tables.c.maintained_by).where(sqltables.tables.c.path_id == table_id)
    ).one_or_none()
    if row is None:
        raise Stale(table_id, "it was dropped")
    if row.maintained_by is not None and row.maintained_by in sessions.live_sessions(tx.conn, tx.now):
        return False
    tx.conn.execute(
        update(sqltables.tables)
        .where(sqltables.tables.c.path_id == table_id)
        .values(maintained_by=session_id)
    )
    return True


def release(tx: Writer, table_id: int, session_id: str) -> None:
    tx.conn.execute(
        update(sqltables.tables)
        .where(sqltables.tables.c.path_id == table_id, sqltables.tables.c.maintained_by == session_id)
        .values(maintained_by=None)
    )
