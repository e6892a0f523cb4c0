"""Statements, one after the other; consecutive ones that change rows are one commit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.catalog import paths
from strandline.database import backups, ddl, describing, dml, reads, streams
from strandline.database.check import check
from strandline.database.result import Result
from strandline.database.snapshot import Reader, Snapshot
from strandline.database.transaction import Transaction
from strandline.errors import PreconditionFailed, Unsupported
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.database.database import Database


_LOOKS = (
    st.ShowTables,
    st.Describe,
    st.ShowCreateTable,
    st.CheckTable,
    st.ShowBackupCollections,
    st.ShowBackups,
    st.ShowOperations,
    st.ExplainRestore,
)


def execute(db: Database, statements: Sequence[st.Statement]) -> Result:
    """Run all statements; answers the result of the last one."""
    result = Result()
    for changes, group in itertools.groupby(statements, key=lambda s: isinstance(s, st.Change)):
        if changes:
            result = _change(db, [s for s in group if isinstance(s, st.Change)])
        else:
            for statement in group:
                result = _single(db, statement)
    return result


def _change(db: Database, statements: Sequence[st.Change]) -> Result:
    def run(tx: Transaction) -> None:
        for statement in statements:
            dml.execute(tx, statement)

    step, rows = db.transact(run)
    return Result(step=step, rows_changed=rows)


def _single(db: Database, statement: st.Statement) -> Result:
    if isinstance(statement, st.Select):
        return reads.select(_reader(db), statement.query)
    if isinstance(statement, st.Explain):
        frame = reads.query_frame(_reader(db), statement.query, f"EXPLAIN {statement.mode} ")
        return Result(frame=lambda: frame)
    if isinstance(statement, _LOOKS):
        if (shown := backups.execute(db, statement)) is not None:
            return shown
        return _look(db, statement)
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


def _reader(db: Database) -> Reader:
    seconds = db.context.settings.read_seconds
    return db.current_transaction() or Reader(db.context, Snapshot(db.context, None, seconds))


def _look(db: Database, statement: st.Statement) -> Result:
    if isinstance(statement, st.CheckTable):
        report = check(db.context, statement.path)
        rows = [(p.kind, p.path, p.message, [str(k) for k in p.keys]) for p in report.problems]
        return Result(("problem", "path", "message", "keys"), rows)
    with db.context.catalog.read() as conn:
        if isinstance(statement, st.ShowTables):
            found = paths.subtree(conn, paths.require(conn, statement.path))
            listed = [p for p in found if p.type == "table" and p.name != paths.IMPL_TABLE and not p.path.startswith("/.backups/")]
            return Result(("path", "version"), [(p.path, p.version) for p in listed])
        if isinstance(statement, st.ShowCreateTable):
            row = paths.require(conn, statement.path, "table")
            return Result(("statement",), [(describing.create_statement(row),)])
        assert isinstance(statement, st.Describe)
        described = describing.describe(conn, paths.require(conn, statement.path))
        return Result(("property", "value"), [(name, str(value)) for name, value in described.items()])
