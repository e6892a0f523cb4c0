"""Statements that read or change rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.database import dml, reads
from strandline.database.check import check
from strandline.database.result import Result
from strandline.database.transaction import Transaction
from strandline.errors import Internal
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.database.database import Database


def work(db: Database, statements: Sequence[st.Statement]) -> Result:
    """Carry out changes of rows as one commit, or one statement that reads."""
    changes = [s for s in statements if isinstance(s, st.Change)]
    return _change(db, changes) if changes else _read(db, statements[0])


def _change(db: Database, statements: Sequence[st.Change]) -> Result:
    def run(tx: Transaction) -> None:
        for statement in statements:
            dml.execute(tx, statement)

    step, rows = db.transact(run)
    return Result(step=step, rows_changed=rows)


def _read(db: Database, statement: st.Statement) -> Result:
    match statement:
        case st.Select():
            return db.look(lambda reader: reads.select(reader, statement.query))
        case st.Explain():
            frame = db.look(lambda reader: reads.query_frame(reader, statement.query, f"EXPLAIN {statement.mode} "))
            return Result(frame=lambda: frame)
        case st.CheckTable():
            problems = check(db.context, statement.path).problems
            rows = [(p.kind, p.path, p.message, [str(k) for k in p.keys]) for p in problems]
            return Result(("problem", "path", "message", "keys"), rows)
    raise Internal(f"{type(statement).__name__} does not read")
