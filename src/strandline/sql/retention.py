"""Reads statements that remove or keep backups: DROP BACKUP, PRUNE, PIN and UNPIN."""

from __future__ import annotations

from strandline.sql.backups import read_drop_collection
from strandline.sql.cursor import TokenCursor
from strandline.sql.retention_rules import KEEP_FORM, read_keep
from strandline.sql.statements import DropBackup, DropBackupCollection, PinBackup, Prune

__all__ = ["read_drop_backup", "read_pin", "read_prune"]

DROP_FORM = "DROP BACKUP collection 'backup' [CONFIRM]"
PIN_FORM = "PIN | UNPIN BACKUP collection 'backup'"
PRUNE_FORM = f"PRUNE collection [{KEEP_FORM}] [CONFIRM]"


def read_drop_backup(cursor: TokenCursor) -> DropBackup | DropBackupCollection:
    """Read DROP BACKUP, of one backup or of a whole COLLECTION."""
    if cursor.sees("DROP", "BACKUP", "COLLECTION"):
        return read_drop_collection(cursor)
    cursor.form = DROP_FORM
    cursor.expect("DROP", "BACKUP")
    collection, backup = _read_backup(cursor)
    return DropBackup(collection, backup, _read_confirm(cursor))


def read_pin(cursor: TokenCursor) -> PinBackup:
    cursor.form = PIN_FORM
    pinned = cursor.take().key == "PIN"
    cursor.expect("BACKUP")
    collection, backup = _read_backup(cursor)
    cursor.expect_end()
    return PinBackup(collection, backup, pinned)


def read_prune(cursor: TokenCursor) -> Prune:
    cursor.form = PRUNE_FORM
    cursor.expect("PRUNE")
    collection = cursor.collection()
    keep = read_keep(cursor) if cursor.sees("KEEP") else None
    return Prune(collection, keep, _read_confirm(cursor))


def _read_backup(cursor: TokenCursor) -> tuple[str, str]:
    return cursor.collection(), cursor.string_or_name("the name of a backup in quotes")


def _read_confirm(cursor: TokenCursor) -> bool:
    confirm = cursor.accept("CONFIRM")
    if not cursor.done:
        raise cursor.fault(f"expected {'' if confirm else 'CONFIRM or '}the end of the statement")
    return confirm
