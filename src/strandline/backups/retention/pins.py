"""PIN and UNPIN: a pinned backup and the backups it builds on are not deleted until it is unpinned."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from strandline.backups.record import BackupRecord, backup_heads, require_backup, require_collection
from strandline.catalog import paths, tables
from strandline.catalog.connection import Catalog
from strandline.catalog.paths import Path
from strandline.errors import PreconditionFailed
from strandline.sql.tokens import word


def set_pinned(catalog: Catalog, collection: str, backup: str, *, pinned: bool) -> int | None:
    """Pin or unpin a backup. Return the step of the change, or None if nothing changed."""
    with catalog.write() as tx:
        path = require_collection(tx.conn, collection)
        there = {found.name: found.id for found in paths.backups(tx.conn, path, most=0)}
        require_backup(tx.conn, path, there, backup)
        row = paths.require_id(tx.conn, there[backup])
        paths.check_ready(row)
        record = row.record(BackupRecord)
        if record.pinned == pinned:
            return None
        paths.set_body(tx, row.id, replace(record, pinned=pinned))
        paths.set_version(tx, row.id, row.version + 1)
        tables.publish(tx, [row.id])
        return tx.step


def refuse_pinned(conn: Connection, collection: Path) -> None:
    """Refuse to drop a collection that has a pinned backup."""
    for path, backup in backup_heads(conn, collection):
        if backup.pinned:
            raise PreconditionFailed(
                f"the backup {path.name} of the collection {collection.name!r} is pinned",
                f"Unpin it: UNPIN BACKUP {word(collection.name)} '{path.name}'.",
            )
