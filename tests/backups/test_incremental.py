"""Incremental backups: each holds the changes since the last backup, once.

It leads to the digest that was recorded at its step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import delete, select, update

from strandline import Database
from strandline.backups.repository.repository import RepositoryOwner
from strandline.catalog import paths, sqltables
from strandline.errors import Corrupted, PreconditionFailed, StrandlineError
from strandline.storage import segment as segments
from strandline.storage.digest import checksum_of
from strandline.storage.repository_marker import to_bytes
from tests.backups.reading import (
    CLUSTER,
    backups,
    collection,
    contents,
    last,
    leaks,
    projected,
    records,
    streams,
)
from tests.catalogs import forget, forget_rows
from tests.tables.examples import content, picture, rows

TABLE = "CREATE TABLE t (k Uint32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"
COLLECTION = f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}"


@pytest.fixture
def backed_up(db: Database) -> Database:
    db.sql(
        f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3); {COLLECTION}; BACKUP c"
    )
    return db


def increment(db: Database, statements: str = "") -> str:
    if statements:
        for statement in statements.split(";"):
            db.sql(statement)
    db.sql("BACKUP c INCREMENTAL")
    return backups(db)[-1]


def assert_whole(db: Database) -> None:
    """Assert that the last backup adds up to the present rows of its tables and indexes."""
    found = contents(db)
    for path, table in last(db).tables.items():
        assert sorted(found[path].values(), key=repr) == sorted(content(db, path), key=repr)
        for index in table.indexes:
            if index.holds == "data":
                assert found[f"{path}/{index.definition.name}"] == projected(
                    table.schema, found[path], index.definition
                )
    assert leaks(db) == []


def test_what_is_recorded(backed_up: Database) -> None:
    db = backed_up
    before = db.describe("/t")
    name = increment(db, "UPSERT INTO t (k, v) VALUES (1, 'x'), (8, 'y'); DELETE FROM t WHERE k = 2")
    full, record = records(db)
    described = db.describe("/t")
    assert described["version"] == before["version"] + 1
    assert (record.kind, record.parent, record.after_step) == ("incremental", full.name, full.step)
    assert record.stream == streams(db, "/t")[0]
    table = record.tables["/t"].slice
    assert table.version == described["version"]
    assert (table.rows, table.tombstones, table.whole) == (3, 1, False)
    assert (table.before.rows, table.before.hex) == (before["rows"], before["digest"])
    assert (table.after.rows, table.after.hex) == (described["rows"], described["digest"])
    assert table.delta is not None
    assert table.before + table.delta == table.after
    (index,) = record.tables["/t"].indexes
    impl = db.describe("/t/by_v/indexImplTable")
    assert index.slice is not None
    assert index.version == index.slice.version == impl["version"] == db.describe("/t/by_v")["version"]
    assert (index.slice.rows, index.slice.tombstones, index.slice.after.hex) == (4, 2, impl["digest"])
    assert db.describe(f"/.backups/collections/c/{name}/t")["bytes"] == table.bytes > 0
    assert rows(db, "SHOW BACKUPS IN c")[1] == (
        name,
        "incremental",
        full.name,
        record.step,
        1,
        3,
        record.bytes,
        False,
        "done",
    )
    operation = db.operations()[-1]
    assert operation.result == {
        "backup": name,
        "step": record.step,
        "tables": 1,
        "rows": 3,
        "bytes": record.bytes,
    }
    assert operation.progress == {"bytes": record.bytes}


@pytest.mark.slow
def test_after_merges_compactions_and_collections(db: Database) -> None:
    db.sql(f"{TABLE}; {COLLECTION}; BACKUP c")
    for i in range(150):
        db.table("t").upsert([{"k": i % 20, "v": f"v{i % 11}", "n": i}])
        if i % 50 == 49:
            db.compact("/t")
            db.collect()
    db.sql("DELETE FROM t WHERE k < 5")
    db.compact("/t")
    db.collect()
    increment(db)
    assert last(db).tables["/t"].slice.rows == 20
    assert_whole(db)
    db.maintain()
    db.collect()
    assert_whole(db)


def test_a_left_over_stream_of_a_busy_table_does_not_make_a_backup_fail(backed_up: Database) -> None:
    db = backed_up
    db.sql(
        "CREATE TABLE u (k Int32, PRIMARY KEY (k)); ALTER BACKUP COLLECTION c ADD TABLE u; BACKUP c; ALTER BACKUP COLLECTION c DROP TABLE u"
    )
    with db._runtime.catalog.write() as tx:
        paths.set_state(tx, [paths.require(tx.conn, "/u").id], "altering", "somebody else's")
    increment(db)
    assert len(streams(db, "/u")) == 1
    with db._runtime.catalog.write() as tx:
        paths.set_state(tx, [paths.require(tx.conn, "/u").id], "ready", None)
    increment(db)
    assert streams(db, "/u") == []
    assert leaks(db) == []


# --- corruption is never reported as success ---------------------------------------------------------------


def tamper(db: Database, path: str, change: Any) -> None:
    """Change the rows of the table's last log segment, and keep its checksum right.

    A writer with a defect would do the same.
    """
    with db._runtime.catalog.write() as tx:
        table_id = paths.require(tx.conn, path).id
        found = tx.conn.execute(
            select(sqltables.segments)
            .join(sqltables.chains, sqltables.chains.c.segment_id == sqltables.segments.c.id)
            .where(sqltables.chains.c.table_id == table_id)
            .order_by(sqltables.segments.c.id.desc())
            .limit(1)
        ).one()
        rows = change(segments._from_stream(pa.BufferReader(found.data)))
        data = segments._to_stream(rows)
        tx.conn.execute(
            update(sqltables.segments)
            .where(sqltables.segments.c.id == found.id)
            .values(data=data, checksum=checksum_of(data), rows=rows.num_rows, bytes=len(data))
        )
    forget(db._runtime)
    forget_rows(db._runtime.catalog)


def forget_last_log(db: Database, path: str) -> None:
    with db._runtime.catalog.write() as tx:
        table_id = paths.require(tx.conn, path).id
        last_one = (
            select(sqltables.chains.c.segment_id)
            .where(sqltables.chains.c.table_id == table_id)
            .order_by(sqltables.chains.c.segment_id.desc())
            .limit(1)
        )
        segment_id = tx.conn.execute(last_one).scalar_one()
        tx.conn.execute(delete(sqltables.chains).where(sqltables.chains.c.segment_id == segment_id))


def other_values(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.column_names.index("v"), "v", pa.array(["wrong"] * rows.num_rows))


@pytest.mark.parametrize("path", ["/t", "/t/by_v/indexImplTable"])
@pytest.mark.parametrize("damage", ["value", "row", "segment"])
def test_a_wrong_increment_is_refused_and_nothing_is_published(
    backed_up: Database, path: str, damage: str
) -> None:
    db = backed_up
    db.sql("UPSERT INTO t (k, v) VALUES (5, 'e'), (6, 'f')")
    if damage == "value":
        tamper(db, path, other_values)
    elif damage == "row":
        tamper(db, path, lambda rows: rows.slice(1))
    else:
        forget_last_log(db, path)
    db.collect()
    before = picture(db)
    with pytest.raises(Corrupted, match="was recorded") as caught:
        db.sql("BACKUP c INCREMENTAL")
    assert path in caught.value.message
    assert path in caught.value.hint
    db.collect()  # Correct slices were stored, and are collected.
    assert picture(db) == before
    assert len(backups(db)) == 1
    assert leaks(db) == []
    db.sql("BACKUP c")
    assert len(backups(db)) == 2


def test_a_wrong_increment_after_a_dropped_column_is_refused_as_well(backed_up: Database) -> None:
    """The digests prove nothing then, so the rows of the whole chain are read."""
    db = backed_up
    increment(db, "ALTER TABLE t ADD COLUMN x Int32; UPSERT INTO t (k, x) VALUES (1, 1), (2, 2)")
    db.sql("ALTER TABLE t DROP COLUMN x; UPSERT INTO t (k, v) VALUES (5, 'e'), (6, 'f')")
    tamper(db, "/t", other_values)
    with pytest.raises(Corrupted):
        db.sql("BACKUP c INCREMENTAL")
    assert leaks(db) == []
    assert len(backups(db)) == 2


def test_a_stream_that_is_gone_is_noticed(backed_up: Database) -> None:
    db = backed_up
    with db._runtime.catalog.write() as tx:
        stream = paths.require(tx.conn, f"/t/by_v/indexImplTable/{last(db).stream}")
        tx.conn.execute(delete(sqltables.holds).where(sqltables.holds.c.owner_id == stream.id))
        paths.remove(tx, [stream.id])
    with pytest.raises(PreconditionFailed, match="gone"):
        db.sql("BACKUP c INCREMENTAL")
    assert leaks(db) == []


# --- increments that cannot get stuck -----------------------------------------------------------------------


def test_a_full_one_is_taken_where_an_increment_is_not_possible(on_both: Database) -> None:
    db = on_both
    db.sql(f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1); {COLLECTION}")

    def taken() -> tuple[str, str | None]:
        ended = db.operation(str(db.sql("BACKUP c INCREMENTAL OR FULL").operation_id))
        assert ended.result is not None
        return last(db).kind, ended.result.get("because")

    kind, because = taken()
    assert kind == "full"
    assert because is not None
    assert "has no full backup yet" in because
    assert taken() == ("incremental", None)
    db.sql(f"DROP TABLE t; {TABLE}")
    kind, because = taken()
    assert kind == "full"
    assert because is not None
    assert "/t was created anew, restored" in because
    assert taken() == ("incremental", None)
    db.sql("ALTER BACKUP COLLECTION c SET (MAX_CHAIN = 2)")
    kind, because = taken()
    assert (kind, "MAX_CHAIN allows 2" in str(because)) == ("full", True)
    db.sql("DROP TABLE t")
    with pytest.raises(StrandlineError, match="PATH_NOT_FOUND"):
        db.sql("BACKUP c INCREMENTAL OR FULL")


def test_a_full_one_is_not_taken_where_it_would_not_help(db: Database, tmp_path: Path) -> None:
    """The increment was taken, but cannot be uploaded; neither could a full backup be."""
    place = tmp_path / "repository"
    db.sql(f"{TABLE}; {collection(place)}; BACKUP c")
    (place / "owners" / "00000002.json").write_bytes(
        to_bytes(RepositoryOwner(warehouse="another", since=0.0))
    )
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse another"):
        db.sql("BACKUP c INCREMENTAL OR FULL")
    assert [record.kind for record in records(db)] == ["full", "incremental"]


def test_a_collection_without_increments_says_how_to_switch_them_on(db: Database) -> None:
    db.sql(f"{TABLE}; {collection('cluster', incremental=False)}; BACKUP c")
    with pytest.raises(PreconditionFailed, match="does not take incremental backups") as fault:
        db.sql("BACKUP c INCREMENTAL")
    statements = fault.value.hint.removeprefix("Switch them on, and take a full backup: ").removesuffix(".")
    db.sql(f"{statements}; BACKUP c INCREMENTAL")
    assert [head.kind for head in records(db)] == ["full", "full", "incremental"]
