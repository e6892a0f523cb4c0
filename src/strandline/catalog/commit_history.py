"""The history of a table: its commits, as far as they are kept.

A commit is kept as long as the state of the table after it, which can be read and brought back. The commits
of a table that was dropped come back with it, but its states before that cannot be read. Commits of versions
without authors and numbers of rows have NULL there.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, select

from strandline.catalog import chains, paths, sqltables

__all__ = ["CommitEvent", "table_history"]

_KINDS = {
    "create": "CREATE TABLE",
    "schema": "ALTER TABLE",
    "compact": "COMPACTION",
    "merge": "LOG MERGE",
    "rebuild": "REPAIR",
}
"""What commits of other kinds than changes of rows are called."""


class CommitEvent(NamedTuple):
    """A commit to a table.

    ``statement`` is the kind of the statement, or of several, such as ``UPSERT, DELETE``. ``rows`` is the
    number of rows afterwards, and ``readable`` whether they can still be read. ``operation_id``: the
    operation that published the table at this step, such as a restore, and ``operation`` its kind. ``time``
    is in seconds since 1970. What is not recorded is None.
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
    """Return the kept commits of a table, newest first. Reads ``limit`` of them, by an index."""
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
    """Return the operations that published a table, with their kinds, by step."""
    told, operation = sqltables.board.c, sqltables.operations.c
    rows = conn.execute(
        select(told.step, told.operation_id, operation.kind)
        .select_from(sqltables.board.outerjoin(sqltables.operations, operation.id == told.operation_id))
        .where(told.path_id == table_id, told.step >= since, told.operation_id.is_not(None))
    )
    return {row.step: (row.operation_id, row.kind) for row in rows}
