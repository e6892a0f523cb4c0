"""Statements on backup collections, backups and restores."""

from __future__ import annotations

from strandline.sql.at import At
from strandline.sql.cursor import TokenCursor
from strandline.sql.references import read_at
from strandline.sql.settings import read_setting_names, read_settings
from strandline.sql.statements import (
    AddTable,
    AlterBackupCollection,
    AttachBackupCollection,
    Backup,
    CollectionAction,
    CompactBackups,
    CopyBackup,
    CreateBackupCollection,
    DropBackupCollection,
    RemoveTable,
    Repair,
    ResetSettings,
    Restore,
    RestoreTable,
    SetSettings,
    Setting,
    UndropBackupCollection,
    Verify,
)

__all__ = [
    "read_alter_collection",
    "read_attach",
    "read_backup",
    "read_compact",
    "read_copy_backup",
    "read_create_collection",
    "read_drop_collection",
    "read_repair",
    "read_restore",
    "read_undrop_collection",
    "read_verify",
]

CREATE_FORM = (
    "CREATE BACKUP COLLECTION name (TABLE table, ...) | DATABASE "
    "WITH (STORAGE = 'cluster' | 'url', INCREMENTAL_BACKUP_ENABLED = 'true', OMIT_INDEXES = 'false')"
)
ALTER_FORM = (
    "ALTER BACKUP COLLECTION name ADD TABLE table | DROP TABLE table | SET (SETTING = value, ...) | "
    "RESET (SETTING, ...), ..."
)
DROP_FORM = "DROP BACKUP COLLECTION [IF EXISTS] name [PURGE]"
UNDROP_FORM = "UNDROP BACKUP COLLECTION name [AS name] | UNDROP TABLE table [AS table]"
BACKUP_FORM = (
    "BACKUP collection [INCREMENTAL [OR FULL]] "
    "[WITH (MAX_BYTES_PER_SECOND = number, COPIES = number)] [NOWAIT]"
)
COPY_FORM = (
    "COPY BACKUP 'backup' FROM collection TO 'url' "
    "[WITH (ENCRYPTION = 'true', MAX_BYTES_PER_SECOND = number, COPIES = number)] [NOWAIT]"
)
COMPACT_FORM = (
    "COMPACT collection [INCREMENTS [FROM 'backup']] [TO 'backup'] "
    "[WITH (MAX_BYTES_PER_SECOND = number, COPIES = number)] [NOWAIT]"
)
ATTACH_FORM = (
    "ATTACH BACKUP COLLECTION name FROM 'url' "
    "[WITH (TAKE_OVER = 'true', ENCRYPTION = 'true', REPOSITORY = 'id')]"
)
RESTORE_FORM = (
    "RESTORE collection [AT 'backup' | AT step | AT TIMESTAMP 'time'] [TABLE table [AS table], ...] "
    "[INTO directory] [WITH (SETTING = value, ...)] [NOWAIT]"
)
VERIFY_FORM = (
    "VERIFY collection [AT 'backup'] "
    "[WITH (LEVEL = 'chain' | 'files' | 'checksums' | 'restore', SAMPLE = percent, AGAIN = 'true', "
    "REPAIR = 'true')]"
)
REPAIR_FORM = "REPAIR collection [FROM 'url']"


def read_create_collection(cursor: TokenCursor) -> CreateBackupCollection:
    cursor.form = CREATE_FORM
    cursor.expect("CREATE", "BACKUP", "COLLECTION")
    name = cursor.collection()
    tables: tuple[str, ...] | None = None
    if not cursor.accept("DATABASE"):
        if not cursor.accept("("):
            raise cursor.fault("expected ( or DATABASE")
        if not cursor.accept("DATABASE"):
            tables = _read_table_list(cursor)
        if not cursor.accept(")"):
            raise cursor.fault("expected , or )")
    cursor.expect("WITH")
    settings = read_settings(cursor)
    cursor.expect_end()
    return CreateBackupCollection(name, tables, settings)


def _read_table_list(cursor: TokenCursor) -> tuple[str, ...]:
    cursor.expect("TABLE")
    paths = [cursor.path()]
    while cursor.accept(","):
        cursor.expect("TABLE")
        paths.append(cursor.path())
    return tuple(paths)


def read_alter_collection(cursor: TokenCursor) -> AlterBackupCollection:
    cursor.form = ALTER_FORM
    cursor.expect("ALTER", "BACKUP", "COLLECTION")
    name = cursor.collection()
    actions = [_read_action(cursor)]
    while cursor.accept(","):
        actions.append(_read_action(cursor))
    cursor.expect_end()
    return AlterBackupCollection(name, tuple(actions))


def _read_action(cursor: TokenCursor) -> CollectionAction:
    if cursor.accept("ADD"):
        cursor.expect("TABLE")
        return AddTable(cursor.path())
    if cursor.accept("DROP"):
        cursor.expect("TABLE")
        return RemoveTable(cursor.path())
    if cursor.accept("SET"):
        return SetSettings(read_settings(cursor))
    if cursor.accept("RESET"):
        return ResetSettings(read_setting_names(cursor))
    raise cursor.fault("expected ADD, DROP, SET or RESET")


def read_drop_collection(cursor: TokenCursor) -> DropBackupCollection:
    cursor.form = DROP_FORM
    cursor.expect("DROP", "BACKUP", "COLLECTION")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.collection()
    purge = cursor.accept("PURGE")
    if not cursor.done:
        raise cursor.fault(f"expected {'' if purge else 'PURGE or '}the end of the statement")
    return DropBackupCollection(name, if_exists, purge)


