"""BACKUP, RESTORE and the statements that make, change and drop collections."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.api.result import Result, moment
from strandline.backups import lifecycle
from strandline.backups.attach import attach, name_in
from strandline.backups.collection import (
    ENCRYPTION,
    Collection,
    CollectionRequest,
    CompactRequest,
    MergeRequest,
    SendRequest,
    boolean,
    repository_of,
)
from strandline.backups.full import FullNeeded
from strandline.backups.options import LIMITS, limits_of, options_of
from strandline.backups.record import collection_path
from strandline.backups.restore_request import restore_request
from strandline.backups.verify_request import verify_settings
from strandline.catalog import paths
from strandline.records import Record
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.api.database import Database


def create_collection(db: Database, statement: st.CreateBackupCollection) -> Result:
    made = Collection.of(statement.tables, statement.settings)
    return Result(step=lifecycle.create_collection(db.runtime.catalog, statement.name, made))


def alter_collection(db: Database, statement: st.AlterBackupCollection) -> Result:
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

    return Result(step=lifecycle.alter_collection(db.runtime.catalog, statement.name, change))


def drop_collection(db: Database, statement: st.DropBackupCollection) -> Result:
    if statement.if_exists:
        with db.runtime.catalog.read() as conn:
            if paths.find(conn, collection_path(statement.name)) is None:
                return Result()
    return _operation(db, "drop collection", CollectionRequest(collection=statement.name))


def backup(db: Database, statement: st.Backup) -> Result:
    kind, request = requested(db, statement)
    try:
        return _operation(db, kind, request, nowait=statement.nowait)
    except FullNeeded as error:
        # Raised when the increment is planned, before anything is changed.
        if not statement.or_full:
            raise
        request = replace(request, because=error.message)
        return _operation(db, "backup", request, nowait=statement.nowait)


def copy_backup(db: Database, statement: st.CopyBackup) -> Result:
    return _operation(db, *requested(db, statement), nowait=statement.nowait)


def compact(db: Database, statement: st.CompactBackups) -> Result:
    return _operation(db, *requested(db, statement), nowait=statement.nowait)


def requested(db: Database, statement: st.Statement) -> tuple[str, Any]:
    """Return which kind of operation a statement asks for, and the request."""
    match statement:
        case st.Backup():
            limits = db.runtime.limits
            if statement.settings:
                limits = limits_of(options_of("BACKUP", statement.settings, LIMITS), limits)
            request = CollectionRequest(collection=statement.collection, limits=limits)
            return "incremental backup" if statement.incremental else "backup", request
        case st.CopyBackup():
            given = options_of("COPY BACKUP", statement.settings, (ENCRYPTION, *LIMITS))
            return "send backup", SendRequest(
                collection=statement.collection,
                backup=statement.backup,
                url=repository_of(statement.url),
                encryption=boolean(ENCRYPTION, given[ENCRYPTION]) if ENCRYPTION in given else None,
                limits=limits_of(given, db.runtime.limits),
            )
        case st.CompactBackups(collection=collection, backup=backup):
            limits = limits_of(options_of("COMPACT", statement.settings, LIMITS), db.runtime.limits)
            if statement.increments:
                return "merge increments", MergeRequest(
                    collection=collection, backup=backup, first=statement.first, limits=limits
                )
            return "compact backups", CompactRequest(collection=collection, backup=backup, limits=limits)
    raise AssertionError(statement)


def attach_collection(db: Database, statement: st.AttachBackupCollection) -> Result:
    """Return what was found in the repository, backup by backup."""
    given = options_of("ATTACH", statement.settings, ("TAKE_OVER",))
    take_over = boolean("TAKE_OVER", given.get("TAKE_OVER", False))
    step, found = attach(db.runtime, statement.name, repository_of(statement.url), take_over=take_over)
    rows = [
        (
            each.name,
            each.manifest.backup.kind if each.manifest else None,
            len(each.manifest.backup.tables) if each.manifest else None,
            each.manifest.backup.rows if each.manifest else None,
            each.problem or "attached",
        )
        for each in found
    ]
    return Result(("backup", "kind", "tables", "rows", "state"), rows, step=step)


def collection_in(db: Database, url: str) -> str:
    """Return the name of the collection whose backups a repository holds."""
    with db.guard():
        return name_in(db.runtime, repository_of(url))


def restore(db: Database, statement: st.Restore) -> Result:
    return _operation(db, "restore", restore_request(statement, db.runtime.limits), nowait=statement.nowait)


def verify(db: Database, statement: st.Verify) -> Result:
    """Return how each backup was found; and what is wrong with none of them but with their repository."""
    given = verify_settings(statement.settings)
    report = db.verify(statement.collection, at=statement.at_backup, **given)
    rows: list[tuple[Any, ...]] = [
        (b.backup, b.level, b.objects, b.bytes, b.problems, b.restorable, moment(b.verified_at), b.because)
        for b in report.backups
    ]
    for problem in report:
        if all(not problem.path.endswith(f"/{b.backup}") for b in report.backups):
            rows.append((None, report.level, 0, 0, 1, None, None, problem.message))
    columns = ("backup", "level", "objects", "bytes", "problems", "restorable", "verified_at", "because")
    return Result(columns, rows)


def _operation(db: Database, kind: str, request: Record, *, nowait: bool = False) -> Result:
    operation_id = db.start(kind, request) if nowait else db.run_operation(kind, request)
    return Result(("operation_id",), [(operation_id,)], operation_id=operation_id)
