"""BACKUP, RESTORE and what belongs to them, as statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.backup.collections import Collection
from strandline.backup.records import BackupRecord, chain_to, slices_of
from strandline.catalog import chains, paths
from strandline.database.check import Problem, damaged_files
from strandline.database.result import Result
from strandline.errors import InvalidArgument, StrandlineError
from strandline.names import did_you_mean
from strandline.operations import collections
from strandline.operations.backup import backup_records, require_collection
from strandline.operations.restore_plan import RestoreRequest, plan_restore
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.database.database import Database

RESTORE_SETTINGS = ("VERIFY", "MODE", "DEADLINE")


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
            return _operation(db, "restore", _request(statement).to_json(), nowait=statement.nowait)
        case st.ExplainRestore():
            request = _request(statement.restore)
            with db.context.catalog.read() as conn:
                lines = list(plan_restore(conn, request).explain(copy=request.copy))
            return Result(("what", "name", "details"), lines)
        case st.ShowBackupCollections():
            return _show_collections(db)
        case st.ShowBackups():
            return _show_backups(db, statement.collection)
        case st.ShowOperations():
            rows = [(o.id, o.kind, o.state, o.percent, o.error["message"] if o.error else None) for o in db.operations()]
            return Result(("id", "kind", "state", "percent", "error"), rows)
    return None


def verify(db: Database, collection: str) -> list[Problem]:
    """Check every backup of a collection without restoring it: its chain, the arithmetic of its digests, and its files."""
    problems: list[Problem] = []
    with db.context.catalog.read() as conn:
        path = require_collection(conn, collection)
        records = backup_records(conn, path)
    checked: set[int] = set()
    for record in records:
        at = f"{path.path}/{record.name}"
        try:
            chain = chain_to(records, record.name)
            for table, contents in record.tables.items():
                slices_of(chain, table)
                for index in contents.indexes:
                    slices_of(chain, table, index.definition.name)
        except StrandlineError as error:
            problems.append(Problem("broken_chain", at, error.message))
        for slice_ in record.slices:
            if slice_.target_id is not None and slice_.target_id not in checked:
                checked.add(slice_.target_id)
                problems += _damaged(db, slice_.target_id, record, at)
    return problems


def _damaged(db: Database, target_id: int, record: BackupRecord, at: str) -> list[Problem]:
    with db.context.catalog.read() as conn:
        chain = chains.load(conn, target_id, record.step)
    return list(damaged_files(db.context, at, chain))


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


def _request(statement: st.Restore) -> RestoreRequest:
    settings: dict[str, Any] = {}
    for name, value in statement.settings:
        if name not in RESTORE_SETTINGS:
            raise InvalidArgument(
                f"RESTORE has no setting {name}", did_you_mean(name, RESTORE_SETTINGS) or f"It has {', '.join(RESTORE_SETTINGS)}."
            )
        if name in settings:
            raise InvalidArgument(f"the setting {name} is given twice", "Give each setting once.")
        settings[name] = value
    verify_ = _one_of("VERIFY", settings.get("VERIFY", "digests"), ("digests", "data"))
    mode = _one_of("MODE", settings.get("MODE", "reference"), ("reference", "copy"))
    return RestoreRequest(
        statement.collection,
        statement.at_backup,
        None if statement.at_timestamp is None else statement.at_timestamp.timestamp(),
        tuple((t.path, t.as_path) for t in statement.tables),
        statement.into,
        verify_ == "data",
        mode == "copy",
        _seconds(settings.get("DEADLINE")),
    )


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidArgument(f"{name} cannot be {value!r}", f"It is one of {', '.join(repr(a) for a in allowed)}.")
    return str(value)


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise InvalidArgument(f"DEADLINE must be a number of seconds, not {value!r}", "Write DEADLINE = 3600.")
    return seconds


def _show_collections(db: Database) -> Result:
    rows = []
    with db.context.catalog.read() as conn:
        root = paths.find(conn, "/.backups/collections")
        for path in paths.children(conn, root) if root is not None else []:
            if path.type != "backup_collection":
                continue
            collection = Collection.from_json(path.body)
            tables = "DATABASE" if collection.tables is None else ", ".join(collection.tables)
            count = len(backup_records(conn, path))
            rows.append((path.name, tables, collection.incremental, collection.omit_indexes, count, path.state))
    return Result(("name", "tables", "incremental", "omit_indexes", "backups", "state"), rows)


def _show_backups(db: Database, collection: str) -> Result:
    rows: list[tuple[Any, ...]] = []
    with db.context.catalog.read() as conn:
        for path in paths.children(conn, require_collection(conn, collection)):
            if path.state == "creating":
                rows.append((path.name, path.name.rsplit("_", 1)[1], None, None, None, None, None, path.state))
                continue
            record = BackupRecord.from_json(path.body)
            state = "done" if path.state == "ready" else path.state
            rows.append((record.name, record.kind, record.parent, record.step, len(record.tables), record.rows, record.bytes, state))
    return Result(("name", "kind", "parent", "step", "tables", "rows", "bytes", "state"), rows)
