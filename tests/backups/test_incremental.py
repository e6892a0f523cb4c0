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
from strandline.model import IndexDef
from strandline.storage import segment as segments
from strandline.storage.digest import checksum_of
from strandline.storage.repository_marker import to_bytes
from tests.backups.reading import (
    CLUSTER,
    backups,
    changes,
    collection,
    contents,
    last,
    leaks,
    projected,
    records,
    streams,
)
from tests.memory import forget, forget_rows
from tests.tables.examples import assert_sound, content, picture, refused, rows

TABLE = "CREATE TABLE t (k Uint32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"
SET_V = "UPSERT INTO t (k, v) VALUES"
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


def test_windows_are_disjoint(on_both: Database) -> None:
    db = on_both
    db.sql(
        f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3); {COLLECTION}; BACKUP c"
    )
    one = increment(db, "UPSERT INTO t (k, n) VALUES (2, 20); DELETE FROM t WHERE k = 1")
    two = increment(db, "UPSERT INTO t (k, v) VALUES (3, 'C'); DELETE FROM t WHERE k = 2")
    three = increment(db)
    assert changes(db, one, "/t") == [(1, None, None, True), (2, "b", 20, False)]
    assert changes(db, one, "/t", "by_v") == [("a", 1, None, True), ("b", 2, 20, False)]
    assert changes(db, two, "/t") == [(2, None, None, True), (3, "C", 3, False)]
    assert changes(db, two, "/t", "by_v") == [("C", 3, 3, False), ("b", 2, None, True), ("c", 3, None, True)]
    assert changes(db, three, "/t") == changes(db, three, "/t", "by_v") == []
    for parent, child in zip(records(db), records(db)[1:], strict=False):
        assert (child.parent, child.after_step) == (parent.name, parent.step)
        assert streams(db, "/t") == streams(db, "/t/by_v/indexImplTable") == [last(db).stream]
    assert_whole(db)


@pytest.mark.parametrize(
    ("statements", "table", "index"),
    [
        ("UPSERT INTO t (k, v) VALUES (9, 'x'); DELETE FROM t WHERE k = 9", [(9, None, None, True)], [("x", 9, None, True)]),
        ("DELETE FROM t ON (k) VALUES (77)", [(77, None, None, True)], []),
        ("DELETE FROM t WHERE k = 77", [], []),
        ("DELETE FROM t WHERE k = 1; UPSERT INTO t (k, v) VALUES (1, 'a')", [(1, "a", None, False)], [("a", 1, None, False)]),
        (f"{SET_V} (1, 'z'); UPSERT INTO t (k, n) VALUES (1, 8)", [(1, "z", 8, False)], [("a", 1, None, True), ("z", 1, 8, False)]),
        ("REPLACE INTO t (k, v) VALUES (1, 'a')", [(1, "a", None, False)], [("a", 1, None, False)]),
        ("UPSERT INTO t (k, v) VALUES (1, NULL)", [(1, None, 1, False)], [("a", 1, None, True), (None, 1, 1, False)]),
        (f"{SET_V} (1, 'm'); {SET_V} (1, 'a')", [(1, "a", 1, False)], [("a", 1, 1, False), ("m", 1, None, True)]),
        ("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1)", [(1, "a", 1, False)], []),
        ("UPSERT INTO t (k, v) VALUES (NULL, 'none')", [(None, "none", None, False)], [("none", None, None, False)]),
        ("UPSERT INTO t (k) VALUES (4)", [(4, None, None, False)], [(None, 4, None, False)]),
        ("DELETE FROM t", [(k, None, None, True) for k in (1, 2, 3)], [(v, k, None, True) for v, k in (("a", 1), ("b", 2), ("c", 3))]),
    ],
)  # fmt: skip
def test_what_a_window_folds_to(
    backed_up: Database, statements: str, table: list[Any], index: list[Any]
) -> None:
    name = increment(backed_up, statements)
    assert changes(backed_up, name, "/t") == sorted(table, key=lambda row: repr(row[:1]))
    assert changes(backed_up, name, "/t", "by_v") == sorted(index, key=lambda row: repr(list(row[:2])))
    assert_whole(backed_up)


