"""The recycle bin: dropped paths that can be restored to the tree for ``bin_seconds``.

Dropping a path moves it into the bin with everything below it, in one transaction:

    /.backups/collections/nightly   ->   /.bin/17/nightly

``/.bin`` is a node of the tree that cannot be found by its name and is not listed. Each dropped path has an
entry below this node; the entry's record has the former path, the time, and the user. Ids, segments and
backups do not change, so a path is restored by moving it back. The garbage collector drops expired entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, select, update

from strandline import names
from strandline.catalog import bulk_paths, definitions, paths, sizes, sqltables, tables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import Path
from strandline.catalog.transactions import Told, Writer
from strandline.records import Nothing, Record, later

ENTRY = "dropped"
"""The type of an entry in the bin."""
_AT = sqltables.paths.c
_ROOT = select(sqltables.paths).where(_AT.parent_id == paths.ROOT_ID, _AT.type == paths.BIN)
_MOVED = sqltables.among(_AT.id, "moved")


@dataclass(frozen=True, kw_only=True)
class Dropped(Record):
    """The record of an entry.

    Attributes:
        path: the path before the drop.
        type: the type of the dropped path.
        time: the time of the drop.
        by: the user and the process that dropped it. None: unknown.
    """

    path: str
    type: str
    time: float
    by: str | None = later()


class BinEntry(NamedTuple):
    """An entry of the bin.

    Attributes:
        row: the node of the entry.
        dropped: the record of the entry.
        root: the dropped path at its place in the bin, below ``row``.
    """

    row: Path
    dropped: Dropped
    root: Path


def put(tx: Writer, root: Path, by: str | None, operation_id: str | None = None) -> None:
    """Move a path into the bin with everything below it.

    The caller makes sure that no other operation works on these paths.

    Args:
        by: the user and the process that drop the path.
        operation_id: the operation that drops the path. None: no operation does.
    """
    moved = paths.subtree(tx.conn, root)
    paths.set_state(tx, [path.id for path in moved], paths.READY, None)
    kept = Dropped(path=root.path, type=root.type, time=tx.now, by=by)
    entry = bulk_paths.add_one(tx, NewPath(_root(tx), str(root.id), ENTRY, kept))
    tx.conn.execute(update(sqltables.paths).where(_AT.id == root.id).values(parent_id=entry.id))
    tx.announce([Told(path.id, path.path, path.version, dropped=True) for path in moved], operation_id)


def take_back(tx: Writer, entry: BinEntry, parent: Path, name: str) -> Path:
    """Move a path from the bin back into the tree, and return it."""
    root = entry.root
    moved = [path.id for path in paths.subtree(tx.conn, root)]
    tx.conn.execute(update(sqltables.paths).where(_AT.id == root.id).values(parent_id=parent.id, name=name))
    # Snapshots of earlier steps must not contain the path.
    tx.conn.execute(update(sqltables.paths).where(_MOVED).values(created_step=tx.step), {"moved": moved})
    paths.set_version(tx, root.id, root.version + 1)
    tables.publish(tx, [root.id])
    paths.remove(tx, [entry.row.id])
    return paths.require_id(tx.conn, root.id)


def entries(conn: Connection) -> list[BinEntry]:
    """Return all entries of the bin, in order of dropping."""
    row = conn.execute(_ROOT).one_or_none()
    if row is None:
        return []
    found = [
        BinEntry(entry, entry.record(Dropped), below)
        for entry in paths.children(conn, paths.of_row(row, names.BIN))
        for below in paths.children(conn, entry)
    ]
    return sorted(found, key=lambda entry: (entry.dropped.time, entry.row.id))


def find(conn: Connection, path: str) -> BinEntry | None:
    """Return the entry that was dropped last at this path. None: there is no such entry."""
    return next((entry for entry in reversed(entries(conn)) if entry.dropped.path == path), None)


def bytes_in(conn: Connection, entry: BinEntry) -> int:
    """Return the number of bytes that dropping the entry frees."""
    return sizes.bytes_only_in(conn, [p.id for p in paths.subtree(conn, entry.root) if p.type == "table"])


def empty(tx: Writer, *, bin_seconds: float) -> Sequence[BinEntry]:
    """Drop the expired entries, and return them."""
    over = [entry for entry in entries(tx.conn) if entry.dropped.time <= tx.now - bin_seconds]
    for entry in over:
        definitions.drop(tx, entry.row)
    return over


def _root(tx: Writer) -> Path:
    row = tx.conn.execute(_ROOT).one_or_none()
    if row is not None:
        return paths.of_row(row, names.BIN)
    root = paths.require(tx.conn, "/")
    return bulk_paths.add_one(tx, NewPath(root, names.BIN[1:], paths.BIN, Nothing()))
