"""Statements that read or change rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.api.result import Result
from strandline.catalog.moment import Named
from strandline.sql import statements as st
from strandline.sql.query import Query
from strandline.tables import read, write
from strandline.tables.check import check
from strandline.tables.transaction import Transaction

if TYPE_CHECKING:
    from strandline.api.database import Database


def change(db: Database, statements: Sequence[st.Change]) -> Result:
    """Carry out changes of rows as one commit."""

    def run(tx: Transaction) -> None:
        for statement in statements:
            write.execute(tx, statement)

    step, rows = db.transact(run, [table for statement in statements for table in _changed(statement)])
    return Result(step=step, rows_changed=rows)


def select(db: Database, statement: st.Select) -> Result:
    found = db.look(lambda reader: read.select(reader, statement.query), _read(statement.query))
    return Result(found.columns, found.rows, found.frame)


def explain(db: Database, statement: st.Explain) -> Result:
    frame = db.look(
        lambda reader: read.query_frame(reader, statement.query, f"EXPLAIN {statement.mode} "),
        _read(statement.query),
    )
    return Result(frame=lambda: frame)


def check_table(db: Database, statement: st.CheckTable) -> Result:
    problems = check(db.runtime, statement.path).problems
    rows = [(p.kind, p.path, p.message, [str(k) for k in p.keys]) for p in problems]
    return Result(("problem", "path", "message", "keys"), rows)


def _changed(statement: st.Change) -> list[Named]:
    """The tables that a statement names: the one it changes, and those it reads."""
    match statement:
        case st.Write(path=path, source=source) | st.DeleteOn(path=path, source=source):
            return [Named(path, writes=True), *(_read(source) if isinstance(source, Query) else ())]
        case st.Update(path=path) | st.Delete(path=path):
            return [Named(path, writes=True)]
    return []


def _read(query: Query) -> list[Named]:
    """The tables that a query reads as they are now."""
    return [
        Named(ref.path, ref.index)
        for ref in query.tables
        if ref.version is None and ref.timestamp is None and ref.backup is None
    ]
