"""Garbage collection in the catalog: delete the rows of segments that nothing refers to.

A removed row of a chain is deleted when none of these needs it any more: a state that can still be read, a
stream, or a running reader. The grace period protects readers that began before the row was removed. A
process with readers that run for longer records the oldest step that they read in the row of its session.

Steps:

1. In one transaction, delete chain rows and unreferenced segments, and note their files in ``garbage``.
2. After the commit, the caller removes the files.

A crash between the steps leaves files that a later run removes, never a reference to a removed file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, func, insert, select, update

from strandline.catalog import sessions, sqltables
from strandline.catalog.transactions import Writer, current_step
from strandline.chunks import chunks
from strandline.model import is_elsewhere


def sweep(tx: Writer, *, history_seconds: float, grace_seconds: float) -> None:
    """Delete chain rows that no state, stream, pin or reader needs, and segments in no chain."""
    sessions.end_dead(tx)
    _date_undated(tx)
    _sweep_chains(tx, history_seconds, _is_in_no_plan(tx, grace_seconds))
    # A dropped table cannot be read, so its commits and verification results are of no use.
    tx.conn.execute(
        delete(sqltables.commits).where(~exists().where(sqltables.paths.c.id == sqltables.commits.c.table_id))
    )
    of = sqltables.verified.c.path_id
    tx.conn.execute(delete(sqltables.verified).where(~exists().where(sqltables.paths.c.id == of)))
    to = sqltables.applied.c.table_id
    tx.conn.execute(delete(sqltables.applied).where(~exists().where(sqltables.paths.c.id == to)))
    _drop_unreferenced(tx)


def sweep_table(tx: Writer, table_id: int, *, history_seconds: float, grace_seconds: float) -> None:
    """Delete the chain rows of one table as ``sweep`` does, and the segments that only they referred to."""
    old = and_(sqltables.chains.c.table_id == table_id, _is_in_no_plan(tx, grace_seconds))
    for chunk in chunks(_sweep_chains(tx, history_seconds, old)):
        _drop_unreferenced(tx, chunk)


def _sweep_chains(tx: Writer, history_seconds: float, old: ColumnElement[bool]) -> list[int]:
    """Delete chain rows that no state, stream or pin needs; return the ids of their segments.

    Args:
        old: the condition that a row was removed, and that no reader needs it.
    """
    horizon = min(oldest_read(tx.conn), _history(tx.conn, tx.now, history_seconds))
    states: dict[int, int] = defaultdict(lambda: horizon)
    changes: dict[int, int] = defaultdict(lambda: 2**62)
    for hold in tx.conn.execute(select(sqltables.holds)):
        changes[hold.table_id] = min(changes[hold.table_id], hold.step)
        if hold.keeps_state:
            states[hold.table_id] = min(states[hold.table_id], hold.step)
    candidates = tx.conn.execute(
        select(
            sqltables.chains,
            sqltables.segments.c.role,
            sqltables.segments.c.upto,
            sqltables.tables.c.path_id.label("alive"),
        )
        .join(sqltables.segments, sqltables.segments.c.id == sqltables.chains.c.segment_id)
        .outerjoin(sqltables.tables, sqltables.tables.c.path_id == sqltables.chains.c.table_id)
        .where(old)
    ).all()
    by_table: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in candidates:
        # A dropped table has no description, so its earlier states cannot be read and need no segments.
        needed_by_state = row.alive is not None and row.removed > states[row.table_id]
        needed_by_stream = row.role == "log" and row.upto > changes[row.table_id]
        if row.superseded or not (needed_by_state or needed_by_stream):
            by_table[row.table_id].append(row)
    for table_id, rows in by_table.items():
        _forget(tx, table_id, [row.segment_id for row in rows])
        # Superseded rows do not shorten the history: the merged segment has their changes.
        _forget_history(tx, table_id, max((row.removed for row in rows if not row.superseded), default=0))
    return [row.segment_id for rows in by_table.values() for row in rows]


def drop_superseded(tx: Writer, table_id: int, *, grace_seconds: float) -> None:
    """Delete the logs of a table that merges have replaced and that no reader has in its plan any more."""
    at = sqltables.chains.c
    old = select(at.segment_id).where(
        at.table_id == table_id, at.superseded.is_(True), _is_in_no_plan(tx, grace_seconds)
    )
    ids = tx.conn.execute(old).scalars().all()
    _forget(tx, table_id, ids)
    for chunk in chunks(ids):
        _drop_unreferenced(tx, chunk)


def _is_in_no_plan(tx: Writer, grace_seconds: float) -> ColumnElement[bool]:
    """Build the condition that a row of ``chains`` was removed, and is in no reader's plan any more."""
    at = sqltables.chains.c
    return and_(at.removed <= oldest_read(tx.conn), at.removed_at <= tx.now - grace_seconds)


