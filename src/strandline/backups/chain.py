"""Find the chain of a backup: the full backup and the increments that lead to it."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import Connection

from strandline.backups.record import BackupRecord, backup_heads, chain_to, require_backup
from strandline.catalog import paths
from strandline.catalog.paths import Path
from strandline.errors import PathNotFound, PreconditionFailed
from strandline.sql.tokens import word


def find_chain(conn: Connection, collection: Path, backup: str | None = None) -> list[BackupRecord]:
    """Return the chain of a backup: the full backup and the increments after it, oldest first.

    A record may name very many tables, so only the records of the chain are read.

    Args:
        backup: Name of the last backup of the chain. None: the last backup of the collection.
    """
    there = {path.name: path for path in paths.backups(conn, collection)}
    if not there:
        raise _empty(collection)
    if backup is not None:
        require_backup(conn, collection, there, backup)
    here: str | None = next(reversed(there)) if backup is None else backup
    found: list[BackupRecord] = []
    while here is not None and here in there:
        found.append(there[here].record(BackupRecord))
        here = found[-1].builds_on
    return chain_to(found, found[0].name)


def backup_at(
    conn: Connection, collection: Path, *, time: float | None = None, step: int | None = None
) -> str:
    """Return the name of the last backup that was taken at or before a time and a step.

    Args:
        time: Latest time, in seconds since the epoch. None: any time.
        step: Latest step. None: any step.
    """
    heads = [head for _, head in backup_heads(conn, collection)]
    if not heads:
        raise _empty(collection)
    for head in reversed(heads):
        if (time is None or head.time <= time) and (step is None or head.step <= step):
            return head.name
    if time is None:
        limit = f"step {step}"
    else:
        limit = f"{datetime.fromtimestamp(time, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    raise PathNotFound(
        f"the collection {collection.name!r} has no backup taken by {limit}",
        f"The first one is {heads[0].name}, taken at step {heads[0].step}.",
    )


def _empty(collection: Path) -> PreconditionFailed:
    return PreconditionFailed(
        f"the collection {collection.name!r} has no backup to restore",
        f"Take one first: BACKUP {word(collection.name)}.",
    )
