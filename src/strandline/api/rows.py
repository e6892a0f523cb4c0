"""Statements that read or change rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.api.result import Result
from strandline.sql import statements as st
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

    step, rows = db.transact(run)
    return Result(step=step, rows_changed=rows)


def select(db: Database, statement: st.Select) -> Result:
    found = db.look(lambda reader: read.select(reader, statement.query))
    return Result(found.columns, found.rows, found.frame)


def explain(db: Database, statement: st.Explain) -> Result:
    frame = db.look(lambda reader: read.query_frame(reader, statement.query, f"EXPLAIN {statement.mode} "))
    return Result(frame=lambda: frame)


def check_table(db: Database, statement: st.CheckTable) -> Result:
    problems = check(db.runtime, statement.path).problems
    rows = [(p.kind, p.path, p.message, [str(k) for k in p.keys]) for p in problems]
    return Result(("problem", "path", "message", "keys"), rows)
