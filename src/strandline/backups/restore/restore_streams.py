"""Streams that are created at the end of a restore. They begin at the step of the restore.

1. The users' changefeeds, if the request asks for them.
2. The backup streams, if the next increment can continue from the restored tables. This is possible if the
   collection allows it (``CollectionRecord.goes_on_after``), the backup is its last one, and each table of
   the backup was restored at its own path. The restored tables are then equal to the backup, so no change is
   missed. The record of the backup notes which restored table has replaced which source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from strandline.backups.backup.full import backup_stream
from strandline.backups.collection import CollectionRecord
from strandline.backups.record import BackupRecord, Continuation
from strandline.backups.restore.restore_parts import RestoreRun
from strandline.backups.restore.restore_plan import places
from strandline.catalog import paths
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import Writer
from strandline.operations.streams import StreamSpec, add_streams


def begin_restored(tx: Writer, run: RestoreRun, under: Sequence[Path]) -> tuple[str, ...]:
    """Create the streams on the restored tables, and return the paths of the changefeeds.

    Args:
        under: All paths that the operation has locked, as they were before the transaction.
    """
    collection = next(path for path in under if path.type == "backup_collection")
    goes_on = collection.record(CollectionRecord).goes_on_after(run.body.backup)
    if not (goes_on or run.request.changefeeds):
        return ()
    backup = paths.require(tx.conn, f"{collection.path}/{run.body.backup}")
    record = backup.record(BackupRecord)
    tables = {path.id: path for path in under if path.type == "table"}
    made = {path: tables[table_id] for path, table_id in run.body.tables.items()}
    wanted = places(run.request, record)
    feeds = {
        f"{path}/{feed.name}": (made[path], StreamSpec(name=feed.name, mode=feed.mode, format=feed.format))
        for path, (_, table) in wanted.items()
        for feed in (table.changefeeds if run.request.changefeeds else ())
    }
    new = list(feeds.values())
    in_place = {source for path, (source, _) in wanted.items() if path == source}
    is_last = paths.backups(tx.conn, collection, last=True)[0].id == backup.id
    if goes_on and is_last and record.stream is not None and in_place == set(record.tables):
        sources = _sources(record, made)
        stream = backup_stream(record.stream, collection)
        new += [(tables[now], stream) for now in sources.values()]
        continued = Continuation(step=tx.step, sources=tuple(sources.items()))
        paths.set_body(tx, backup.id, replace(record, continued=continued))
    add_streams(tx, new, step=tx.step, state="creating", operation_id=run.operation.id)
    return tuple(sorted(feeds))


def _sources(record: BackupRecord, made: Mapping[str, Path]) -> dict[int, int]:
    """Return the id of the restored table or implementation table for each source id of a backup.

    Args:
        made: The restored tables, by path. All tables of the backup must be restored.
    """
    found = {}
    for path, table in record.tables.items():
        found[table.slice.source_id] = made[path].id
        info = TableInfo.of(made[path])
        for index in table.indexes:
            if index.slice is not None:
                found[index.slice.source_id] = info.index(index.definition.name).impl_id
    return found
