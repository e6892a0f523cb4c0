"""Helpers for tests of backups: warehouses that open quickly, and a plain reader of backups.

The reader folds the segments of a backup in a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import event, select

import strandline
from strandline import Database
from strandline.backups.record import BackupRecord, SliceRecord, backup_records, chain_to, require_collection
from strandline.catalog import chains, sqltables
from strandline.model import OP, STEP, IndexDef, Key, TableSchema
from strandline.settings import Settings
from strandline.storage.segment import read_segment
from strandline.types.arrays import column_to_python
from tests import catalogs
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark

Row = tuple[Any, ...]
State = dict[Key, Row]

HERE = Settings(
    bulk_rows=10**9, scan_rows=10**9, workers=1, history_seconds=0.0, grace_seconds=0.0, carry_on_seconds=0.0
)
"""Run everything in this process and thread, and keep no history."""

CLUSTER = "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"

TABLE = "CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"


def collection(place: Path | str, incremental: bool = True) -> str:
    return (
        f"CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{place}', "
        f"INCREMENTAL_BACKUP_ENABLED = '{str(incremental).lower()}')"
    )


def open_at(folder: Path, url: str | None = None, **options: Any) -> Database:
    """Open a database without Spark, unless a session is given."""
    settings = replace(HERE, **options.pop("settings", {}))
    options.setdefault("files", QuickFiles(folder))
    options.setdefault("spark", NoSpark())
    if url is None:
        catalogs.place_catalog(folder / "catalog.sqlite")
    db = strandline.connect(folder, catalog=url, settings=settings, **options)
    hurry(db)
    return db


def hurry(db: Database) -> None:
    """Do not wait for the disk: nothing here has to survive a power cut."""
    catalog = db._runtime.catalog
    if catalog.database.is_sqlite:
        event.listen(
            catalog.database.engine,
            "connect",
            lambda connection, _: connection.execute("PRAGMA synchronous=OFF"),
        )
        catalog.database.engine.dispose()


def backups(db: Database, collection: str = "c") -> list[str]:
    return [entry.name for entry in db.ls(f"/.backups/collections/{collection}")]


def records(db: Database, collection: str = "c") -> list[BackupRecord]:
    with db._runtime.catalog.read() as conn:
        return backup_records(conn, require_collection(conn, collection))


def last(db: Database, collection: str = "c") -> BackupRecord:
    return records(db, collection)[-1]


def changes(
    db: Database, backup: str, path: str, index: str | None = None, collection: str = "c"
) -> list[Row]:
    """Return the rows of an increment of a table or index, and whether each is a tombstone, sorted by key."""
    (record,) = [r for r in records(db, collection) if r.name == backup]
    table = record.tables[path]
    definition = None if index is None else next(i for i in table.indexes if i.definition.name == index)
    slice_ = table.slice if definition is None else definition.slice
    assert slice_ is not None
    shape = table.schema if definition is None else definition.definition.impl_schema(table.schema)
    found = [(*row, op == "E") for _, op, row in _rows(db, record, slice_, shape)]
    return sorted(found, key=lambda row: repr([row[shape.names.index(n)] for n in shape.key]))


def contents(db: Database, backup: str | None = None, collection: str = "c") -> dict[str, State]:
    """Return the folded content of a backup's chain, by path: ``/t`` for a table, ``/t/i`` for an index."""
    known = records(db, collection)
    chain = chain_to(known, backup or known[-1].name)
    found: dict[str, State] = {}
    for path, table in chain[-1].tables.items():
        found[path] = _folded(db, chain, path, None, table.schema)
        for index in table.indexes:
            if index.holds == "data":
                shape = index.definition.impl_schema(table.schema)
                found[f"{path}/{index.definition.name}"] = _folded(
                    db, chain, path, index.definition.name, shape
                )
    return found


def _folded(
    db: Database, chain: list[BackupRecord], path: str, index: str | None, shape: TableSchema
) -> State:
    state: State = {}
    at = [shape.names.index(n) for n in shape.key]
    names: list[str] = []
    for record in reversed(chain):
        names.insert(0, path)
        before = record.tables.get(path)
        path = path if before is None or before.was is None else before.was
    for record, name in zip(chain, names, strict=True):
        table = record.tables.get(name)
        if table is None:
            state = {}  # The table was not a member then.
            continue
        known = table.index(index) if index is not None else None
        slice_ = table.slice if index is None else (known.slice if known is not None else None)
        if slice_ is None:
            continue
        if slice_.whole:
            state = {}
        for _, op, row in _rows(db, record, slice_, shape):
            key = tuple(row[i] for i in at)
            if op == "E":
                state.pop(key, None)
            else:
                state[key] = row
    return state


def _rows(
    db: Database, record: BackupRecord, slice_: SliceRecord, shape: TableSchema
) -> Iterator[tuple[int, str, Row]]:
    """Yield step, operation and row, in the order of segments and steps."""
    with db._runtime.catalog.read() as conn:
        segments = chains.load(conn, slice_.target_id, record.step).segments
    for segment in segments:
        part = read_segment(db._runtime.store.cache, shape, segment, [*shape.names, OP, STEP])
        columns = [column_to_python(c.type, part[c.name]) for c in shape.columns]
        rows = list(zip(*columns, strict=True))
        for step, op, row in sorted(
            zip(part[STEP].to_pylist(), part[OP].to_pylist(), rows, strict=True), key=lambda r: r[0]
        ):
            assert step <= record.step, "a backup holds nothing that came after its step"
            yield step, op, row


def projected(table: TableSchema, state: State, index: IndexDef) -> State:
    """Return the rows that an index must hold for the rows of its table."""
    shape = index.impl_schema(table)
    at, key = [table.names.index(n) for n in shape.names], [shape.names.index(n) for n in shape.key]
    rows = [tuple(row[i] for i in at) for row in state.values()]
    return {tuple(row[i] for i in key): row for row in rows}


def streams(db: Database, path: str) -> list[str]:
    return [entry.name for entry in db.ls(path) if entry.type == "stream"]


def leaks(db: Database) -> list[str]:
    """Return leftovers of finished operations, and files that nothing refers to."""
    with db._runtime.catalog.read() as conn:
        wrong = catalogs.leaks(conn)
        known = set(conn.execute(select(sqltables.segments.c.file)).scalars())
    return wrong + [f"file {name}" for name in db._runtime.files.names("data") if name not in known]
