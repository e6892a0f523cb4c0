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
    Conflict,
    Corrupted,
    UnderOperation,
)
from tests.backups.reading import CLUSTER, leaks
from tests.backups.restore.story import (
    INDEXES,
    TABLES,
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


# --- streams and increments ------------------------------------------------------------------------------


# --- the kept ones ---------------------------------------------------------------------------------------


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


# --- what goes wrong -------------------------------------------------------------------------------------


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
        spoilt = Path(db._runtime.files.path(sorted(db._runtime.files.names("data"))[0]))
        bytes_ = spoilt.read_bytes()
        spoilt.write_bytes(bytes_[:-9] + bytes([bytes_[-9] ^ 1]) + bytes_[-8:])
        with pytest.raises(Corrupted):
            db.sql("RESTORE c WITH (REPLACE = 'true', MODE = 'copy', VERIFY = 'data')")
        spoilt.write_bytes(bytes_)
        db.collect()
        assert evidence(db) == before
        assert state(db) == expected
