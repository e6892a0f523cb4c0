"""Statements that change what exists: tables, indexes, changefeeds, backups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.database import backups, ddl, streams
from strandline.database.result import Result
from strandline.errors import PreconditionFailed, Unsupported
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.database.database import Database


def define(db: Database, statement: st.Statement) -> Result:
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