def test_where_it_is_in_the_tree(backed_up: Database) -> None:
    db = backed_up
    db.sql(
        "CREATE TABLE `dir/plain` (k Int32, PRIMARY KEY (k)); ALTER BACKUP COLLECTION c ADD TABLE `dir/plain`; BACKUP c"
    )
    at = f"/.backups/collections/c/{increment(db)}"
    assert [(e.name, e.type) for e in db.ls(at)] == [
        ("__ydb_backup_meta", "directory"),
        ("dir", "directory"),
        ("t", "table"),
    ]
    assert [(e.name, e.type) for e in db.ls(f"{at}/__ydb_backup_meta/indexes")] == [("t", "directory")]
    assert [(e.name, e.type) for e in db.ls(f"{at}/__ydb_backup_meta/indexes/t")] == [("by_v", "table")]
    assert [c["name"] for c in db.describe(f"{at}/__ydb_backup_meta/indexes/t/by_v")["columns"]] == [
        "v",
        "k",
        "n",
    ]
    db.sql("ALTER BACKUP COLLECTION c DROP TABLE t; BACKUP c")
    at = f"/.backups/collections/c/{increment(db)}"
    assert [e.name for e in db.ls(at)] == ["dir"]


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


def test_an_index_that_was_added_is_in_the_next_increment_whole(backed_up: Database) -> None:
    db = backed_up
    one = increment(
        db, "ALTER TABLE t ADD INDEX by_n GLOBAL SYNC ON (n); UPSERT INTO t (k, n) VALUES (2, 25), (4, 40)"
    )
    assert changes(db, one, "/t", "by_n") == [(1, 1, False), (25, 2, False), (3, 3, False), (40, 4, False)]
    added = last(db).tables["/t"].index("by_n")
    assert added is not None
    assert added.slice is not None
    assert added.slice.whole
    assert streams(db, "/t/by_n/indexImplTable") == [last(db).stream]
    two = increment(db, "UPSERT INTO t (k, n) VALUES (2, 26)")
    assert changes(db, two, "/t", "by_n") == [(25, 2, True), (26, 2, False)]
    assert_whole(db)


def test_an_index_that_was_dropped_is_gone_from_later_backups_and_still_in_earlier_ones(
    backed_up: Database,
) -> None:
    db = backed_up
    one = increment(
        db,
        "UPSERT INTO t (k, v) VALUES (1, 'x'); ALTER TABLE t DROP INDEX by_v; UPSERT INTO t (k, v) VALUES (2, 'y')",
    )
    assert last(db).tables["/t"].indexes == ()
    assert all("__ydb" not in e.name for e in db.ls(f"/.backups/collections/c/{one}"))
    assert list(contents(db)) == ["/t"]
    assert list(contents(db, backups(db)[0])) == ["/t", "/t/by_v"]
    assert_whole(db)


def test_an_index_that_was_built_again_under_its_old_name(backed_up: Database) -> None:
    db = backed_up
    one = increment(
        db,
        "ALTER TABLE t DROP INDEX by_v; ALTER TABLE t ADD INDEX by_v GLOBAL ON (n); UPSERT INTO t (k, n) VALUES (1, 9)",
    )
    assert changes(db, one, "/t", "by_v") == [(2, 2, False), (3, 3, False), (9, 1, False)]
    index = last(db).tables["/t"].index("by_v")
    assert index is not None
    assert index.definition == IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("n",))
    assert_whole(db)


def test_columns_come_and_go(backed_up: Database) -> None:
    db = backed_up
    increment(db, "ALTER TABLE t ADD COLUMN note Utf8; UPSERT INTO t (k, note) VALUES (2, 'x'), (3, 'y')")
    assert last(db).tables["/t"].schema.names == ("k", "v", "n", "note")
    assert_whole(db)
    increment(
        db,
        "UPSERT INTO t (k, note) VALUES (1, 'z'); ALTER TABLE t DROP COLUMN note; UPSERT INTO t (k, v) VALUES (2, 'w')",
    )
    assert last(db).tables["/t"].schema.names == ("k", "v", "n")
    assert_whole(db)
    increment(db, "ALTER TABLE t ADD COLUMN note Int64; UPSERT INTO t (k, note) VALUES (5, 5)")
    assert_whole(db)
    first, second, third, fourth = (contents(db, name)["/t"] for name in backups(db))
    assert first[(2,)] == (2, "b", 2)
    assert second[(2,)] == (2, "b", 2, "x")
    assert third == {(1,): (1, "a", 1), (2,): (2, "w", 2), (3,): (3, "c", 3)}
    assert fourth[(3,)] == (3, "c", 3, None)
    assert fourth[(5,)] == (5, None, None, 5)


def test_a_dropped_column_whose_rows_did_not_change(backed_up: Database) -> None:
    db = backed_up
    increment(db, "ALTER TABLE t ADD COLUMN x Int32; UPSERT INTO t (k, x) VALUES (1, 1), (2, 2)")
    increment(db, "ALTER TABLE t DROP COLUMN x")
    assert changes(db, backups(db)[-1], "/t") == []
    assert last(db).tables["/t"].slice.delta is None
    assert_whole(db)


