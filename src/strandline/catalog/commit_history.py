"""The history of a table: its commits, as far as they are kept.

A commit is kept as long as the state that it produced, so this state can be read and restored. When a dropped
table is brought back, its commits are there again, but its states from before the drop cannot be read. Older
versions of Strandline recorded no authors and changed rows, so their commits have NULL there.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import BigInteger, Connection, cast, func, select

from strandline.catalog import chains, paths, sqltables

__all__ = ["CommitEvent", "count_commits", "table_history"]

_KINDS = {
    "create": "CREATE TABLE",
    "schema": "ALTER TABLE",
    "compact": "COMPACTION",
    "merge": "LOG MERGE",
    "rebuild": "REPAIR",
}
"""The statement to show for a commit that recorded no statement, by the kind of the commit."""


class CommitEvent(NamedTuple):
    """A commit to a table. A field is None if its value was not recorded.

    Attributes:
        time: the time of the commit, in seconds since 1970.
        statement: the kind of the statement, or the kinds of several, such as ``UPSERT, DELETE``.
        rows: the number of rows after the commit.
        readable: whether the state after the commit can still be read.
        operation_id: the operation that published the table at this step, such as a restore.
        operation: the kind of this operation.
    """

    step: int
    time: float
    author: str | None
    statement: str | None
    inserted: int | None
    updated: int | None
    deleted: int | None
    rows: int
    readable: bool
    operation_id: str | None = None
    operation: str | None = None


def table_history(conn: Connection, path: str, limit: int | None = None) -> list[CommitEvent]:
    """Return the kept commits of a table, newest first.

    Args:
        limit: maximum number of commits to read; an index finds them. None: all commits.
    """
    table = paths.require(conn, path, "table")
    commit = sqltables.commits.c
    query = select(sqltables.commits).where(commit.table_id == table.id).order_by(commit.step.desc())
    found = conn.execute(query if limit is None else query.limit(limit)).all()
    if not found:
        return []
    kept_from = chains.state(conn, table.id).kept_from
    operations = _operations(conn, table.id, found[-1].step)
    return [
        CommitEvent(
            step=row.step,
            time=row.time,
            author=row.author,
            statement=row.statement or _KINDS.get(row.kind),
            inserted=row.rows if row.kind == "create" else row.inserted,
            updated=row.updated,
            deleted=row.deleted,
            rows=row.rows,
            readable=row.step >= kept_from,
            operation_id=operations.get(row.step, (None, None))[0],
            operation=operations.get(row.step, (None, None))[1],
        )
        for row in found
    ]


def _operations(conn: Connection, table_id: int, since: int) -> dict[int, tuple[str, str | None]]:
    """Return id and kind of the operations that published a table, by step."""
    told, operation = sqltables.board.c, sqltables.operations.c
    rows = conn.execute(
        select(told.step, told.operation_id, operation.kind)
        .select_from(sqltables.board.outerjoin(sqltables.operations, operation.id == told.operation_id))
        .where(told.path_id == table_id, told.step >= since, told.operation_id.is_not(None))
    )
    return {row.step: (row.operation_id, row.kind) for row in rows}


def count_commits(conn: Connection, since: float, seconds: int) -> dict[int, int]:
    """Return the number of kept commits from ``since`` on, by period.

    Args:
        seconds: length of a period. A period is identified by its number since the epoch.
    """
    commit = sqltables.commits.c
    period = (cast(commit.time, BigInteger) // seconds).label("period")
    rows = conn.execute(
        select(period, func.count(commit.step.distinct())).where(commit.time >= since).group_by(period)
    )
    return {int(number): count for number, count in rows}
