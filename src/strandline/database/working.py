"""Statements that read or change rows, or change what exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.database import backups, ddl, dml, reads, streams
from strandline.database.check import check
from strandline.database.result import Result
from strandline.database.snapshot import Reader, Snapshot
from strandline.database.transaction import Transaction
from strandline.errors import PreconditionFailed, Unsupported
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.database.database import Database


def work(db: Database, statements: Sequence[st.Statement]) -> Result:
    """Carry out changes of rows as one commit, or one statement of another kind."""
    changes = [s for s in statements if isinstance(s, st.Change)]
    if changes:
        return _change(db, changes)
    (statement,) = statements
    return _read(db, statement) or _define(db, statement)


def _change(db: Database, statements: Sequence[st.Change]) -> Result:
    def run(tx: Transaction) -> None:
        for statement in statements:
            dml.execute(tx, statement)

    step, rows = db.transact(run)
    return Result(step=step, rows_changed=rows)


def _read(db: Database, statement: st.Statement) -> Result | None:
    """The result of a statement that only reads; None if it does more."""
    match statement:
        case st.Select():
            return reads.select(_reader(db), statement.query)
        case st.Explain():
            frame = reads.query_frame(_reader(db), statement.query, f"EXPLAIN {statement.mode} ")
            return Result(frame=lambda: frame)
        case st.CheckTable():
            problems = check(db.context, statement.path).problems
            rows = [(p.kind, p.path, p.message, [str(k) for k in p.keys]) for p in problems]
            return Result(("problem", "path", "message", "keys"), rows)
    return None


def _reader(db: Database) -> Reader:
    seconds = db.context.settings.read_seconds
    return db.current_transaction() or Reader(db.context, Snapshot(db.context, None, seconds))


def _define(db: Database, statement: st.Statement) -> Result:
    if db.current_transaction() is not None:
        raise PreconditionFailed(
            "only statements that read or change rows can be part of a transaction", "Run this statement before or after the transaction."
        )
    match statement:
        case st.CreateTable():
            return Result(step=ddl.create_table(db.context, statement))
        case st.AlterTable(path=path, actions=(st.AddChangefeed() as action,)):
            ddl.check_writable_path(path)
            streams.add_changefeed(db, path, action)
            return Result()
        case st.AlterTable(path=path, actions=(st.DropChangefeed() as action,)):
            ddl.check_writable_path(path)
            streams.drop_changefeed(db, path, action.name)
            return Result()
        case st.AlterTable():
            return Result(step=ddl.alter_table(db.context, statement))
        case st.DropTable():
            return Result(step=ddl.drop_table(db.context, statement))
    result = backups.execute(db, statement)
    if result is None:
        raise Unsupported(f"{type(statement).__name__} is not something that can be run")
    return result
