"""RESTORE ... WITH (REPLACE = 'true'): restored tables replace the old ones in one transaction.

The old ones are kept, with every earlier write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline.api.database import Database
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.errors import (
    AlreadyExists,
    Conflict,
    Corrupted,
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    UnderOperation,
)
from tests.backups.reading import CLUSTER, leaks, streams
from tests.backups.restore.story import (
    INDEXES,
    TABLES,
    TOLD_AT,
    Story,
    Told,
    content,
    open_at,
    started,
    state,
)
from tests.backups.restore.test_crash import evidence
from tests.backups.restore.test_restore import agree
from tests.tables.examples import tree
from tests.world import ManualClock

pytestmark = pytest.mark.slow

REPLACE = RestoreRequest(collection="c", replace=True)


def replaced(db: Database, statement: str) -> dict[str, str]:
    """Run a restore, and return where the replaced tables are kept."""
    operation = db.sql(statement).operation_id
    assert operation is not None
    result = db.operation(operation).result
    assert result is not None
    assert result["to_drop"] == [f"DROP TABLE `{kept}`" for kept in sorted(result["replaced"].values())]
    return dict(result["replaced"])


def kept_in(kept: dict[str, str]) -> str:
    (directory,) = {place.removesuffix(path) for path, place in kept.items()}
    return directory


def spoil(db: Database) -> None:
    """Make changes that a user would like to undo."""
    db.sql("DELETE FROM orders WHERE id > 3; UPSERT INTO `dir/items` (a, b, name) VALUES ('oh', 1, 'no')")


@pytest.fixture
def two(anywhere: Told) -> Iterator[tuple[Database, Database, Story]]:
    """Open two databases on one warehouse."""
    one, other = (open_at(anywhere.folder, anywhere.url) for _ in range(2))
    yield one, other, anywhere.story
    one.close()
    other.close()


def test_the_restored_tables_take_the_places_of_the_old_ones(told: tuple[Database, Story]) -> None:
    db, story = told
    spoil(db)
    before, versions = state(db), {path: db.describe(path)["version"] for path in (*TABLES, *INDEXES)}
    kept = replaced(db, f"RESTORE c AT '{story.backups[1]}' WITH (REPLACE = 'true', VERIFY = 'data')")
    assert state(db) == story.states[story.backups[1]]
    directory = kept_in(kept)
    assert kept == {path: f"{directory}{path}" for path in TABLES}
    assert state(db, directory) == before
    for prefix in ("", directory):
        assert agree(db, prefix)
        assert all(db.check(f"{prefix}{table}").ok for table in TABLES)
        assert all(db.describe(f"{prefix}{path}")["version"] > version for path, version in versions.items())
    seen = db.sql(f"SELECT id FROM `{kept['/orders']}` VIEW by_customer WHERE customer = 'moved'").rows()
    assert seen == [(0,)]
    assert len(db.sql("SELECT id FROM orders VIEW by_customer WHERE customer = 'moved'").rows()) == 14
    db.collect()
    assert leaks(db) == []


def test_explain_says_what_would_be_replaced(on_sqlite: tuple[Database, Story]) -> None:
    db, _ = on_sqlite
    db.sql("DROP TABLE `dir/items`")
    before = tree(db)
    lines = db.sql("EXPLAIN RESTORE c WITH (REPLACE = 'true')").rows()
    assert [line for line in lines if line[0] in ("replace", "in the way")] == [
        ("replace", "/orders", "the old one is kept as /.replaced/TIME/orders")
    ]
    assert tree(db) == before
    started(db, REPLACE)
    lines = db.sql("EXPLAIN RESTORE c WITH (REPLACE = 'true')").rows()
    details = {name: details for what, name, details in lines if what in ("replace", "in the way")}
    assert "in state being replaced now, so it would be refused" in details["/orders"]
    assert "in state incoming restore" in details["/dir/items"]


def test_what_is_missing_is_made_and_what_is_there_is_replaced(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    db.sql("DROP TABLE `dir/items`")
    kept = replaced(db, "RESTORE c WITH (REPLACE = 'true')")
    assert list(kept) == ["/orders"]
    assert state(db) == story.states[story.backups[-1]]


@pytest.mark.parametrize(
    ("before", "restore", "at"),
    [
        ("RESTORE c TABLE orders AS o2", "RESTORE c TABLE orders AS o2", "/o2"),
        ("RESTORE c INTO 'deep/er'", "RESTORE c TABLE orders INTO 'deep/er'", "/deep/er/orders"),
        (
            "CREATE TABLE other (x Utf8, PRIMARY KEY (x))",
            "RESTORE c TABLE orders AS other",
            "/other",
        ),
    ],
)
def test_other_targets_are_replaced_as_well(
    told: tuple[Database, Story], before: str, restore: str, at: str
) -> None:
    db, story = told
    db.sql(before)
    untouched, was = state(db), db.describe(at)["digest"]
    assert replaced(db, f"{restore} WITH (REPLACE = 'true')") == {at: kept_at(db, at)}
    assert (db.describe(at)["digest"], content(db, at)) == story.states[story.backups[-1]]["/orders"][1:]
    assert db.describe(kept_at(db, at))["digest"] == was
    assert state(db) == untouched


def test_a_backup_in_a_repository_takes_the_place_as_well(tmp_path: Path) -> None:
    with open_at(tmp_path / "w") as db:
        db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
        db.sql(
            f"CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{tmp_path / 'repository'}', "
            "INCREMENTAL_BACKUP_ENABLED = 'true')"
        )
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b'); BACKUP c; DELETE FROM t ON (k) VALUES (1)")
        db.sql("BACKUP c INCREMENTAL; UPSERT INTO t (k, v) VALUES (2, 'oh no'), (3, 'c')")
        kept = replaced(db, "RESTORE c WITH (REPLACE = 'true', VERIFY = 'data')")["/t"]
        assert db.sql("SELECT k FROM t VIEW by_v WHERE v = 'b'").rows() == [(2,)]
        assert sorted(db.sql(f"SELECT k, v FROM `{kept}`").rows()) == [(2, "oh no"), (3, "c")]
        assert db.check("/t").ok
        assert db.check(kept).ok
        db.sql("BACKUP c INCREMENTAL OR FULL; UPSERT INTO t (k, v) VALUES (4, 'd')")
        db.sql("BACKUP c INCREMENTAL; RESTORE c INTO 'r'")
        assert db.describe("/r/t")["digest"] == db.describe("/t")["digest"]


def kept_at(db: Database, path: str) -> str:
    (only,) = db.ls("/.replaced")
    return f"{only.path}{path}"


# --- concurrent operations -------------------------------------------------------------------------------


def test_the_old_tables_are_read_and_written_until_the_end(two: tuple[Database, Database, Story]) -> None:
    db, other, story = two
    db.sql(f"CREATE BACKUP COLLECTION d (TABLE orders) {CLUSTER}")
    db.sql("ALTER TABLE orders ADD CHANGEFEED feed WITH (MODE = 'UPDATES', FORMAT = 'JSON')")
    engine, operation = started(other, REPLACE)
    number, feed = 0, db.stream("/orders/feed")
    while engine.step(operation):
        number += 1
        db.sql(f"UPSERT INTO orders (id, customer, total) VALUES ({1000 + number}, 'between', {number})")
        found = db.sql("SELECT id FROM orders VIEW by_customer WHERE customer = 'between'").rows()
        assert len(found) == number
        assert [record["id"] for record in feed.records()] == [1000 + number]
        feed.commit(db.step)
        for statement in (
            "ALTER TABLE orders ADD COLUMN x Int32",
            "ALTER TABLE orders DROP INDEX by_customer",
            "ALTER TABLE orders ADD CHANGEFEED f WITH (MODE = 'UPDATES', FORMAT = 'JSON')",
            "DROP TABLE orders",
            "BACKUP d",
            "RESTORE c WITH (REPLACE = 'true')",
        ):
            with pytest.raises(UnderOperation, match=operation):
                db.sql(statement)
        with pytest.raises(UnderOperation, match=operation):
            db.sql(f"SELECT * FROM `{kept_at(db, '/orders')}`").rows()
    assert db.operation(operation).state == "done"
    assert number > 10
    kept = db.sql(
        f"SELECT id, total FROM `{kept_at(db, '/orders')}` VIEW by_customer WHERE customer = 'between'"
    )
    assert sorted(kept.rows()) == [(1000 + n, n) for n in range(1, number + 1)]
    assert db.check(kept_at(db, "/orders")).ok
    assert state(db) == story.states[story.backups[-1]]


def test_a_table_under_another_operation_is_not_replaced(two: tuple[Database, Database, Story]) -> None:
    db, other, story = two
    db.sql(f"CREATE BACKUP COLLECTION d (TABLE orders) {CLUSTER}; BACKUP d")
    before = tree(db)
    engine, operation = started(other, RestoreRequest(collection="d", replace=True))
    during = tree(db)
    with pytest.raises(UnderOperation, match=f"/orders is busy: restore {operation} is replacing it"):
        db.sql("RESTORE c WITH (REPLACE = 'true')")
    assert tree(db) == during != before
    assert engine.run(operation).state == "done"
    replaced(db, "RESTORE c WITH (REPLACE = 'true')")
    assert state(db) == story.states[story.backups[-1]]


def test_what_was_planned_before_is_not_written_where_nobody_looks(
    two: tuple[Database, Database, Story],
) -> None:
    db, other, story = two
    engine, operation = started(other, REPLACE)
    with pytest.raises(Conflict), db.transaction():
        db.sql("UPSERT INTO orders (id, customer) VALUES (1, 'too late')")
        assert engine.run(operation).state == "done"
    assert state(db) == state(db, kept_at(db, "")) == story.states[story.backups[-1]]


def test_one_moment_has_the_old_ones_or_the_new_ones(two: tuple[Database, Database, Story]) -> None:
    db, other, story = two
    spoil(db)
    before = state(db)
    engine, operation = started(other, REPLACE)
    with db.transaction():
        assert sorted(tuple(r) for r in db.sql("SELECT * FROM orders").rows()) == before["/orders"][2]
        assert engine.run(operation).state == "done"
        with pytest.raises(Conflict):
            db.sql("SELECT * FROM `dir/items`").rows()
    assert state(db) == story.states[story.backups[-1]]


def test_who_knows_another_schema_sees_the_restored_one(two: tuple[Database, Database, Story]) -> None:
    db, other, story = two
    db.sql("ALTER TABLE orders ADD COLUMN x Int32")
    db.sql("ALTER TABLE orders DROP INDEX by_customer")
    for each in (db, other):
        each.sql("UPSERT INTO orders (id, x) VALUES (1, 1)")
    replaced(other, "RESTORE c WITH (REPLACE = 'true')")
    assert db.sql("SELECT * FROM orders WHERE id = 1").columns == ("id", "customer", "total")
    assert db.sql("SELECT id FROM orders VIEW by_customer WHERE customer = 'new'").rows() == []
    with pytest.raises(InvalidArgument):
        db.sql("UPSERT INTO orders (id, x) VALUES (1, 2)")
    assert db.sql(f"SELECT id, x FROM `{kept_at(db, '/orders')}` WHERE id = 1").rows() == [(1, 1)]
    assert state(db) == story.states[story.backups[-1]]


# --- streams and increments ------------------------------------------------------------------------------


def test_changefeeds_go_with_the_old_table_and_streams_of_collections_end(
    told: tuple[Database, Story],
) -> None:
    db, _ = told
    db.sql(f"CREATE BACKUP COLLECTION d (TABLE orders) {CLUSTER}; BACKUP d")
    db.sql("ALTER TABLE orders ADD CHANGEFEED feed WITH (MODE = 'UPDATES', FORMAT = 'JSON')")
    db.sql("UPSERT INTO orders (id, customer) VALUES (1, 'told')")
    kept = replaced(db, "RESTORE c TABLE orders WITH (REPLACE = 'true')")["/orders"]
    assert streams(db, kept) == ["feed"]
    assert streams(db, f"{kept}/by_customer/indexImplTable") == []
    assert streams(db, "/orders") == []
    assert [record["id"] for record in db.stream(f"{kept}/feed").records()] == [1]
    with pytest.raises(PathNotFound):
        db.describe("/orders/feed")
    for collection in ("c", "d"):
        with pytest.raises(PreconditionFailed, match=r"/orders was created anew, restored") as refused:
            db.sql(f"BACKUP {collection} INCREMENTAL")
        assert "INCREMENTAL OR FULL" in refused.value.hint
        db.sql(f"BACKUP {collection} INCREMENTAL OR FULL")
        db.sql("UPSERT INTO orders (id, customer) VALUES (2, 'after')")
        db.sql(f"BACKUP {collection} INCREMENTAL; RESTORE {collection} INTO 'r_{collection}'")
        assert db.describe(f"/r_{collection}/orders")["digest"] == db.describe("/orders")["digest"]
    db.sql(f"ALTER TABLE `{kept}` DROP CHANGEFEED feed")
    assert db.ls(kept) == [entry for entry in db.ls(kept) if entry.type == "index"]


def test_what_is_kept_is_in_no_collection(on_sqlite: tuple[Database, Story]) -> None:
    db, _ = on_sqlite
    db.sql(f"CREATE BACKUP COLLECTION everything DATABASE {CLUSTER}")
    replaced(db, "RESTORE c WITH (REPLACE = 'true')")
    db.sql("BACKUP everything; RESTORE everything INTO 'r'")
    assert [path for path, type_ in tree(db, "/r") if type_ == "table" and "/by_" not in path] == [
        "/r/dir/items",
        "/r/orders",
    ]


# --- the replaced tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPSERT INTO `{kept}` (id) VALUES (1)",
        "ALTER TABLE `{kept}` ADD COLUMN x Int32",
        "ALTER TABLE `{kept}` DROP INDEX by_customer",
        "ALTER TABLE `{kept}` ADD CHANGEFEED f WITH (MODE = 'UPDATES', FORMAT = 'JSON')",
        "CREATE BACKUP COLLECTION d (TABLE `{kept}`) WITH (STORAGE = 'cluster')",
        "ALTER BACKUP COLLECTION c ADD TABLE `{kept}`",
        "CREATE TABLE `/.replaced/mine` (k Int32, PRIMARY KEY (k))",
        "RESTORE c INTO '.replaced'",
        "RESTORE c TABLE orders AS `{kept}` WITH (REPLACE = 'true')",
    ],
)
def test_what_is_kept_stays_as_it_was(on_sqlite: tuple[Database, Story], statement: str) -> None:
    db, _ = on_sqlite
    kept = replaced(db, "RESTORE c TABLE orders WITH (REPLACE = 'true')")["/orders"]
    before = tree(db), db.step
    with pytest.raises(InvalidArgument, match=r"/\.replaced"):
        db.sql(statement.format(kept=kept))
    assert (tree(db), db.step) == before


def test_dropping_what_is_kept_leaves_no_directory(told: tuple[Database, Story]) -> None:
    db, story = told
    before = [(path, type_) for path, type_ in tree(db) if type_ != "stream"]  # They end with the old tables.
    operation = db.sql("RESTORE c WITH (REPLACE = 'true')").operation_id
    result = db.operation(operation or "").result
    assert result is not None
    assert sorted(result["replaced"].values()) == [
        path for (path,) in _shown(db) if path.startswith("/.replaced/")
    ]
    first, second = result["to_drop"]
    db.sql(first)
    assert [path for (path,) in _shown(db) if path.startswith("/.replaced/")] == [
        result["replaced"]["/orders"]
    ]
    db.sql(second)
    assert tree(db) == before
    db.collect()
    assert leaks(db) == []
    assert state(db) == story.states[story.backups[-1]]


def _shown(db: Database) -> list[tuple[str]]:
    return [(row[0],) for row in db.sql("SHOW TABLES").rows()]


def test_the_past_of_the_old_table_is_read_where_it_is_kept(
    in_catalog: Told, copy_of: Callable[[Told], Told]
) -> None:
    with open_at(copy_of(in_catalog).folder, history_seconds=3600) as db:
        step = db.step
        spoil(db)
        kept = replaced(db, "RESTORE c WITH (REPLACE = 'true')")["/orders"]
        (rows,) = db.sql(f"SELECT count(*) FROM `{kept}` VERSION AS OF {step}").rows()
        assert rows[0] == db.describe("/orders")["rows"]
        with pytest.raises(PathNotFound, match=r"/orders did not exist at step"):
            db.sql(f"SELECT count(*) FROM orders VERSION AS OF {step}").rows()


def test_each_restore_keeps_in_a_directory_of_its_own(
    in_catalog: Told, copy_of: Callable[[Told], Told]
) -> None:
    """Also with more than one restore in a second."""
    with open_at(copy_of(in_catalog).folder, clock=ManualClock(TOLD_AT)) as db:
        places = [kept_in(replaced(db, "RESTORE c TABLE orders WITH (REPLACE = 'true')")) for _ in range(3)]
        assert places == [f"/.replaced/2025061515064{second}Z" for second in range(3)]


# --- failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("RESTORE c", AlreadyExists),
        ("RESTORE c WITH (REPLACE = 'false')", AlreadyExists),
        ("RESTORE c WITH (REPLACE = 'maybe')", InvalidArgument),
        ("RESTORE c TABLE orders AS dir WITH (REPLACE = 'true')", AlreadyExists),
        ("RESTORE c TABLE orders AS `orders/by_customer` WITH (REPLACE = 'true')", AlreadyExists),
        ("RESTORE c TABLE orders AS `orders/below/it` WITH (REPLACE = 'true')", AlreadyExists),
        ("RESTORE c INTO 'orders' WITH (REPLACE = 'true')", AlreadyExists),
        ("RESTORE c TABLE orders AS `.backups/x` WITH (REPLACE = 'true')", InvalidArgument),
    ],
)
def test_a_refused_one_leaves_nothing(
    on_sqlite: tuple[Database, Story], statement: str, error: type[Exception]
) -> None:
    db, _ = on_sqlite
    before = evidence(db)
    with pytest.raises(error):
        db.sql(statement)
    assert evidence(db) == before


def test_a_cancelled_one_leaves_the_old_tables_and_nothing_else(told: tuple[Database, Story]) -> None:
    db, story = told
    db.collect()
    before = evidence(db)
    for steps in (0, 1, 5, 15):
        engine, operation = started(db, RestoreRequest(collection="c", copy=True, verify=True, replace=True))
        for _ in range(steps):
            engine.step(operation)
        engine.cancel(operation)
        assert engine.run(operation).state == "cancelled"
        db.collect()
        assert evidence(db) == before
    db.sql("BACKUP c INCREMENTAL")
    replaced(db, "RESTORE c WITH (REPLACE = 'true')")
    assert state(db) == story.states[story.backups[-1]]


def test_a_failed_one_leaves_the_old_tables_and_nothing_else(
    in_files: Told, copy_of: Callable[[Told], Told]
) -> None:
    with open_at(copy_of(in_files).folder) as db:
        db.collect()
        before, expected = evidence(db), state(db)
        spoilt = Path(db.runtime.files.path(sorted(db.runtime.files.names("data"))[0]))
        bytes_ = spoilt.read_bytes()
        spoilt.write_bytes(bytes_[:-9] + bytes([bytes_[-9] ^ 1]) + bytes_[-8:])
        with pytest.raises(Corrupted):
            db.sql("RESTORE c WITH (REPLACE = 'true', MODE = 'copy', VERIFY = 'data')")
        spoilt.write_bytes(bytes_)
        db.collect()
        assert evidence(db) == before
        assert state(db) == expected
