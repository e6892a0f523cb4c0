"""Many tables: no statement binds more values than a database allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, text

import strandline
from strandline import Database, records
from strandline.catalog import bulk_paths, definitions, operations, paths, sqltables, tables
from strandline.catalog.connection import Catalog
from strandline.catalog.tables import TableBody
from strandline.catalog.versions import VersionRegistry
from strandline.model import Digest
from tests.catalog.examples import SCHEMA
from tests.catalogs import forget_rows
from tests.effort import EVERY

BINDS, BINDS_OF_ROWS = 1_000, 10_000
"""Maximum number of values that a statement, and an INSERT, may bind in these tests.

Both are less than the numbers of tables and of their columns. SQLite allows 32,766 values, PostgreSQL 65,535.
"""


def make_tables(catalog: Catalog, count: int) -> list[int]:
    """Add empty tables ``/many/t0`` and so on, and return their ids."""
    with catalog.write() as tx:
        step, now = tx.step, catalog.clock.now()
        above = bulk_paths.make_parent(tx, "/many/t")
        body = records.to_text(TableBody(schema=SCHEMA, indexes=()))
        first = above.id + 1
        path = {"parent_id": above.id, "type": "table", "state": "ready", "created_step": step, "version": 1}
        ids = range(first, first + count)
        rows: dict[Any, dict[str, Any]] = {
            sqltables.paths: {**path, "body": body, "operation_id": None},
            sqltables.descriptions: {"version": 1, "step": step, "body": body},
            sqltables.tables: {"step": step, "rows": 0, "digest": Digest().hex, "kept_from": step},
            sqltables.commits: {
                "step": step,
                "kind": "create",
                "rows": 0,
                "digest": Digest().hex,
                "time": now,
            },
        }
        keys: dict[Any, Callable[[int], dict[str, Any]]] = {
            sqltables.paths: lambda i: {"id": i, "name": f"t{i - first}"},
            sqltables.descriptions: lambda i: {"path_id": i},
            sqltables.tables: lambda i: {"path_id": i},
            sqltables.commits: lambda i: {"table_id": i},
        }
        for table, values in rows.items():
            tx.conn.execute(insert(table), [{**values, **keys[table](i)} for i in ids])
        if not catalog.database.is_sqlite:  # its sequence did not generate these ids
            tx.conn.execute(text(f"SELECT setval(pg_get_serial_sequence('paths', 'id'), {ids[-1]})"))
    return list(ids)


@pytest.fixture
def db(tmp_path: Path, catalog_url: str | None) -> Iterator[Database]:
    """A database that fails when a statement binds too many values."""
    with strandline.connect(tmp_path, catalog=catalog_url) as db:

        @event.listens_for(db._runtime.catalog.database.engine, "before_cursor_execute")
        def check(_: Any, __: Any, statement: str, bound: Any, ___: Any, many: bool) -> None:
            rows = bound if many and isinstance(bound, list) else [bound]
            longest = max((len(one) for one in rows), default=0)
            limit = BINDS_OF_ROWS if statement.startswith("INSERT") else BINDS
            assert longest <= limit, f"{longest} values in {statement[:100]}"

        yield db


LARGEST = 100_000 if EVERY else 40_000
"""More values than SQLite allows in one statement; in the full test run, than PostgreSQL allows."""


@pytest.mark.parametrize(
    ("count", "catalog_url"),
    [
        pytest.param(count, catalog, marks=pytest.mark.slow if (count, catalog) != (2_000, "sqlite") else ())
        for count, catalog in [
            (2_000, "sqlite"),
            (2_000, "postgresql"),
            (LARGEST, "sqlite"),
            *([(LARGEST, "postgresql")] if EVERY else []),
        ]
    ],
    indirect=["catalog_url"],
)
def test_many_tables_can_be_looked_at_and_their_directory_dropped(db: Database, count: int) -> None:
    catalog = db._runtime.catalog
    make_tables(catalog, count)
    names = sorted(f"t{i}" for i in range(count))
    assert [entry.name for entry in db.ls("/many")] == names
    assert len(db.ls("/", depth=None)) == count + 1
    assert [row[0] for row in db.sql("SHOW TABLES").rows()] == [f"/many/{name}" for name in names]
    assert len(db.overview("/many")) == count
    assert db.describe("/many")["type"] == "directory"
    assert db.describe("/many/t17")["rows"] == 0
    assert db.sql("SELECT count(*) FROM `many/t3`").rows() == [(0,)]
    with catalog.write() as tx:
        definitions.drop(tx, paths.require(tx.conn, "/many"))
    assert db.ls() == []
    with pytest.raises(strandline.errors.PathNotFound):
        db.sql("SELECT count(*) FROM `many/t3`")
    db.collect()


@pytest.mark.parametrize("count", [2_000, *([100_000] if EVERY else [])])
def test_many_tables_can_be_worked_on_at_once(db: Database, count: int) -> None:
    """As the operation that backs all of them up does."""
    catalog = db._runtime.catalog
    ids = make_tables(catalog, count)
    with catalog.write() as tx:
        found = paths.by_ids(tx.conn, ids)
        assert [path.path for path in found[:2]] == ["/many/t0", "/many/t1"]
        assert len(tables.since(tx.conn, ids)) == count
        operations.lock(tx, "op", found, "copying")
        operations.complete(tx, "op", VersionRegistry())
        operations.lock(tx, "op", paths.by_ids(tx.conn, ids), "dropping")
        operations.complete(tx, "op", VersionRegistry())
        assert paths.by_ids(tx.conn, ids) == []


@pytest.mark.slow
def test_many_tables_are_one_backup(db: Database) -> None:
    make_tables(db._runtime.catalog, 500)
    db.sql("CREATE BACKUP COLLECTION all (DATABASE) WITH (STORAGE = 'cluster')")
    db.sql("BACKUP all")
    forget_rows(db._runtime.catalog)
    (backup,) = db.sql("SHOW BACKUPS all").rows()
    assert backup[4] == 500
    db.sql("DROP BACKUP COLLECTION all")
    assert [entry.path for entry in db.ls(depth=None) if entry.type == "backup_collection"] == []
    assert len(db.sql("SHOW TABLES").rows()) == 500