def oldest_read(conn: Connection) -> int:
    """Return the oldest step that a session or a pin keeps readable, or the current step if there is none."""
    said = (current_step(conn), sessions.oldest_read(conn), sessions.oldest_pin(conn))
    return min(step for step in said if step is not None)


def _date_undated(tx: Writer) -> None:
    """Set the time of removal to now in rows for which an old version of Strandline has not recorded it."""
    at = sqltables.chains.c
    undated = update(sqltables.chains).where(at.removed.is_not(None), at.removed_at.is_(None))
    tx.conn.execute(undated.values(removed_at=tx.now))


def _forget(tx: Writer, table_id: int, segment_ids: Sequence[int]) -> None:
    for chunk in chunks(segment_ids):
        tx.conn.execute(
            delete(sqltables.chains).where(
                sqltables.chains.c.table_id == table_id, sqltables.chains.c.segment_id.in_(chunk)
            )
        )


def garbage(conn: Connection) -> list[str]:
    return list(conn.execute(select(sqltables.garbage.c.file)).scalars())


def forget_garbage(tx: Writer, files: Iterable[str]) -> None:
    for chunk in chunks(list(files)):
        tx.conn.execute(delete(sqltables.garbage).where(sqltables.garbage.c.file.in_(chunk)))


def marker_of(operation_id: str) -> str:
    """Return the name of the file that marks an operation as one to undo.

    This file is written when the catalog cannot be written.
    """
    return f"data/undo-{operation_id}"


def list_known_files(conn: Connection) -> set[str]:
    """Return all files of segments and of ``garbage``, and the undo markers of unfinished operations."""
    running = conn.execute(select(sqltables.operations.c.id).where(sqltables.operations.c.ended.is_(None)))
    used = conn.execute(
        select(sqltables.segments.c.file).where(sqltables.segments.c.file.is_not(None))
    ).scalars()
    return {str(file) for file in used} | set(garbage(conn)) | {marker_of(id_) for id_ in running.scalars()}


def _history(conn: Connection, now: float, history_seconds: float) -> int:
    """Return the step that was current ``history_seconds`` ago: steps from this one on stay readable."""
    if history_seconds <= 0:
        return current_step(conn)
    old = conn.execute(
        select(func.max(sqltables.commits.c.step)).where(sqltables.commits.c.time <= now - history_seconds)
    ).scalar_one()
    return old or 0


def _forget_history(tx: Writer, table_id: int, kept_from: int) -> None:
    tx.conn.execute(
        update(sqltables.tables)
        .where(sqltables.tables.c.path_id == table_id, sqltables.tables.c.kept_from < kept_from)
        .values(kept_from=kept_from)
    )
    last = tx.conn.execute(
        select(func.max(sqltables.commits.c.step)).where(
            sqltables.commits.c.table_id == table_id, sqltables.commits.c.step <= kept_from
        )
    ).scalar_one()
    if last is not None:
        tx.conn.execute(
            delete(sqltables.commits).where(
                sqltables.commits.c.table_id == table_id, sqltables.commits.c.step < last
            )
        )


def _drop_unreferenced(tx: Writer, among: Sequence[int] | None = None) -> None:
    query = select(sqltables.segments.c.id, sqltables.segments.c.file).where(
        ~exists().where(sqltables.chains.c.segment_id == sqltables.segments.c.id)
    )
    unreferenced = tx.conn.execute(
        query if among is None else query.where(sqltables.segments.c.id.in_(among))
    ).all()
    for chunk in chunks([row.id for row in unreferenced]):
        tx.conn.execute(delete(sqltables.segments).where(sqltables.segments.c.id.in_(chunk)))
    # Files in a repository are removed by the repository's collector, which knows all references to them.
    own = [row.file for row in unreferenced if row.file is not None and not is_elsewhere(row.file)]
    files = [{"file": file, "time": tx.now} for file in own]
    if files:
        tx.conn.execute(insert(sqltables.garbage), files)
