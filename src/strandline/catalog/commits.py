"""Commits: check in the transaction what was planned outside it, and publish all of it at one step.

Every change of rows, and every replacement of segments by others with the same rows, goes through this
module. Each adds a row to ``commits``: row count and digest of a table from a step on, and the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select, update

from strandline.catalog import chains, sqltables
from strandline.catalog.chains import TableState
from strandline.catalog.conflicts import RowsChanged, Stale
from strandline.catalog.paths import CLOSED_STATES, under_operation
from strandline.catalog.sessions import this_user
from strandline.catalog.transactions import Writer
from strandline.model import Digest, Segment

_COLUMNS = (
    *("table_id", "step", "kind", "rows", "digest", "time"),
    *("author", "statement", "inserted", "updated", "deleted"),
)
# Run by every commit. Built once: SQLAlchemy takes longer to build a statement than SQLite takes to answer
# it.
_CURRENT = (
    select(
        sqltables.tables,
        sqltables.paths.c.id,
        sqltables.paths.c.version,
        sqltables.paths.c.state,
        sqltables.paths.c.operation_id,
    )
    .select_from(
        sqltables.paths.outerjoin(sqltables.tables, sqltables.tables.c.path_id == sqltables.paths.c.id)
    )
    .where(sqltables.among(sqltables.paths.c.id, "tables"))
)
_NEW_HEAD = (
    update(sqltables.tables)
    .where(sqltables.tables.c.path_id == bindparam("table"))
    .values(step=bindparam("at"), rows=bindparam("now_rows"), digest=bindparam("now_digest"))
)


@dataclass(frozen=True)
class Basis:
    """The state that a change was planned with: a table's id, version, and the step of the rows read.

    ``read_step`` is None if the change depends on no rows of the table, as for a synchronous index, which
    follows its table.
    """

    table_id: int
    version: int
    read_step: int | None


@dataclass(frozen=True)
class CommitNote:
    """What a commit did to a table: the kinds of its statements, and how many rows they changed."""

    statements: tuple[str, ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def plus(self, statement: str, changed: int, delta: Digest, *, deletes: bool) -> CommitNote:
        """Add a write of one kind: how many rows it changed, and by how many their number grew."""
        said = self.statements if statement in self.statements else (*self.statements, statement)
        if deletes:
            return replace(self, statements=said, deleted=self.deleted - delta.rows)
        return replace(
            self,
            statements=said,
            inserted=self.inserted + delta.rows,
            updated=self.updated + changed - delta.rows,
        )


@dataclass(frozen=True)
class TableChange(Basis):
    """The change of one table in a commit. ``note`` is None for an index."""

    segments: tuple[Segment, ...]
    delta: Digest
    note: CommitNote | None = field(default=None, kw_only=True)


def prove(tx: Writer, basis: Basis) -> TableState:
    """Return the head of a table if it is still as the change was planned with; else raise Stale.

    The table must exist at the same version, be open, keep the step that was read, and have no later rows.
    Every change that was planned outside its transaction is checked by this function inside it.
    """
    return prove_all(tx, [basis])[0]


def prove_all(tx: Writer, bases: Sequence[Basis]) -> list[TableState]:
    """Return the heads of tables as ``prove`` does; raise the error of the first that has changed."""
    rows = tx.conn.execute(_CURRENT, {"tables": [basis.table_id for basis in bases]})
    found = {row.id: row for row in rows}
    return [_prove(basis, found.get(basis.table_id)) for basis in bases]


def _prove(basis: Basis, row: Row[Any] | None) -> TableState:
    if row is None:
        raise Stale(basis.table_id, "it was dropped")
    if row.state in CLOSED_STATES:
        raise under_operation(f"table {basis.table_id}", row.state, row.operation_id)
    if row.version != basis.version:
        raise Stale(basis.table_id, f"its version is {row.version}, planned with {basis.version}")
    head = chains.state_of(row)
    if basis.read_step is not None:
        chains.check_kept(head, basis.read_step)
        if head.step > basis.read_step:
            raise RowsChanged(basis.table_id, "rows were committed since it was read")
    return head


def commit(tx: Writer, parts: Sequence[TableChange], reads: Sequence[Basis] = ()) -> int:
    """Publish the segments of all tables at the writer's step, and return the step.

    Raises Stale if one of the tables, or one that was only read, has changed since it was planned with.
    """
    heads = prove_all(tx, [*reads, *parts])[len(reads) :]
    if not parts:
        return tx.step
    new = {part.table_id: part.segments for part in parts}
    chains.attach_all(tx, chains.insert_all(tx, new, tx.step), tx.step)
    digests = {part.table_id: head.digest + part.delta for part, head in zip(parts, heads, strict=True)}
    notes = {part.table_id: part.note for part in parts if part.note is not None}
    record_all(tx, digests, "data", notes)
    changed = [
        {"table": table_id, "at": tx.step, "now_rows": digest.rows, "now_digest": digest.hex}
        for table_id, digest in digests.items()
    ]
    tx.conn.execute(_NEW_HEAD, changed)
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
    """Replace segments by others that fold to the same rows; return the writer's step.

    ``kind`` ``merge``: the new logs hold exactly the same changes, so nothing needs the old ones. ``kind``
    ``compact``: streams may still need the old logs. Only a rebuild gives a ``digest``: its segments fold to
    other rows than the old ones.
    """
    reaches = chains.replace(tx, table_id, old, merged=kind == "merge")
    chains.attach(tx, table_id, chains.insert_segments(tx, new, tx.step), tx.step, reaches)
    if digest is not None:
        values = {"now_rows": digest.rows, "now_digest": digest.hex}
        tx.conn.execute(_NEW_HEAD, {"table": table_id, "at": tx.step, **values})
    record(tx, table_id, kind, digest or chains.state(tx.conn, table_id).digest)
    return tx.step


def record(tx: Writer, table_id: int, kind: str, digest: Digest) -> None:
    """Record row count and digest of a table from the writer's step on."""
    record_all(tx, {table_id: digest}, kind)


def record_all(
    tx: Writer, digests: Mapping[int, Digest], kind: str, notes: Mapping[int, CommitNote] | None = None
) -> None:
    """Record the digests of tables. ``notes`` None: the author is recorded for all of them."""
    author = this_user()
    rows = []
    for i, digest in digests.items():
        note = None if notes is None else notes.get(i)
        known = (
            (None, 0, 0, 0)
            if note is None
            else (", ".join(note.statements), note.inserted, note.updated, note.deleted)
        )
        told = (None,) * 5 if notes is not None and note is None else (author, *known)
        rows.append((i, tx.step, kind, digest.rows, digest.hex, tx.now, *told))
    tx.insert(sqltables.commits, _COLUMNS, rows)


def step_at(conn: Connection, time: float) -> int | None:
    """Return the last step committed at or before a time, or None."""
    step: int | None = conn.execute(
        select(func.max(sqltables.commits.c.step)).where(sqltables.commits.c.time <= time)
    ).scalar_one()
    return step


def commits_since(conn: Connection, table_id: int | None, step: int) -> int:
    """Return the number of commits of rows to a table after ``step``."""
    at = sqltables.commits.c
    query = select(func.count()).select_from(sqltables.commits)
    found = conn.execute(query.where(at.table_id == table_id, at.step > step, at.kind == "data"))
    return int(found.scalar_one())


def stop_after(conn: Connection, table_id: int | None, after: int, count: int) -> int:
    """Return the last of the next ``count`` steps after ``after`` at which the table changed.

    Returns ``after`` if the table has not changed since. Commits are deleted when their state can no longer
    be read, so the ends of the logs count as well.
    """
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
