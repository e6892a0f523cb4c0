"""Deduplication of writes, such as the batches of a streaming query.

The catalog keeps the number of the last write of each writer to each table. The number is stored in the same
transaction as the commit, so a repeated write is recognised.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select

from strandline.catalog import sqltables
from strandline.catalog.transactions import Writer


class AlreadyApplied(Exception):
    """The table already has this write, or a later write of the same writer."""


def last(conn: Connection, writer: str, table_id: int) -> int | None:
    """Return the number of the last write of a writer to a table. None: there was no write."""
    found: int | None = conn.execute(
        select(sqltables.applied.c.version).where(_is_of(writer, table_id))
    ).scalar_one_or_none()
    return found


def note(tx: Writer, writer: str, table_id: int, version: int) -> None:
    """Record in this transaction that a write is applied; raise AlreadyApplied if it was applied before."""
    before = last(tx.conn, writer, table_id)
    if before is not None and before >= version:
        raise AlreadyApplied
    tx.conn.execute(delete(sqltables.applied).where(_is_of(writer, table_id)))
    row = {"writer": writer, "table_id": table_id, "version": version, "time": tx.now}
    tx.conn.execute(insert(sqltables.applied), row)


def _is_of(writer: str, table_id: int) -> ColumnElement[bool]:
    return and_(sqltables.applied.c.writer == writer, sqltables.applied.c.table_id == table_id)
