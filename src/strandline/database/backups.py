"""BACKUP, RESTORE and the statements that make, change and drop collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.backup.collections import Collection
from strandline.catalog import paths
from strandline.database.restoring import restore_request
from strandline.database.result import Result
from strandline.operations import collections
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.database.database import Database


def execute(db: Database, statement: st.Statement) -> Result | None:
    """Carry out a statement about backups; None if it is not one."""
    match statement:
        case st.CreateBackupCollection():
            made = Collection.of(statement.tables, statement.settings)
            return Result(step=collections.create_collection(db.context.catalog, statement.name, made))
        case st.AlterBackupCollection():
            return _alter(db, statement)
        case st.DropBackupCollection():
            return _drop(db, statement)
        case st.Backup():
            kind = "incremental backup" if statement.incremental else "backup"
            return _operation(db, kind, {"collection": statement.collection}, nowait=statement.nowait)
        case st.Restore():
            return _operation(db, "restore", restore_request(statement).to_json(), nowait=statement.nowait)
    return None


def _operation(db: Database, kind: str, request: dict[str, Any], *, nowait: bool) -> Result:
    operation_id = db.start(kind, request) if nowait else db.run_operation(kind, request).id
    return Result(("operation_id",), [(operation_id,)], operation_id=operation_id)


def _alter(db: Database, statement: st.AlterBackupCollection) -> Result:
    def change(collection: Collection) -> Collection:
        for action in statement.actions:
            match action:
                case st.AddTable():
                    collection = collection.with_table(action.path)
                case st.RemoveTable():
                    collection = collection.without_table(action.path)
                case st.SetSettings():
                    collection = collection.with_settings(action.settings)
                case st.ResetSettings():
                    collection = collection.without_settings(action.names)
        return collection

    return Result(step=collections.alter_collection(db.context.catalog, statement.name, change))


def _drop(db: Database, statement: st.DropBackupCollection) -> Result:
    if statement.if_exists:
        with db.context.catalog.read() as conn:
            if paths.find(conn, f"/.backups/collections/{statement.name}") is None:
                return Result()
    return _operation(db, "drop collection", {"collection": statement.name}, nowait=False)
