"""Renamed tables keep their rows, indexes, changefeeds and backups."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Database
from strandline.catalog import paths
from strandline.errors import UnderOperation
from tests.backups.reading import TABLE, backups, contents, leaks, open_at, records, streams
from tests.effort import EVERY
from tests.tables.examples import assert_sound, rows

pytestmark = pytest.mark.slow

COLLECTION = (
    "CREATE BACKUP COLLECTION c {members} WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
)
QUERY = "SELECT k, v FROM {} ORDER BY k"


SQLITE = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
"""For tests that hardly depend on the catalog."""


@pytest.fixture
def filled(on_both: Database) -> Database:
    db = on_both
    db.sql(f"{TABLE}; {COLLECTION.format(members='(TABLE t)')}")
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20)")
    return db


def test_a_chain_goes_on_and_each_backup_has_the_name_of_its_moment(filled: Database) -> None:
    db = filled
    expected = {}

    def back_up(how: str) -> None:
        db.sql(f"BACKUP c {how}")
        expected[backups(db)[-1]] = contents(db)

    back_up("")
    db.sql("UPSERT INTO t (k, v) VALUES (3, 'c'); ALTER TABLE t RENAME TO u")
    back_up("INCREMENTAL")
    back_up("INCREMENTAL")  # no changes since
    db.sql("ALTER TABLE u RENAME TO `dir/w`")
    back_up("INCREMENTAL")  # only the name has changed
    db.sql("DELETE FROM `dir/w` WHERE k = 1")
    back_up("INCREMENTAL")
    assert [record.kind for record in records(db)] == ["full", *["incremental"] * 4]
    assert [sorted(record.tables) for record in records(db)] == [
        ["/t"], ["/u"], ["/u"], ["/dir/w"], ["/dir/w"],
    ]  # fmt: skip
    assert [r.tables[p].was for r in records(db) for p in r.tables] == [None, "/t", None, "/u", None]
    assert db.verify("c", level="restore") == []
    for number, name in enumerate(expected):
        db.sql(f"RESTORE c AT '{name}' INTO r{number}")
    assert rows(db, QUERY.format("`r0/t`")) == [(1, "a"), (2, "b")]
    assert rows(db, QUERY.format("`r1/u`")) == rows(db, QUERY.format("`r3/dir/w`")) == [
        (1, "a"), (2, "b"), (3, "c"),
    ]  # fmt: skip
    assert rows(db, "SELECT k FROM `r4/dir/w` VIEW by_v WHERE v = 'c'") == [(3,)]
    assert rows(db, QUERY.format("`r4/dir/w`")) == [(2, "b"), (3, "c")]
    assert rows(db, f"SELECT k FROM u IN BACKUP c AT '{backups(db)[2]}' ORDER BY k") == [(1,), (2,), (3,)]
    db.sql(f"PIN BACKUP c '{backups(db)[1]}'; COMPACT c INCREMENTS")
    left = {name: expected[name] for name in backups(db)}
    assert len(left) == 3 and {name: contents(db, name) for name in left} == left
    assert records(db)[-1].tables["/dir/w"].was == "/u"
    db.sql(f"COMPACT c TO '{backups(db)[1]}'")
    assert {name: contents(db, name) for name in left} == left
    assert db.verify("c") == []
    assert leaks(db) == []


@SQLITE
def test_an_increment_after_a_column_was_dropped_as_well(filled: Database) -> None:
    db = filled
    db.sql("ALTER TABLE t DROP INDEX by_v; BACKUP c; ALTER TABLE t RENAME TO u; ALTER TABLE u DROP COLUMN n")
    db.sql("UPSERT INTO u (k, v) VALUES (5, 'e'); BACKUP c INCREMENTAL; RESTORE c INTO r")
    assert rows(db, QUERY.format("`r/u`")) == [(1, "a"), (2, "b"), (5, "e")]
    assert db.verify("c", level="restore") == []


@SQLITE
@pytest.mark.parametrize("members", ["DATABASE", "(TABLE t, TABLE other)"] if EVERY else ["DATABASE"])
def test_names_that_are_exchanged_and_taken_again(on_both: Database, members: str) -> None:
    db = on_both
    db.sql(
        f"{TABLE}; CREATE TABLE other (k Int32, w Utf8, PRIMARY KEY (k)); {COLLECTION.format(members=members)}"
    )
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); UPSERT INTO other (k, w) VALUES (7, 'o'); BACKUP c")
    db.sql(
        "ALTER TABLE t RENAME TO tmp; ALTER TABLE other RENAME TO t; ALTER TABLE tmp RENAME TO other;"
        "UPSERT INTO other (k, v) VALUES (2, 'b'); BACKUP c INCREMENTAL"
    )
    assert {p: t.was for p, t in records(db)[-1].tables.items()} == {"/t": "/other", "/other": "/t"}
    db.sql(
        "ALTER TABLE t RENAME TO gone; CREATE TABLE t (k Int32, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (9)"
    )
    if members != "DATABASE":
        db.sql("ALTER BACKUP COLLECTION c ADD TABLE t")
    db.sql("BACKUP c INCREMENTAL; UPSERT INTO t (k) VALUES (8); BACKUP c INCREMENTAL; RESTORE c INTO r")
    assert rows(db, "SELECT * FROM `r/gone`") == [(7, "o")]
    assert rows(db, "SELECT k FROM `r/other` VIEW by_v WHERE v = 'b'") == [(2,)]
    assert rows(db, "SELECT k FROM `r/t` ORDER BY k") == [(8,), (9,)]
    assert db.verify("c", level="restore") == []


@SQLITE
def test_a_table_or_collection_under_operation_keeps_its_name(filled: Database) -> None:
    db = filled
    for path in ("/t", "/t/by_v/indexImplTable", "/.backups/collections/c"):
        with db._runtime.catalog.write() as tx:
            row = paths.require(tx.conn, path)
            paths.set_state(tx, [row.id], "copying", "an operation")
        with pytest.raises(UnderOperation, match="is busy: operation"):
            db.sql("ALTER TABLE t RENAME TO u")
        with db._runtime.catalog.write() as tx:
            paths.set_state(tx, [row.id], paths.READY, None)
    db.sql("ALTER TABLE t RENAME TO u")
    assert len(streams(db, "/u")) == 0


@pytest.mark.parametrize("place", ["cluster", "repository"])
def test_columns_of_a_chain_have_the_names_of_each_moment(
    db: Database, repository: Path, tmp_path: Path, place: str
) -> None:
    storage = "cluster" if place == "cluster" else str(repository)
    db.sql(f"{TABLE}; {COLLECTION.format(members='(TABLE t)').replace('cluster', storage)}")
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20)")
    db.compact("/t")
    db.sql("BACKUP c; ALTER TABLE t RENAME COLUMN v TO name, RENAME COLUMN k TO id")
    db.sql("UPSERT INTO t (id, name) VALUES (3, 'c'); BACKUP c INCREMENTAL")
    db.sql("ALTER TABLE t RENAME COLUMN n TO v, RENAME COLUMN name TO n")  # names that other columns had
    db.sql("UPSERT INTO t (id, v) VALUES (1, 11); DELETE FROM t WHERE id = 2; BACKUP c INCREMENTAL")
    db.sql("ALTER TABLE t ADD COLUMN k Utf8; UPSERT INTO t (id, k) VALUES (3, 'k'); BACKUP c INCREMENTAL")
    assert [record.kind for record in records(db)] == ["full", *["incremental"] * 3]
    assert db.verify("c", level="restore") == []
    expected = {name: contents(db, name) for name in backups(db)}

    def look(at: Database, mode: str) -> None:
        for number, name in enumerate(backups(db)):
            at.sql(f"RESTORE c AT '{name}' INTO {mode}{number} WITH (MODE = '{mode}')")
            assert_sound(at, f"/{mode}{number}/t")
        query = "SELECT {} FROM `{}{}/t` {}"
        assert rows(at, query.format("k, v, n", mode, 0, "ORDER BY k")) == [(1, "a", 10), (2, "b", 20)]
        assert rows(at, query.format("id, name, n", mode, 1, "WHERE id = 3")) == [(3, "c", None)]
        assert rows(at, query.format("id", mode, 1, "VIEW by_v WHERE name = 'b'")) == [(2,)]
        assert rows(at, query.format("id, n, v", mode, 2, "ORDER BY id")) == [(1, "a", 11), (3, "c", None)]
        assert rows(at, query.format("id, v", mode, 2, "VIEW by_v WHERE n = 'a'")) == [(1, 11)]
        assert rows(at, query.format("id, k", mode, 3, "ORDER BY id")) == [(1, None), (3, "k")]

    look(db, "copy")
    if place == "cluster":
        look(db, "reference")
    else:
        with open_at(tmp_path / "another") as other:
            other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}'")
            look(other, "copy")
    last = backups(db)[2]
    assert rows(db, f"SELECT id, n FROM t VIEW by_v IN BACKUP c AT '{last}' WHERE n = 'c'") == [(3, "c")]
    db.sql(f"COMPACT c TO '{last}'")
    assert {name: contents(db, name) for name in expected} == expected
    assert db.verify("c", level="restore") == []
    assert leaks(db) == []
