"""Streams that begin at the end of a restore: the users' changefeeds, and those for the next increment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from strandline import Database
from strandline.backups.record import chain_to, slices_of
from strandline.errors import Corrupted, PreconditionFailed
from tests.backups.reading import backups, contents, last, leaks, open_at, records, streams
from tests.catalogs import ManualClock
from tests.tables.examples import assert_sound

pytestmark = pytest.mark.slow

TABLES = """
CREATE TABLE t (k Uint32, v Utf8, n Int32, x Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n));
CREATE TABLE `d/u` (a Utf8, b Int32, PRIMARY KEY (a, b), INDEX later GLOBAL ASYNC ON (b));
UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3);
UPSERT INTO `d/u` (a, b) VALUES ('p', 1), (NULL, 2)
"""
DROP = "DROP TABLE t; DROP TABLE `d/u`"


@pytest.fixture
def backed_up(on_both: Database, tmp_path: Path) -> Database:
    """Create two tables, a full backup and an increment."""
    db = on_both
    storage = f"WITH (STORAGE = '{tmp_path / 'repository'}', INCREMENTAL_BACKUP_ENABLED = 'true')"
    db.sql(f"{TABLES}; CREATE BACKUP COLLECTION c (TABLE t, TABLE `d/u`) {storage}; BACKUP c")
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'z'); DELETE FROM t WHERE k = 3; BACKUP c INCREMENTAL")
    return db


def rows(db: Database, path: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in db.sql(f"SELECT * FROM `{path}`").rows()), key=repr)


def assert_chain(db: Database, collection: str = "c") -> None:
    """Assert that the last backup adds up to the present tables, folded by a dictionary and by a restore."""
    found = contents(db, collection=collection)
    for path in last(db, collection).tables:
        assert sorted(found[path].values(), key=repr) == rows(db, path)
    assert db.verify(collection) == []
    into = f"again{len(backups(db, collection))}"
    db.sql(f"RESTORE {collection} INTO {into} WITH (VERIFY = 'data')")
    for path in last(db, collection).tables:
        assert rows(db, f"{into}{path}") == rows(db, path)
        assert db.describe(f"/{into}{path}")["digest"] == db.describe(path)["digest"]
    assert leaks(db) == []


def test_increments_go_on_after_the_last_backup_was_restored(backed_up: Database) -> None:
    db = backed_up
    before = last(db)
    db.sql(f"{DROP}; RESTORE c")
    db.sql("UPSERT INTO t (k, v) VALUES (4, 'd'); DELETE FROM t WHERE k = 1; BACKUP c INCREMENTAL")
    record = last(db)
    assert (record.kind, record.parent, record.after_step) == ("incremental", before.name, before.step)
    slice_ = record.tables["/t"].slice
    assert (slice_.rows, slice_.tombstones, slice_.before) == (2, 1, before.tables["/t"].slice.after)
    assert slice_.continues == before.tables["/t"].slice.source_id != slice_.source_id
    index, earlier = record.tables["/t"].indexes[0].slice, before.tables["/t"].indexes[0].slice
    assert index is not None
    assert earlier is not None
    assert (index.continues, index.rows) == (earlier.source_id, 2)
    assert record.tables["/d/u"].slice.rows == 0
    assert_chain(db)
    # The increment after it needs no ``continues``.
    db.sql("UPSERT INTO `d/u` (a, b) VALUES ('new', 5); BACKUP c INCREMENTAL")
    assert {s.continues for s in last(db).slices} == {None}
    assert_chain(db)
    for path in ("/t", "/d/u"):
        assert_sound(db, path)


def test_they_go_on_after_one_restore_upon_another(backed_up: Database) -> None:
    db = backed_up
    first = last(db)
    db.sql(f"{DROP}; RESTORE c; {DROP}; RESTORE c; UPSERT INTO t (k, v) VALUES (9, 'nine')")
    db.maintain()
    db.sql("BACKUP c INCREMENTAL")
    assert last(db).tables["/t"].slice.continues == first.tables["/t"].slice.source_id
    second = last(db)
    db.sql(f"{DROP}; RESTORE c WITH (MODE = 'copy'); DELETE FROM t WHERE k = 9; BACKUP c INCREMENTAL")
    assert last(db).tables["/t"].slice.continues == second.tables["/t"].slice.source_id
    assert_chain(db)


def test_a_copy_elsewhere_says_nothing_of_the_restore_that_continued_the_backup(
    backed_up: Database, tmp_path: Path
) -> None:
    """The note is local to this warehouse: one that attaches the copy has other tables."""
    db = backed_up
    db.sql(f"{DROP}; RESTORE c")
    continued = last(db)
    assert continued.continued is not None
    db.sql(f"COPY BACKUP '{continued.name}' FROM c TO '{tmp_path / 'other'}'")
    db.sql(f"ATTACH BACKUP COLLECTION copy FROM '{tmp_path / 'other'}'")
    assert [record.continued for record in records(db, "copy")] == [None] * len(backups(db))


def test_what_has_not_changed_since_a_restore_costs_nothing(backed_up: Database) -> None:
    db = backed_up
    db.sql(f"{DROP}; RESTORE c")
    operation = db.operation(str(db.sql("BACKUP c INCREMENTAL").operation_id))
    assert operation.parts == 1
    assert last(db).rows == 0
    assert last(db).tables["/t"].slice.continues is not None
    assert_chain(db)


def test_merges_compaction_and_a_dropped_column_change_nothing_about_it(backed_up: Database) -> None:
    db = backed_up
    db.sql(f"{DROP}; RESTORE c")
    for k in range(20, 40):
        db.sql(f"UPSERT INTO t (k, v, n) VALUES ({k}, 'v{k % 3}', {k})")
    db.maintain()
    db.compact("/t")
    db.maintain()
    db.sql(
        "ALTER TABLE t DROP COLUMN x; ALTER TABLE t ADD COLUMN x Int64; UPSERT INTO t (k, x) VALUES (2, 2)"
    )
    db.sql("BACKUP c INCREMENTAL")
    assert last(db).tables["/t"].slice.delta is None
    assert_chain(db)


@pytest.mark.parametrize(
    "restored",
    [
        "RESTORE c AT '{full}'",
        "RESTORE c TABLE t; RESTORE c TABLE `d/u`",
        "RESTORE c TABLE t AS x, TABLE `d/u` AS t; DROP TABLE x; RESTORE c TABLE `d/u`",
        "RESTORE c; DROP TABLE t; RESTORE c TABLE t",
    ],
    ids=["an earlier one", "table by table", "elsewhere", "one of them again"],
)
def test_what_is_not_the_last_backup_as_a_whole_needs_a_full_one(backed_up: Database, restored: str) -> None:
    db = backed_up
    db.sql(f"{DROP}; {restored.format(full=backups(db)[0])}")
    with pytest.raises(PreconditionFailed, match="was created anew, restored"):
        db.sql("BACKUP c INCREMENTAL")
    db.sql("BACKUP c; UPSERT INTO `d/u` (a, b) VALUES ('q', 3); BACKUP c INCREMENTAL")
    assert leaks(db) == []


def test_a_chain_is_continued_only_by_what_says_so(backed_up: Database) -> None:
    db = backed_up
    db.sql(f"{DROP}; RESTORE c; UPSERT INTO t (k, v) VALUES (4, 'd'); BACKUP c INCREMENTAL")
    chain = chain_to(records(db), backups(db)[-1])
    assert len(slices_of(chain, "/t")) == 3
    table = chain[-1].tables["/t"]
    unsaid = replace(table, slice=replace(table.slice, continues=None))
    chain[-1] = replace(chain[-1], tables={"/t": unsaid})
    with pytest.raises(Corrupted, match="begins with the digest"):
        slices_of(chain, "/t")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Callable[[str], Database]]:
    opened: list[Database] = []

    def make(name: str) -> Database:
        opened.append(open_at(tmp_path / name, clock=ManualClock()))
        return opened[-1]

    yield make
    for db in opened:
        db.close()


def test_a_warehouse_that_takes_a_repository_over_goes_on_with_its_chain(
    elsewhere: Callable[[str], Database], tmp_path: Path
) -> None:
    first, place = elsewhere("first"), tmp_path / "repo"
    storage = f"WITH (STORAGE = '{place}', INCREMENTAL_BACKUP_ENABLED = 'true')"
    first.sql(f"{TABLES}; CREATE BACKUP COLLECTION c (TABLE t, TABLE `d/u`) {storage}; BACKUP c")
    first.sql("DELETE FROM t WHERE k = 3; BACKUP c INCREMENTAL")
    second = elsewhere("second")
    # By chance the ids may equal those of the first warehouse's tables; they must not be confused.
    second.sql("CREATE TABLE other (k Int32, PRIMARY KEY (k))")
    second.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}' WITH (TAKE_OVER = 'true')")
    with pytest.raises(PreconditionFailed):
        second.sql(f"{TABLES}; BACKUP c INCREMENTAL")
    second.sql(f"{DROP}; RESTORE c; UPSERT INTO t (k, v) VALUES (7, 'seven'); BACKUP c INCREMENTAL")
    assert last(second).tables["/t"].slice.rows == 1
    assert second.verify("c") == []
    assert db_rows(second) == [(1, "a"), (2, "b"), (7, "seven")]
    third = elsewhere("third")
    third.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}'; RESTORE c WITH (VERIFY = 'data')")
    assert db_rows(third) == db_rows(second)
    assert len(backups(third)) == 3
    assert third.verify("c") == []
    # This warehouse may only read.
    with pytest.raises(PreconditionFailed, match="belongs to another warehouse"):
        third.sql("BACKUP c INCREMENTAL")
    assert streams(third, "/t") == []


def db_rows(db: Database) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in db.sql("SELECT k, v FROM t").rows())


FEEDS = """
ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_AND_OLD_IMAGES', FORMAT = 'JSON');
ALTER TABLE t ADD CHANGEFEED keys WITH (MODE = 'KEYS_ONLY', FORMAT = 'JSON')
"""


def test_changefeeds_begin_anew_where_it_is_asked_for(backed_up: Database) -> None:
    db = backed_up
    db.sql(f"{FEEDS}; BACKUP c INCREMENTAL")
    feeds = last(db).tables["/t"].changefeeds
    assert [(f.name, f.mode, f.format) for f in feeds] == [
        ("f", "NEW_AND_OLD_IMAGES", "JSON"),
        ("keys", "KEYS_ONLY", "JSON"),
    ]
    assert last(db).tables["/d/u"].changefeeds == ()
    version = db.describe("/t")["version"]
    db.sql(f"{DROP}; RESTORE c INTO plain")
    assert [e.name for e in db.ls("/plain/t") if e.type == "stream"] == []
    operation = db.operation(str(db.sql("RESTORE c WITH (CHANGEFEEDS = 'true')").operation_id))
    assert operation.result is not None
    assert operation.result["changefeeds"] == ["/t/f", "/t/keys"]
    assert db.describe("/t")["version"] == version
    assert db.describe("/t/f")["mode"] == "NEW_AND_OLD_IMAGES"
    assert db.stream("/t/f").records() == []  # Restored rows are not changes.
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'changed'); DELETE FROM t WHERE k = 1")
    assert [(r["k"], r["v"], r["old_v"]) for r in db.stream("/t/f").records()] == [
        (1, None, "a"),
        (2, "changed", "z"),
    ]
    assert [r["k"] for r in db.stream("/t/keys").records()] == [1, 2]
    # They are ordinary changefeeds.
    db.maintain()
    db.sql("ALTER TABLE t DROP CHANGEFEED f; BACKUP c INCREMENTAL")
    assert [f.name for f in last(db).tables["/t"].changefeeds] == ["keys"]
    assert leaks(db) == []


def test_a_full_backup_knows_changefeeds_and_they_follow_a_table_to_its_new_name(backed_up: Database) -> None:
    db = backed_up
    db.sql(f"{FEEDS}; BACKUP c")
    assert [f.name for f in last(db).tables["/t"].changefeeds] == ["f", "keys"]
    db.sql("RESTORE c TABLE t AS copy WITH (CHANGEFEEDS = 'true')")
    db.sql("UPSERT INTO copy (k, v) VALUES (2, 'in the copy')")
    assert [r["v"] for r in db.stream("/copy/f").records()] == ["in the copy"]
    assert db.stream("/t/f").records() == []
