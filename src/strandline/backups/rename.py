"""ALTER TABLE ... RENAME TO: the table gets another name in the catalog transaction in which the collections
that name it follow. A member is the table, whatever it is called; backups know tables by their ids, so chains
go on, and those that were taken before have the name of then. Collections in the bin follow as well, because
UNDROP brings them back."""

from __future__ import annotations

from dataclasses import replace

from strandline.backups.collection import Collection
from strandline.backups.record import collections
from strandline.catalog import definitions, paths, recycle_bin
from strandline.catalog.writer import Writer
from strandline.runtime import Runtime
from strandline.tables import ddl


def rename_table(runtime: Runtime, path: str, to: str) -> int:
    """Rename a table, and return the step from which on it has its name."""
    with runtime.catalog.write() as tx:
        old, new = ddl.rename_table(tx, path, to)
        _follow(tx, old, new)
        return tx.step


def _follow(tx: Writer, old: str, new: str) -> None:
    changed = {}
    dropped = [entry.root for entry in recycle_bin.entries(tx.conn)]
    for row in [*collections(tx.conn), *dropped]:
        collection = row.record(Collection)
        if collection.tables is not None and old in collection.tables:
            paths.check_ready(row)  # A backup that is under way has decided what its members are.
            named = tuple(new if path == old else path for path in collection.tables)
            changed[row.id] = replace(collection, tables=named)
    if changed:
        definitions.alter_all(tx, changed)
