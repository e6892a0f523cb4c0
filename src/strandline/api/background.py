"""Start operations that the Python API only runs to their end. Each function returns the operation's id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.api.retention import removal_request
from strandline.backups.chain import backup_at
from strandline.backups.collection import repository_of
from strandline.backups.collection_ddl import DropCollection, DropCollectionRequest
from strandline.backups.record import require_collection
from strandline.backups.restore.dry_run import TryRestore, trial_request
from strandline.backups.retention.drop import DropBackups
from strandline.backups.verify.repair import RepairBackups, RepairRequest, is_damaged
from strandline.backups.verify.verify_kind import VerifyBackups, VerifyOperationRequest
from strandline.backups.verify.verify_request import VerifyRequest
from strandline.errors import PreconditionFailed
from strandline.sql import statements as st
from strandline.sql.retention_rules import parse_keep

if TYPE_CHECKING:
    from strandline.api.database import Database
    from strandline.records import Record


def verify(
    db: Database,
    collection: str,
    *,
    at: str | None = None,
    level: str | None = None,
    sample: int | None = None,
    again: bool | None = None,
) -> str:
    """Verify the backups of a collection. Its result has the number of problems.

    Args:
        at: verify only this backup and the backups that it builds on.
        level: ``chain``, ``files``, ``checksums`` or ``restore``. None: ``checksums``.
        sample: check this percentage of objects, least recently checked first.
        again: also check objects that were verified before. None: only without ``level`` and ``sample``.
    """
    checked = VerifyRequest.of(collection, at=at, level=level, sample=sample, again=again)
    return _start(
        db,
        VerifyBackups.name,
        VerifyOperationRequest(
            collection=collection, level=checked.level, at=at, sample=sample, again=checked.again
        ),
    )


def drill(db: Database, collection: str, *, at: str | None = None) -> str:
    """Restore a backup into a hidden directory, compare all rows, and undo the restore.

    Args:
        at: the name of a backup. None: the last backup.
    """
    with db._guard(), db._runtime.catalog.read() as conn:
        name = at or backup_at(conn, require_collection(conn, collection))
    return _start(db, TryRestore.name, trial_request(collection, name, db._runtime.limits))


def repair(db: Database, collection: str, *, source: str | None = None) -> str:
    """Repair objects that verifications found to be damaged.

    Args:
        source: URL or full path of another repository with the same objects.
    """
    with db._guard(), db._runtime.catalog.read() as conn:
        require_collection(conn, collection)
        if not is_damaged(conn, collection):
            raise PreconditionFailed(
                f"no damage of the collection {collection!r} is known", "Verify the collection first."
            )
    root = None if source is None else repository_of(source)
    return _start(
        db, RepairBackups.name, RepairRequest(collection=collection, source=root, limits=db._runtime.limits)
    )


def drop_backup(db: Database, collection: str, name: str) -> str:
    """Remove a backup and the increments that build on it."""
    return _start(db, DropBackups.name, removal_request(st.DropBackup(collection, name, True)))


def prune(db: Database, collection: str, *, keep: str | None = None) -> str:
    """Remove the backups that no rule keeps.

    Args:
        keep: The rules, such as ``KEEP LAST 2 FULL``. None: the retention of the collection.
    """
    rules = None if keep is None else parse_keep(keep)
    return _start(db, DropBackups.name, removal_request(st.Prune(collection, rules, True)))


def drop(db: Database, collection: str, *, purge: bool = False) -> str:
    """Drop a collection with its backups. Backups in a repository stay there.

    Args:
        purge: delete the collection at once, so that UNDROP cannot bring it back.
    """
    return _start(db, DropCollection.name, DropCollectionRequest(collection=collection, purge=purge))


def _start(db: Database, kind: str, request: Record) -> str:
    with db._guard():
        return db._operations.start(kind, request)
