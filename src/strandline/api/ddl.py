"""Handlers of CREATE, ALTER and DROP TABLE, with indexes and changefeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline import names
from strandline.api import stream
from strandline.api.result import Result
from strandline.backups.rename import rename_table
from strandline.sql import statements as st
from strandline.tables import ddl

if TYPE_CHECKING:
    from strandline.api.database import Database


def create_table(db: Database, statement: st.CreateTable) -> Result:
    if statement.source is not None:
        from strandline.api.create_table import create_with_rows  # Imported late: only rows need Arrow.

        return create_with_rows(db, statement, statement.source)
    return Result(step=ddl.create_table(db._runtime, statement))


def alter_table(db: Database, statement: st.AlterTable) -> Result:
    match statement.actions:
        case (st.RenameTable() as action,):
            return Result(step=rename_table(db._runtime, statement.path, action.to))
        case (st.AddChangefeed() as action,):
            names.check_place(statement.path)
            stream.add_changefeed(db, statement.path, action)
            return Result()
        case (st.AlterChangefeed() as action,):
            names.check_place(statement.path)
            stream.alter_changefeed(db, statement.path, action)
            return Result()
        case (st.DropChangefeed() as action,):
            names.check_no_backup(statement.path)
            stream.drop_changefeed(db, statement.path, action.name)
            return Result()
    return Result(step=ddl.alter_table(db._runtime, statement))


def drop_table(db: Database, statement: st.DropTable) -> Result:
    return Result(step=ddl.drop_table(db._runtime, statement))


def undrop_table(db: Database, statement: st.UndropTable) -> Result:
    return Result(step=ddl.undrop_table(db._runtime, statement))