def read_undrop_collection(cursor: TokenCursor) -> UndropBackupCollection:
    cursor.form = UNDROP_FORM
    cursor.expect("UNDROP", "BACKUP", "COLLECTION")
    name = cursor.collection()
    as_name = cursor.collection() if cursor.accept("AS") else None
    if not cursor.done:
        raise cursor.fault(f"expected {'' if as_name else 'AS or '}the end of the statement")
    return UndropBackupCollection(name, as_name)


def read_backup(cursor: TokenCursor) -> Backup:
    cursor.form = BACKUP_FORM
    cursor.expect("BACKUP")
    name = cursor.collection()
    incremental = cursor.accept("INCREMENTAL")
    or_full = incremental and cursor.accept("OR", "FULL")
    settings = read_settings(cursor) if cursor.accept("WITH") else ()
    nowait = cursor.accept("NOWAIT")
    if not cursor.done:
        kinds = [] if or_full or settings else ["OR FULL" if incremental else "INCREMENTAL"]
        more = [] if nowait else [*kinds, *([] if settings else ["WITH"]), "NOWAIT"]
        raise cursor.fault(f"expected {', '.join(more)}{' or ' if more else ''}the end of the statement")
    return Backup(name, incremental, nowait, or_full, settings)


def read_copy_backup(cursor: TokenCursor) -> CopyBackup:
    cursor.form = COPY_FORM
    cursor.expect("COPY", "BACKUP")
    backup = cursor.string_or_name("the name of a backup in quotes")
    cursor.expect("FROM")
    collection = cursor.collection()
    cursor.expect("TO")
    url = cursor.string_or_name("a folder or a URL in quotes")
    settings = read_settings(cursor) if cursor.accept("WITH") else ()
    nowait = cursor.accept("NOWAIT")
    if not cursor.done:
        raise cursor.fault("expected WITH, NOWAIT (in this order) or the end of the statement")
    return CopyBackup(backup, collection, url, settings, nowait)


def read_compact(cursor: TokenCursor) -> CompactBackups:
    cursor.form = COMPACT_FORM
    cursor.expect("COMPACT")
    collection, a_backup = cursor.collection(), "the name of a backup in quotes"
    increments = cursor.accept("INCREMENTS")
    first = cursor.string_or_name(a_backup) if increments and cursor.accept("FROM") else None
    backup = cursor.string_or_name(a_backup) if cursor.accept("TO") else None
    settings = read_settings(cursor) if cursor.accept("WITH") else ()
    nowait = cursor.accept("NOWAIT")
    if not cursor.done:
        places = [] if first or backup else ["FROM" if increments else "INCREMENTS"]
        before = [] if settings else [*([] if backup else [*places, "TO"]), "WITH"]
        more = [] if nowait else [*before, "NOWAIT"]
        raise cursor.fault(f"expected {', '.join(more)}{' or ' if more else ''}the end of the statement")
    return CompactBackups(collection, backup, nowait, increments, first, settings=settings)


def read_attach(cursor: TokenCursor) -> AttachBackupCollection:
    cursor.form = ATTACH_FORM
    cursor.expect("ATTACH", "BACKUP", "COLLECTION")
    name = cursor.collection()
    cursor.expect("FROM")
    url = cursor.string_or_name("a folder or a URL in quotes")
    settings = read_settings(cursor) if cursor.accept("WITH") else ()
    cursor.expect_end()
    return AttachBackupCollection(name, url, settings)


def read_verify(cursor: TokenCursor) -> Verify:
    cursor.form = VERIFY_FORM
    cursor.expect("VERIFY")
    name = cursor.collection()
    at_backup = cursor.string_or_name("the name of a backup in quotes") if cursor.accept("AT") else None
    settings = read_settings(cursor) if cursor.accept("WITH") else ()
    if not cursor.done:
        raise cursor.fault("expected AT, WITH (in this order) or the end of the statement")
    return Verify(name, at_backup, settings)


def read_repair(cursor: TokenCursor) -> Repair:
    cursor.form = REPAIR_FORM
    cursor.expect("REPAIR")
    name = cursor.collection()
    url = cursor.string_or_name("a folder or a URL in quotes") if cursor.accept("FROM") else None
    cursor.expect_end()
    return Repair(name, url)


def read_restore(cursor: TokenCursor) -> Restore:
    cursor.form = RESTORE_FORM
    cursor.expect("RESTORE")
    name = cursor.collection()
    at = At()
    tables: tuple[RestoreTable, ...] = ()
    into: str | None = None
    settings: tuple[Setting, ...] = ()
    if cursor.accept("AT"):
        at = read_at(cursor, or_backup=True)
    if cursor.sees("TABLE") or cursor.sees("(", "TABLE"):
        in_parentheses = cursor.accept("(")
        tables = _read_restore_tables(cursor)
        if in_parentheses and not cursor.accept(")"):
            raise cursor.fault("expected , or )")
    if cursor.accept("INTO"):
        into = cursor.path_in_quotes("a directory")
    if cursor.accept("WITH"):
        settings = read_settings(cursor)
    nowait = cursor.accept("NOWAIT")
    if not cursor.done:
        raise cursor.fault(
            "expected AT, TABLE, INTO, WITH, NOWAIT (in this order) or the end of the statement"
        )
    return Restore(
        name,
        at.backup,
        at_step=at.step,
        at_timestamp=at.time,
        tables=tables,
        into=into,
        settings=settings,
        nowait=nowait,
    )


def _read_restore_tables(cursor: TokenCursor) -> tuple[RestoreTable, ...]:
    tables: list[RestoreTable] = []
    while True:
        cursor.expect("TABLE")
        path = cursor.path()
        tables.append(RestoreTable(path, cursor.path() if cursor.accept("AS") else None))
        if not cursor.accept(","):
            return tuple(tables)
