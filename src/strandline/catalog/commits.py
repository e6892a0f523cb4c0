"""Commits: check in the transaction that a plan is still valid, and publish its changes at one step.

Every change of rows, and every replacement of segments by others with the same rows, goes through this
module. Each of them adds a row to ``commits``: the row count and digest that a table has from this step on,
and the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
# Every commit runs these statements. Built once: SQLAlchemy takes longer to build a statement than SQLite
# takes to answer it.
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
    .values(
        step=bindparam("at"),
        rows=bindparam("now_rows"),
        digest=bindparam("now_digest"),
        committed_bytes=sqltables.tables.c.committed_bytes + bindparam("written"),
    )
)
_COMMITTED = (
    update(sqltables.tables)
    .where(sqltables.tables.c.path_id == bindparam("table"))
    .values(committed_bytes=sqltables.tables.c.committed_bytes + bindparam("written"))
)
_MERGED = (
    update(sqltables.tables)
    .where(sqltables.tables.c.path_id == bindparam("table"))
    .values(merged_bytes=sqltables.tables.c.merged_bytes + bindparam("written"))
)


@dataclass(frozen=True)
class Basis:
    """The state of a table that a change was planned with.

    Attributes:
        version: the version of the table's description.
        read_step: the step of the rows that were read. None: the change depends on no rows of this table. An
            example is a synchronous index: its changes depend only on the rows of the indexed table.
    """

    table_id: int
    version: int
    read_step: int | None


@dataclass(frozen=True)
class CommitNote:
    """Summary of a commit to a table: the kinds of its statements, and the numbers of changed rows."""

    statements: tuple[str, ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def plus(self, statement: str, changed: int, delta: Digest, *, deletes: bool) -> CommitNote:
        """Return the summary with one more write.

        Args:
            statement: the kind of the statement.
            changed: the number of inserted and updated rows; not used if ``deletes``.
            delta: the change of the table's row count and digest.
            deletes: whether the statement deletes rows.
        """
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
    """The change of one table in a commit.

    Attributes:
        segments: the new segments.
        delta: the change of the table's row count and digest.
        note: the summary for the table's history. None: the table belongs to an index.
    """

    segments: tuple[Segment, ...]
    delta: Digest
    note: CommitNote | None = field(default=None, kw_only=True)


def prove(tx: Writer, basis: Basis) -> TableState:
    """Check that a table has not changed since a change was planned with it, and return the table's head.

    Raises Stale if the table was dropped, has another version, no longer keeps the step that was read, or has
    later rows. Raises UNDER_OPERATION if an operation has closed it. Every change that was planned outside a
    transaction is checked by this function inside the transaction.
    """
    return prove_all(tx, [basis])[0]


def prove_all(tx: Writer, bases: Sequence[Basis]) -> list[TableState]:
    """Check many tables as ``prove`` does, and return their heads; raise the error of the first change."""
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

    Raises Stale if one of the tables has changed since the commit was planned.

    Args:
        parts: the changes, one for each table.
        reads: the state of tables that were only read.
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
        {
            "table": table_id,
            "at": tx.step,
            "now_rows": digest.rows,
            "now_digest": digest.hex,
            "written": bytes_of(new[table_id]),
        }
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

    Args:
        kind: ``merge``: the new logs hold exactly the same changes, so only running readers need the old
            ones. ``compact``: streams may still need the old logs. ``rebuild``: the new segments may fold to
            other rows.
        digest: the new digest after a rebuild. None: the rows are the same.
    """
    reaches = chains.replace(tx, table_id, old, merged=kind == "merge")
    chains.attach(tx, table_id, chains.insert_segments(tx, new, tx.step), tx.step, reaches)
    if digest is not None:
        values = {"now_rows": digest.rows, "now_digest": digest.hex}
        tx.conn.execute(_NEW_HEAD, {"table": table_id, "at": tx.step, "written": 0, **values})
    tx.conn.execute(_MERGED, {"table": table_id, "written": bytes_of(new)})
    record(tx, table_id, kind, digest or chains.state(tx.conn, table_id).digest)
    return tx.step


def count_committed(tx: Writer, new: Mapping[int, Sequence[Segment]]) -> None:
    """Count the bytes of the first segments of new tables, by table id, as written by commits."""
    if new:
        tx.conn.execute(_COMMITTED, [{"table": i, "written": bytes_of(found)} for i, found in new.items()])


def bytes_of(segments: Iterable[Segment]) -> int:
    """Return the bytes of segments, in files and in the catalog."""
    return sum(segment.bytes for segment in segments)


def record(tx: Writer, table_id: int, kind: str, digest: Digest) -> None:
    """Record the row count and digest that a table has from the writer's step on."""
    record_all(tx, {table_id: digest}, kind)


def record_all(
    tx: Writer, digests: Mapping[int, Digest], kind: str, notes: Mapping[int, CommitNote] | None = None
) -> None:
    """Record the row counts and digests that tables have from the writer's step on.

    Args:
        digests: the digests, by table id.
        notes: the summaries, by table id. A table without a summary belongs to an index, and its commit is
            recorded without an author. None: there are no summaries, and all commits have an author.
    """
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
    """Return the last step committed at or before a time. None: there is no such step."""
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

    Returns ``after`` if the table has not changed since. The steps come from ``commits`` and from the ends of
    log segments: a commit is deleted when its state can no longer be read, but a stream may keep its log.
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


def first_time_after(conn: Connection, table_id: int, step: int) -> float | None:
    """Return the time of the first commit after a step. None: the table has not changed since."""
    commit_ = sqltables.commits.c
    first = select(func.min(commit_.time)).where(commit_.table_id == table_id, commit_.step > step)
    time: float | None = conn.execute(first).scalar_one()
    return time
