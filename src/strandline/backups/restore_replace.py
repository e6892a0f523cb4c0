"""Restoring over tables that are there: in one transaction the old ones go away to where they are kept, and
the restored ones take their places.

While the restore runs, the restored ones are made at the very paths below ``/.replaced`` where the old ones
will be kept, closed to everybody. The old ones are locked, so that no other operation and no ALTER or DROP
comes between, but they are read and written as before. At the end the two exchange their places. What is
below a table goes with it: its indexes and its users' changefeeds. The streams of backup collections end, for
no increment can go on from them; where one can go on from the restored tables, others begin there.

The old tables get new versions with it. So a change that was planned before and comes after finds its plan
out of date and starts again, on the restored table, instead of being written where nobody looks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Connection

from strandline.backups.record import TIME
from strandline.backups.restore_parts import RestoreRun
from strandline.backups.restore_plan import Old, RestoreTarget
from strandline.catalog import many, paths
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.streams import StreamBody
from strandline.catalog.writer import Writer
from strandline.errors import Internal
from strandline.names import REPLACED
from strandline.operations.kind import Planning

BEING_REPLACED = "being replaced"


def lock_old(tx: Writer, run: Planning[Any], targets: Sequence[RestoreTarget]) -> Old:
    """Keep other operations off the tables that will be replaced, and off all that is below them."""
    roots = [target.replaced for target in targets if target.replaced is not None]
    found = many.subtrees(tx.conn, roots)
    ending = [path for path in found if path.type == "stream" and path.record(StreamBody).owner is not None]
    run.lock(tx, found, BEING_REPLACED)
    run.lock(tx, ending, "dropping")
    kept_in = _new_directory(tx.conn, tx.now) if roots else None
    return Old(kept_in, {path.path: path.version for path in found})


def _new_directory(conn: Connection, now: float) -> str:
    """Return a directory of this restore's own: what it makes goes again as a whole if it fails."""
    root = paths.find(conn, REPLACED)
    taken = paths.names_below(conn, [] if root is None else [root.id])
    moment = datetime.fromtimestamp(now, timezone.utc)
    while (name := moment.strftime(TIME)) in taken:
        moment += timedelta(seconds=1)
    return f"{REPLACED}/{name}"


def exchange(tx: Writer, run: RestoreRun, under: Iterable[Path]) -> dict[str, str]:
    """Let old and restored tables take each other's places, and return where each old one is kept.
    ``under``: all paths that the restore works on."""
    old = [path for path in under if path.state == BEING_REPLACED and path.type == "table"]
    replaced = [path for path in old if path.name != IMPL_TABLE]
    new = {path.id: path for path in paths.by_ids(tx.conn, run.body.tables.values())}
    pairs = [(path, new[run.body.tables[path.path]]) for path in replaced]
    kept = {one.path: other.path for one, other in pairs}
    if any(place != f"{run.body.kept_in}{path}" for path, place in kept.items()):
        raise Internal(f"the tables that operation {run.operation.id} restores are not where it made them")
    run.move_all(tx, [(None, path) for path in old])
    many.exchange(tx, pairs)
    return kept
