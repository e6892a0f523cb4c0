"""Restore in place of existing tables: exchange old and restored tables in one transaction.

1. The restored tables are created below ``/.replaced``, at the paths where the old tables will be kept. They
   cannot be read or changed there.
2. During the restore, the old tables are locked against other operations, ALTER and DROP. They can be read
   and written as before.
3. At the end, old and restored tables exchange their paths.

The indexes and the users' changefeeds of a table move with it. The streams of backup collections on the old
tables end, because no increment can continue from these tables. If an increment can continue from the
restored tables, new streams are created on them.

The exchange also raises the versions of the old tables. A write that was planned before the exchange finds
its plan outdated and starts again on the restored table, so that it does not change the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Connection

from strandline.backups.record import TIME
from strandline.backups.restore.restore_parts import RestoreRun
from strandline.backups.restore.restore_plan import Old, RestoreTarget
from strandline.catalog import bulk_paths, paths
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.streams import StreamBody
from strandline.catalog.transactions import Writer
from strandline.errors import Internal
from strandline.names import REPLACED
from strandline.operations.kind import Planning

BEING_REPLACED = "being replaced"


def lock_old(tx: Writer, run: Planning[Any], targets: Sequence[RestoreTarget]) -> Old:
    """Lock the tables that will be replaced, and all paths below them, against other operations."""
    roots = [target.replaced for target in targets if target.replaced is not None]
    found = bulk_paths.subtrees(tx.conn, roots)
    ending = [path for path in found if path.type == "stream" and path.record(StreamBody).owner is not None]
    run.lock(tx, found, BEING_REPLACED)
    run.lock(tx, ending, "dropping")
    kept_in = _new_directory(tx.conn, tx.now) if roots else None
    return Old(kept_in, {path.path: path.version for path in found})


def _new_directory(conn: Connection, now: float) -> str:
    """Return the path of a new directory for the replaced tables.

    Each restore has its own directory. If the restore fails, the directory is removed with its content.
    """
    root = paths.find(conn, REPLACED)
    taken = paths.names_below(conn, [] if root is None else [root.id])
    moment = datetime.fromtimestamp(now, timezone.utc)
    while (name := moment.strftime(TIME)) in taken:
        moment += timedelta(seconds=1)
    return f"{REPLACED}/{name}"


def exchange(tx: Writer, run: RestoreRun, under: Iterable[Path]) -> dict[str, str]:
    """Exchange the paths of old and restored tables. Return the new path of each old table, by its old path.

    Args:
        under: All paths that the restore has locked.
    """
    old = [path for path in under if path.state == BEING_REPLACED and path.type == "table"]
    replaced = [path for path in old if path.name != IMPL_TABLE]
    new = {path.id: path for path in paths.by_ids(tx.conn, run.body.tables.values())}
    pairs = [(path, new[run.body.tables[path.path]]) for path in replaced]
    kept = {one.path: other.path for one, other in pairs}
    if any(place != f"{run.body.kept_in}{path}" for path, place in kept.items()):
        raise Internal(f"the tables that operation {run.operation.id} restores are not where it made them")
    run.move_all(tx, [(None, path) for path in old])
    bulk_paths.exchange(tx, pairs)
    return kept
