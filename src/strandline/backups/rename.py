"""ALTER TABLE ... RENAME TO: rename a table, also in the collections that name it.

One catalog transaction renames the table and updates each backup collection that names it, including
collections in the bin, because UNDROP brings them back. Backups refer to tables by id, so chains continue.
Earlier backups keep the name that the table had when they were taken.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.backups.collection import CollectionRecord
from strandline.backups.record import collections
from strandline.catalog import definitions, paths, recycle_bin
from strandline.catalog.transactions import Writer
from strandline.runtime import Runtime
from strandline.tables import ddl


def rename_table(runtime: Runtime, path: str, to: str) -> int:
    """Rename a table and return the step of the change."""
    with runtime.catalog.write() as tx:
        old, new = ddl.rename_table(tx, path, to)
        _follow(tx, old, new)
        return tx.step


def _follow(tx: Writer, old: str, new: str) -> None:
    changed = {}
    dropped = [
        entry.root for entry in recycle_bin.entries(tx.conn) if entry.dropped.type == "backup_collection"
    ]
    for row in [*collections(tx.conn), *dropped]:
        collection = row.record(CollectionRecord)
        if collection.tables is not None and old in collection.tables:
            # A running backup has already read the names of its tables, so refuse the rename.
            paths.check_ready(row)
            named = tuple(new if path == old else path for path in collection.tables)
            changed[row.id] = replace(collection, tables=named)
    if changed:
        definitions.alter_all(tx, changed)
