"""Collection: which segments nothing refers to any more.

The catalog forgets them first, in one transaction that also notes their files in ``garbage``; the files are
removed after it. So a crash in between leaves files to remove, never a reference to a removed file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, exists, func, insert, or_, select, update

from strandline.catalog import board, sessions, sqltables
from strandline.catalog.chunks import chunks


def sweep(conn: Connection, now: float, history_seconds: float) -> None:
    """Forget chain rows that no state, stream, pin or reader needs, and the segments that were only in
    them."""
    sessions.end_dead(conn, now)
    readers = _oldest_read(conn, now)
    horizon = min(readers, _history(conn, now, history_seconds))
    states: dict[int, int] = defaultdict(lambda: horizon)
    changes: dict[int, int] = defaultdict(lambda: 2**62)
    for hold in conn.execute(select(sqltables.holds)):
        changes[hold.table_id] = min(changes[hold.table_id], hold.step)
        if hold.keeps_state:
            states[hold.table_id] = min(states[hold.table_id], hold.step)
    candidates = conn.execute(
        select(
            sqltables.chains,
            sqltables.segments.c.role,
            sqltables.segments.c.upto,
            sqltables.tables.c.path_id.label("alive"),
        )
        .join(sqltables.segments, sqltables.segments.c.id == sqltables.chains.c.segment_id)
        .outerjoin(sqltables.tables, sqltables.tables.c.path_id == sqltables.chains.c.table_id)
        .where(sqltables.chains.c.removed <= readers)
    ).all()
    by_table: dict[int, list[int]] = defaultdict(list)
    for row in candidates:
        # Without a description nobody can ask for the past of a table, so a dropped one needs no history.
        needed_by_state = row.alive is not None and row.removed > states[row.table_id]
        needed_by_stream = row.role == "log" and row.upto > changes[row.table_id]
        if row.superseded or not (needed_by_state or needed_by_stream):
            by_table[row.table_id].append(row.segment_id)
    for table_id, ids in by_table.items():
        for chunk in chunks(ids):
            conn.execute(
                delete(sqltables.chains).where(
                    sqltables.chains.c.table_id == table_id, sqltables.chains.c.segment_id.in_(chunk)
                )
            )
        _forget_history(conn, table_id, states[table_id])
    # What a dropped table had in its chain is of no use without its description, so neither are its digests.
    conn.execute(
        delete(sqltables.commits).where(~exists().where(sqltables.paths.c.id == sqltables.commits.c.table_id))
    )
    _drop_unreferenced(conn, now)


def drop_superseded(conn: Connection, now: float, table_id: int) -> None:
    """Forget the logs of one table that were merged into others and that no reader has in its plan: what a
    merge leaves behind."""
    ids = conn.execute(
        select(sqltables.chains.c.segment_id).where(
            sqltables.chains.c.table_id == table_id,
            sqltables.chains.c.superseded.is_(True),
            sqltables.chains.c.removed <= _oldest_read(conn, now),
        )
    ).scalars()
    for chunk in chunks(list(ids)):
        conn.execute(
            delete(sqltables.chains).where(
                sqltables.chains.c.table_id == table_id, sqltables.chains.c.segment_id.in_(chunk)
            )
        )
        _drop_unreferenced(conn, now, chunk)


def garbage(conn: Connection) -> list[str]:
    return list(conn.execute(select(sqltables.garbage.c.file)).scalars())


def forget_garbage(conn: Connection, files: Iterable[str]) -> None:
    for chunk in chunks(list(files)):
        conn.execute(delete(sqltables.garbage).where(sqltables.garbage.c.file.in_(chunk)))


def known_files(conn: Connection) -> set[str]:
    """Every file that a segment refers to, or that is noted as garbage."""
    used = conn.execute(
        select(sqltables.segments.c.file).where(sqltables.segments.c.file.is_not(None))
    ).scalars()
    return {str(file) for file in used} | set(garbage(conn))


def _oldest_read(conn: Connection, now: float) -> int:
    """The oldest step that a running reader, or a pin, may still look at."""
    in_force = or_(sqltables.pins.c.expires.is_(None), sqltables.pins.c.expires > now)
    pinned = conn.execute(select(func.min(sqltables.pins.c.step)).where(in_force)).scalar_one()
    step = board.current_step(conn)
    return step if pinned is None else min(step, pinned)


def _history(conn: Connection, now: float, history_seconds: float) -> int:
    """The step that was current ``history_seconds`` ago: it and all later ones stay readable."""
    if history_seconds <= 0:
        return board.current_step(conn)
    old = conn.execute(
        select(func.max(sqltables.commits.c.step)).where(sqltables.commits.c.time <= now - history_seconds)
    ).scalar_one()
    return old or 0


def _forget_history(conn: Connection, table_id: int, kept_from: int) -> None:
    conn.execute(
        update(sqltables.tables)
        .where(sqltables.tables.c.path_id == table_id, sqltables.tables.c.kept_from < kept_from)
        .values(kept_from=kept_from)
    )
    last = conn.execute(
        select(func.max(sqltables.commits.c.step)).where(
            sqltables.commits.c.table_id == table_id, sqltables.commits.c.step <= kept_from
        )
    ).scalar_one()
    if last is not None:
        conn.execute(
            delete(sqltables.commits).where(
                sqltables.commits.c.table_id == table_id, sqltables.commits.c.step < last
            )
        )


def _drop_unreferenced(conn: Connection, now: float, among: Sequence[int] | None = None) -> None:
    query = select(sqltables.segments.c.id, sqltables.segments.c.file).where(
        ~exists().where(sqltables.chains.c.segment_id == sqltables.segments.c.id)
    )
    unreferenced = conn.execute(
        query if among is None else query.where(sqltables.segments.c.id.in_(among))
    ).all()
    for chunk in chunks([row.id for row in unreferenced]):
        conn.execute(delete(sqltables.segments).where(sqltables.segments.c.id.in_(chunk)))
    files = [{"file": row.file, "time": now} for row in unreferenced if row.file is not None]
    if files:
        conn.execute(insert(sqltables.garbage), files)
