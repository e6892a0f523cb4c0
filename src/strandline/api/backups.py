"""Handlers of BACKUP, RESTORE and the statements that create, change and drop collections."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.api.result import Result, moment
from strandline.backups import collection_ddl
from strandline.backups.backup.full import FullNeeded, full_because
from strandline.backups.collection import (
    CHECK,
    CLUSTER,
    ENCRYPTION,
    REPOSITORY,
    CollectionRecord,
    CollectionRequest,
    CompactRequest,
    MergeRequest,
    SendRequest,
    repository_id,
    repository_of,
)
from strandline.backups.collection_ddl import (
    DropCollection,
    DropCollectionRequest,
    DroppedCollection,
    what_goes,
)
from strandline.backups.collection_ddl import undrop_collection as undrop
from strandline.backups.options import LIMITS, limits_of
from strandline.backups.record import collection_path
from strandline.backups.repository.attach import attach, name_in
from strandline.backups.restore.restore_request import restore_request
from strandline.backups.verify.verify_request import verify_settings
from strandline.catalog import paths
from strandline.errors import HAPPENED, InvalidArgument, StrandlineError, Unavailable
from strandline.records import Record
from strandline.sql import statements as st
from strandline.sql.options import StatementOptions, read_boolean
from strandline.storage.repository_marker import Expected

if TYPE_CHECKING:
    from strandline.api.database import Database


def create_collection(db: Database, statement: st.CreateBackupCollection) -> Result:
    settings, check = _with_check(statement.settings)
    made = CollectionRecord.of(statement.tables, settings)
    given = {name for name, _ in settings}
    if (
        ENCRYPTION not in given
        and made.settings.storage != CLUSTER
        and db._runtime.settings.has_repository_key
    ):
        # A key is configured: refuse an existing repository that is not encrypted. With CHECK = 'false', the
        # repository may be unreachable.
        with nullcontext() if check else suppress(Unavailable):
            db._runtime.files.open_anew(made.settings.storage)
    step = collection_ddl.create_collection(db._runtime, statement.name, made, check=check)
    return Result(step=step, warnings=_missing_tables(db, made))


def _with_check(settings: Sequence[st.Setting]) -> tuple[list[st.Setting], bool]:
    """Return the settings to store, and whether to check the storage (the setting CHECK)."""
    said = [read_boolean(CHECK, value) for name, value in settings if name == CHECK]
    if len(said) > 1:
        raise InvalidArgument(f"the setting {CHECK} is given twice", "Give each setting once.")
    return [setting for setting in settings if setting[0] != CHECK], all(said)


def _missing_tables(db: Database, collection: CollectionRecord) -> list[str]:
    with db._runtime.catalog.read() as conn:
        return collection_ddl.missing_tables(conn, collection)


def alter_collection(db: Database, statement: st.AlterBackupCollection) -> Result:
    added = [action.path for action in statement.actions if isinstance(action, st.AddTable)]
    given = {
        id(action): _with_check(action.settings)
        for action in statement.actions
        if isinstance(action, st.SetSettings)
    }

    def change(collection: CollectionRecord) -> CollectionRecord:
        for action in statement.actions:
            match action:
                case st.AddTable():
                    collection = collection.with_table(action.path)
                case st.RemoveTable():
                    collection = collection.without_table(action.path)
                case st.SetSettings():
                    collection = collection.with_settings(given[id(action)][0])
                case st.ResetSettings():
                    collection = collection.without_settings(action.names)
        return collection

    check = all(checked for _, checked in given.values())
    step = collection_ddl.alter_collection(db._runtime, statement.name, change, check=check)
    return Result(step=step, warnings=_missing_tables(db, CollectionRecord(tables=tuple(added))))


def drop_collection(db: Database, statement: st.DropBackupCollection) -> Result:
    if statement.if_exists:
        with db._runtime.catalog.read() as conn:
            if paths.find(conn, collection_path(statement.name)) is None:
                return Result()
    request = DropCollectionRequest(collection=statement.name, purge=statement.purge)
    operation_id = db._operations.run(DropCollection.name, request)
    try:
        found = db.operation(operation_id).result or {}
    except StrandlineError as error:
        error.about(operation_id, HAPPENED, "The collection is dropped.")
        raise
    columns = ("collection", "backups", "bytes", "until", "repository", "kept", "unsent")
    values = {**found, "until": moment(found["until"])}
    row = (operation_id, *(values[name] for name in columns))
    return Result(("operation_id", *columns), [row], operation_id=operation_id)


def about_to_drop(db: Database, statement: st.DropBackupCollection) -> DroppedCollection | None:
    """Return the result that DROP would have. None: the collection does not exist."""
    runtime = db._runtime
    with db._guard(), runtime.catalog.read() as conn:
        path = paths.find(conn, collection_path(statement.name))
        if path is None:
            return None
        return what_goes(conn, path, runtime.clock.now(), purge=statement.purge)


def undrop_collection(db: Database, statement: st.UndropBackupCollection) -> Result:
    found, step = undrop(db._runtime, statement.name, statement.as_name)
    with db._runtime.catalog.read() as conn:
        count = len(paths.backups(conn, found))
    is_incremental = found.record(CollectionRecord).settings.incremental
    ended = "full: its streams ended when it was dropped" if is_incremental and count else "full"
    return Result(("collection", "backups", "next_backup"), [(found.name, count, ended)], step=step)


def backup(db: Database, statement: st.Backup) -> Result:
    kind, request = build_request(db, statement)
    try:
        return _operation(db, kind, request, nowait=statement.nowait)
    except FullNeeded as error:
        # Raised when the increment is planned, before anything is changed.
        if not statement.or_full:
            raise
        request = replace(request, because=error.message)
        return _operation(db, "backup", request, nowait=statement.nowait)


def copy_backup(db: Database, statement: st.CopyBackup) -> Result:
    return _operation(db, *build_request(db, statement), nowait=statement.nowait)


def compact(db: Database, statement: st.CompactBackups) -> Result:
    return _operation(db, *build_request(db, statement), nowait=statement.nowait)


def build_request(db: Database, statement: st.Statement) -> tuple[str, Any]:
    """Return the kind of operation that a statement starts, and its request."""
    match statement:
        case st.Backup():
            limits = limits_of(StatementOptions("BACKUP", statement.settings, LIMITS), db._runtime.limits)
            request = CollectionRequest(collection=statement.collection, limits=limits)
            if statement.or_full and (because := _damage(db, statement.collection)) is not None:
                return "backup", replace(request, because=because)
            return "incremental backup" if statement.incremental else "backup", request
        case st.CopyBackup():
            options = StatementOptions("COPY BACKUP", statement.settings, (ENCRYPTION, *LIMITS))
            return "send backup", SendRequest(
                collection=statement.collection,
                backup=statement.backup,
                url=repository_of(statement.url),
                encryption=options.boolean(ENCRYPTION),
                limits=limits_of(options, db._runtime.limits),
            )
        case st.CompactBackups(collection=collection, backup=backup):
            limits = limits_of(StatementOptions("COMPACT", statement.settings, LIMITS), db._runtime.limits)
            if statement.increments:
                return "merge increments", MergeRequest(
                    collection=collection, backup=backup, first=statement.first, limits=limits
                )
            return "compact backups", CompactRequest(collection=collection, backup=backup, limits=limits)
    raise AssertionError(statement)


def _damage(db: Database, collection: str) -> str | None:
    with db._guard(), db._runtime.catalog.read() as conn:
        return full_because(conn, collection)


def attach_collection(db: Database, statement: st.AttachBackupCollection) -> Result:
    """Attach a repository; return a row for each of its backups."""
    options = StatementOptions("ATTACH", statement.settings, ("TAKE_OVER", ENCRYPTION, REPOSITORY))
    repository = options.get(REPOSITORY)
    expected = Expected(
        options.boolean(ENCRYPTION),
        None if repository is None else repository_id(REPOSITORY, repository),
    )
    root = repository_of(statement.url)
    step, found = attach(
        db._runtime, statement.name, root, expected, take_over=options.boolean("TAKE_OVER") or False
    )
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


def collection_in(db: Database, url: str, expected: Expected) -> str:
    """Return the name of the collection whose backups a repository holds."""
    with db._guard():
        return name_in(db._runtime, repository_of(url), expected)


def restore(db: Database, statement: st.Restore) -> Result:
    return _operation(db, "restore", restore_request(statement, db._runtime.limits), nowait=statement.nowait)


def verify(db: Database, statement: st.Verify) -> Result:
    """Verify backups; return a row for each backup and for each problem of the repository itself."""
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


def repair(db: Database, statement: st.Repair) -> Result:
    """Repair backups; return a row for each damaged object and for each backup that cannot be repaired."""
    report = db.repair(statement.collection, source=statement.url)
    rows: list[tuple[Any, ...]] = [
        (o.object, o.backup, o.bytes, o.healed_from is not None, o.healed_from or o.problem)
        for o in report.repaired
    ]
    told = {o.backup for o in report.not_repaired}
    rows += [
        (None, b.backup, 0, False, b.because)
        for b in report.backups
        if not b.restorable and b.backup not in told
    ]
    return Result(("object", "backup", "bytes", "healed", "how"), rows)


def _operation(db: Database, kind: str, request: Record, *, nowait: bool = False) -> Result:
    operation_id = db._operations.start(kind, request) if nowait else db._operations.run(kind, request)
    return Result(("operation_id",), [(operation_id,)], operation_id=operation_id)