@pytest.mark.parametrize(
    "between",
    [
        f"DROP TABLE t; {TABLE}",
        f"DROP TABLE t; {TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
    ],
)
def test_another_table_of_the_same_name_needs_a_full_one(on_both: Database, between: str) -> None:
    db = on_both
    db.sql(
        f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3); {COLLECTION}; BACKUP c; BACKUP c INCREMENTAL"
    )
    db.sql(between)
    with refused(db, "PRECONDITION_FAILED", "/t was created anew, restored"):
        db.sql("BACKUP c INCREMENTAL")
    assert leaks(db) == []
    db.sql("BACKUP c")
    increment(db, "UPSERT INTO t (k, v) VALUES (2, 'z')")
    assert last(db).rows == 1
    assert_whole(db)


def test_the_same_name_in_two_directories(db: Database) -> None:
    for path in ("t", "a/t", "a/b/t"):
        db.sql(f"CREATE TABLE `{path}` (k Utf8, PRIMARY KEY (k), INDEX i GLOBAL SYNC ON (k))")
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t, TABLE `a/t`, TABLE `a/b/t`) {CLUSTER}; BACKUP c")
    name = increment(db, "UPSERT INTO `a/t` (k) VALUES ('in a'); UPSERT INTO `a/b/t` (k) VALUES ('in b')")
    assert changes(db, name, "/t") == []
    assert changes(db, name, "/a/t") == [("in a", False)]
    assert changes(db, name, "/a/b/t", "i") == [("in b", False)]
    assert_whole(db)


def test_key_only_and_empty_tables(db: Database) -> None:
    db.sql(
        "CREATE TABLE t (a Utf8, b Int32, PRIMARY KEY (a, b), INDEX by_b GLOBAL SYNC ON (b)); CREATE TABLE e (k Int8, PRIMARY KEY (k))"
    )
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t, TABLE e) {CLUSTER}; BACKUP c")
    name = increment(
        db, "UPSERT INTO t (a, b) VALUES ('x', NULL), (NULL, 1); UPSERT INTO t (a, b) VALUES (NULL, NULL)"
    )
    assert len(changes(db, name, "/t")) == len(changes(db, name, "/t", "by_b")) == 3
    name = increment(db, "DELETE FROM t ON (a, b) VALUES ('x', NULL)")
    assert changes(db, name, "/t") == [("x", None, True)]
    assert changes(db, name, "/t", "by_b") == [(None, "x", True)]
    assert changes(db, name, "/e") == []
    assert_whole(db)


def test_shards_are_cut_at_their_boundaries(db: Database) -> None:
    db.sql(
        "CREATE TABLE t (k Uint32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL SYNC ON (v)) WITH (PARTITION_AT_KEYS = (10, 20, 30))"
    )
    db.sql(f"{COLLECTION}; BACKUP c")
    name = increment(db, "UPSERT INTO t (k, v) VALUES (NULL, 'n'), (1, 'a'), (10, 'b'), (11, 'c'), (29, 'd')")
    assert db.describe(f"/.backups/collections/c/{name}/t")["segments"] == 3
    assert_whole(db)


def test_asynchronous_indexes_are_only_defined(db: Database) -> None:
    db.sql(
        f"CREATE TABLE t (k Int32, v Int32, PRIMARY KEY (k), INDEX i GLOBAL ASYNC ON (v)); {COLLECTION}; BACKUP c"
    )
    name = increment(db, "UPSERT INTO t (k, v) VALUES (1, 1)")
    db.maintain()
    assert [(i.holds, i.slice) for i in last(db).tables["/t"].indexes] == [("definition", None)]
    assert [e.name for e in db.ls(f"/.backups/collections/c/{name}")] == ["t"]
    assert streams(db, "/t/i/indexImplTable") == []
    assert_whole(db)


def test_indexes_are_omitted_for_a_while(backed_up: Database) -> None:
    db = backed_up
    increment(
        db, "ALTER BACKUP COLLECTION c SET (OMIT_INDEXES = 'true'); UPSERT INTO t (k, v) VALUES (1, 'x')"
    )
    assert last(db).tables["/t"].indexes[0].holds == "definition"
    assert streams(db, "/t/by_v/indexImplTable") == []
    increment(db, "UPSERT INTO t (k, v) VALUES (2, 'y'); ALTER BACKUP COLLECTION c RESET (OMIT_INDEXES)")
    assert last(db).tables["/t"].indexes[0].holds == "data"
    assert len(changes(db, backups(db)[-1], "/t", "by_v")) == 3
    assert_whole(db)


