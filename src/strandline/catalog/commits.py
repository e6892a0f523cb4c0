"""Commits: what was planned outside a catalog transaction is proved inside it, and published at one step.

Every change of rows, and every other set of segments for the same rows, goes through here, and leaves a row
of ``commits``: how many rows a table has had from a step on, with which digest, since when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, insert, select, update

from strandline.catalog import chains, sqltables
from strandline.catalog.chains import TableState
from strandline.catalog.paths import CLOSED_STATES, under_operation
from strandline.catalog.stale import RowsChanged, Stale
from strandline.catalog.writer import Writer
from strandline.model import Digest, Segment

# What every commit asks, built once: SQLAlchemy takes longer to build a statement than SQLite to answer it.
_CURRENT = (
    select(
        sqltables.tables, sqltables.paths.c.version, sqltables.paths.c.state, sqltables.paths.c.operation_id
    )
    .select_from(
        sqltables.paths.outerjoin(sqltables.tables, sqltables.tables.c.path_id == sqltables.paths.c.id)
    )
    .where(sqltables.paths.c.id == bindparam("table"))
)
_NEW_HEAD = (
    update(sqltables.tables)
    .where(sqltables.tables.c.path_id == bindparam("table"))
    .values(step=bindparam("at"), rows=bindparam("now_rows"), digest=bindparam("now_digest"))
)


@dataclass(frozen=True)
class Basis:
    """What a change was planned with: a table by its id, its version, and the step at which the rows were
    read that the change depends on (None: on none of its rows, as for a synchronous index, which follows its
    table)."""

    table_id: int
    version: int
    read_step: int | None


@dataclass(frozen=True)
class TableChange(Basis):
    """What one commit does to one table."""

    segments: tuple[Segment, ...]
    delta: Digest


def prove(tx: Writer, basis: Basis) -> TableState:
    """Return the head of a table that is still as a change was planned with: the same table, at the same
    version, open, keeping the step that was read, and without rows that came later. Every change that was
    planned outside its transaction proves this inside it."""
    row = tx.conn.execute(_CURRENT, {"table": basis.table_id}).one_or_none()
    if row is None:
        raise Stale(basis.table_id, "it was dropped")
    if row.state in CLOSED_STATES:
        raise under_operation(f"table {basis.table_id} is {row.state}", row.operation_id)
    if row.version != basis.version:
        raise Stale(basis.table_id, f"its version is {row.version}, planned with {basis.version}")
    head = chains.state_of(row)
    if basis.read_step is not None:
        chains.check_kept(head, basis.read_step)
        if head.step > basis.read_step:
            raise RowsChanged(basis.table_id, "rows were committed since it was read")
    return head


def commit(tx: Writer, parts: Sequence[TableChange], reads: Sequence[Basis] = ()) -> int:
    """Publish the segments of all tables at the writer's step, and return it; Stale if one of them, or one
    that was only read, is not as it was planned with."""
    for read in reads:
        prove(tx, read)
    heads = [prove(tx, part) for part in parts]
    for part, head in zip(parts, heads, strict=True):
        digest = head.digest + part.delta
        chains.attach(tx, part.table_id, chains.insert_segments(tx, part.segments, tx.step), tx.step)
        record(tx, part.table_id, "data", digest)
        tx.conn.execute(
            _NEW_HEAD,
            {"table": part.table_id, "at": tx.step, "now_rows": digest.rows, "now_digest": digest.hex},
        )
    return tx.step


def replace_segments(
    tx: Writer,
    table_id: int,
    old: Sequence[Segment],
    new: Sequence[Segment],
    kind: str,
    *,
    digest: Digest | None = None,
) -> int:
    """Commit what changes no state: other segments that fold to the same rows. ``kind`` merge: the new log
    segments hold the very same changes, so nothing needs the old ones; ``kind`` compact: streams may still
    need the old logs. A ``digest`` is given only by a rebuild, whose segments fold to other rows than the old
    ones."""
    reaches = chains.replace(tx, table_id, old, merged=kind == "merge")
    chains.attach(tx, table_id, chains.insert_segments(tx, new, tx.step), tx.step, reaches)
    if digest is not None:
        values = {"now_rows": digest.rows, "now_digest": digest.hex}
        tx.conn.execute(_NEW_HEAD, {"table": table_id, "at": tx.step, **values})
    record(tx, table_id, kind, digest or chains.state(tx.conn, table_id).digest)
    return tx.step


def record(tx: Writer, table_id: int, kind: str, digest: Digest) -> None:
    """Note what the table is from the writer's step on."""
    row = {
        "table_id": table_id,
        "step": tx.step,
        "kind": kind,
        "rows": digest.rows,
        "digest": digest.hex,
        "time": tx.now,
    }
    tx.conn.execute(insert(sqltables.commits), row)


def step_at(conn: Connection, time: float) -> int | None:
    """Return the last step that had been committed at a time; None if there was none."""
    step: int | None = conn.execute(
        select(func.max(sqltables.commits.c.step)).where(sqltables.commits.c.time <= time)
    ).scalar_one()
    return step


def commits_since(conn: Connection, table_id: int | None, step: int) -> int:
    """Return how many commits of rows a table has had after ``step``."""
    at = sqltables.commits.c
    query = select(func.count()).select_from(sqltables.commits)
    found = conn.execute(query.where(at.table_id == table_id, at.step > step, at.kind == "data"))
    return int(found.scalar_one())


def stop_after(conn: Connection, table_id: int | None, after: int, count: int) -> int:
    """Return the last of the next ``count`` steps after ``after`` at which the table was changed; ``after``
    if there is none. Commits are forgotten when their state can no longer be read, so the ends of the logs
    count as well."""
    chain, segment, commit_ = sqltables.chains.c, sqltables.segments.c, sqltables.commits.c
    commits = select(commit_.step).where(commit_.table_id == table_id, commit_.step > after)
    logs = (
        select(segment.upto)
        .join(sqltables.chains, chain.segment_id == segment.id)
        .where(
            chain.table_id == table_id,
            chain.superseded.is_(False),
            segment.role == "log",
            segment.upto > after,
        )
    )
    stops = commits.union(logs).order_by("step").limit(count).subquery()
    last: int | None = conn.execute(select(func.max(stops.c.step))).scalar_one()
    return after if last is None else last
