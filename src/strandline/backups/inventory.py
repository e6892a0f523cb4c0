"""Backup collections and their finished backups, as the catalog has them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from strandline.backups.collection import collection_path
from strandline.backups.record import BackupRecord, SliceRecord
from strandline.catalog import chains, paths
from strandline.catalog.paths import Path
from strandline.errors import Corrupted, PathNotFound
from strandline.model import Segment


def require_collection(conn: Connection, name: str) -> Path:
    found = paths.find(conn, collection_path(name))
    if found is None or found.type != "backup_collection":
        raise PathNotFound(
            f"there is no backup collection {name!r}", "List the collections with SHOW BACKUP COLLECTIONS."
        )
    return found


def backup_records(conn: Connection, collection: Path) -> list[BackupRecord]:
    """The finished backups of a collection, oldest first: names sort in the order of time."""
    return [
        p.record(BackupRecord)
        for p in paths.children(conn, collection)
        if p.type == "backup" and p.state != "creating"
    ]


def slice_segments(conn: Connection, backup: BackupRecord, slice_: SliceRecord) -> Sequence[Segment]:
    """The segments that a backup holds of a table or an index. All of them must be there: one too few is a
    state that never was."""
    found = () if slice_.target_id is None else chains.copied(conn, slice_.target_id, backup.step)
    if slice_.target_id is None or sum(s.bytes for s in found) != slice_.bytes:
        raise Corrupted(
            f"{backup.name} does not hold the {slice_.bytes} bytes that it recorded",
            "Restore an earlier backup.",
        )
    return found


def last_backup(conn: Connection, collection: Path) -> BackupRecord | None:
    """The last finished backup of a collection."""
    found = paths.last_backup(conn, collection)
    return None if found is None else found.record(BackupRecord)