def test_a_full_one_in_between_begins_a_new_chain(backed_up: Database) -> None:
    db = backed_up
    increment(db, "UPSERT INTO t (k, v) VALUES (1, 'x')")
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'y'); BACKUP c")
    name = increment(db, "UPSERT INTO t (k, v) VALUES (3, 'z')")
    assert last(db).parent == backups(db)[2]
    assert changes(db, name, "/t") == [(3, "z", 3, False)]
    assert_whole(db)


def test_a_left_over_stream_of_a_busy_table_does_not_make_a_backup_fail(backed_up: Database) -> None:
    db = backed_up
    db.sql(
        "CREATE TABLE u (k Int32, PRIMARY KEY (k)); ALTER BACKUP COLLECTION c ADD TABLE u; BACKUP c; ALTER BACKUP COLLECTION c DROP TABLE u"
    )
    with db.runtime.catalog.write() as tx:
        paths.set_state(tx, [paths.require(tx.conn, "/u").id], "altering", "somebody else's")
    increment(db)
    assert len(streams(db, "/u")) == 1
    with db.runtime.catalog.write() as tx:
        paths.set_state(tx, [paths.require(tx.conn, "/u").id], "ready", None)
    increment(db)
    assert streams(db, "/u") == []
    assert leaks(db) == []


# --- corruption is never reported as success ---------------------------------------------------------------


def tamper(db: Database, path: str, change: Any) -> None:
    """Change the rows of the table's last log segment, and keep its checksum right.

    A writer with a defect would do the same.
    """
    with db.runtime.catalog.write() as tx:
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
    forget(db.runtime)
    forget_rows(db.runtime.catalog)


def forget_last_log(db: Database, path: str) -> None:
    with db.runtime.catalog.write() as tx:
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
    with db.runtime.catalog.write() as tx:
        stream = paths.require(tx.conn, f"/t/by_v/indexImplTable/{last(db).stream}")
        tx.conn.execute(delete(sqltables.holds).where(sqltables.holds.c.owner_id == stream.id))
        paths.remove(tx, [stream.id])
    with pytest.raises(PreconditionFailed, match="gone"):
        db.sql("BACKUP c INCREMENTAL")
    assert leaks(db) == []


# --- increments that cannot get stuck -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["created later", "joins"])
def test_a_table_that_the_last_backup_does_not_hold_is_taken_whole(on_both: Database, way: str) -> None:
    db = on_both
    db.sql(f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1)")
    whole = (
        "CREATE BACKUP COLLECTION c DATABASE"
        if way == "created later"
        else "CREATE BACKUP COLLECTION c (TABLE t)"
    )
    db.sql(f"{whole} {CLUSTER}; BACKUP c")
    db.sql(f"{TABLE.replace('TABLE t', 'TABLE u')}; UPSERT INTO u (k, v, n) VALUES (1, 'x', 1), (2, 'y', 2)")
    if way == "joins":
        db.sql("ALTER BACKUP COLLECTION c ADD TABLE u")
    db.sql("BACKUP c INCREMENTAL")
    assert last(db).tables["/u"].slice.whole
    assert not last(db).tables["/t"].slice.whole
    db.sql("DELETE FROM u WHERE k = 1; UPSERT INTO u (k, v, n) VALUES (3, 'z', 3); BACKUP c INCREMENTAL")
    assert not last(db).tables["/u"].slice.whole
    expected = rows(db, "SELECT * FROM u ORDER BY k")
    db.sql("RESTORE c INTO 'r' WITH (VERIFY = 'data')")
    assert rows(db, "SELECT * FROM `r/u` ORDER BY k") == expected == [(2, "y", 2), (3, "z", 3)]
    assert_sound(db, "r/u")
    assert db.verify("c") == []
    # The first backup does not have it.
    db.sql(f"RESTORE c AT '{backups(db)[0]}' INTO 'first'")
    assert [entry.name for entry in db.ls("/first")] == ["t"]


def test_a_table_that_left_and_came_back_begins_anew(db: Database) -> None:
    db.sql(f"{TABLE}; {TABLE.replace('TABLE t', 'TABLE u')}; UPSERT INTO u (k, v, n) VALUES (1, 'x', 1)")
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t, TABLE u) {CLUSTER}; BACKUP c")
    db.sql("ALTER BACKUP COLLECTION c DROP TABLE u; BACKUP c INCREMENTAL")
    db.sql(
        f"DROP TABLE u; {TABLE.replace('TABLE t', 'TABLE u')}; UPSERT INTO u (k, v, n) VALUES (9, 'new', 9)"
    )
    db.sql("ALTER BACKUP COLLECTION c ADD TABLE u; BACKUP c INCREMENTAL; RESTORE c INTO 'r'")
    assert rows(db, "SELECT k, v, n FROM `r/u`") == [(9, "new", 9)]


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
