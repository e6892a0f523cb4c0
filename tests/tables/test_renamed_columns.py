"""Renamed columns: files stay unchanged, and each value keeps its column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline import Database
from strandline.errors import InvalidArgument, StrandlineError
from strandline.settings import Settings
from tests.effort import EVERY
from tests.tables.examples import assert_sound, content, rows

TABLE = """CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, w Utf8, PRIMARY KEY (k),
INDEX by_v GLOBAL SYNC ON (v) COVER (n), INDEX only GLOBAL UNIQUE ON (n), INDEX later GLOBAL ASYNC ON (w))"""
FILLED = "UPSERT INTO t (k, v, n, w) VALUES (1, 'a', 10, 'x'), (2, 'b', 20, 'y'), (3, 'b', 30, 'z')"


@pytest.fixture(params=["catalog", "files"] if EVERY else ["files"])
def filled(connect: Callable[..., Database], request: pytest.FixtureRequest) -> Database:
    """A table with its rows in the catalog, or in files."""
    db = connect("w", settings=Settings(inline_rows=2000 if request.param == "catalog" else 0))
    db.sql(f"{TABLE}; {FILLED}")
    if request.param == "files":
        db.compact("/t")
    return db


def test_every_column_can_get_another_name(filled: Database) -> None:
    db, step, digest = filled, filled.step, filled.describe("/t")["digest"]
    for old, new in (("k", "id"), ("v", "name"), ("n", "number"), ("w", "word")):
        done = db.sql(f"ALTER TABLE t RENAME COLUMN {old} TO {new}")
        assert done.step == db.step
        assert_sound(db, "/t")
    found = db.describe("/t")
    assert [c["name"] for c in found["columns"]] == ["id", "name", "number", "word"]
    assert (found["key"], found["digest"]) == (["id"], digest), "rows are what they were"
    assert [(i["columns"], i["cover"]) for i in found["indexes"]] == [
        (["name"], ["number"]), (["number"], []), (["word"], []),
    ]  # fmt: skip
    assert all("stored" not in index for index in found["indexes"])
    assert rows(db, "SELECT * FROM t WHERE id > 1 ORDER BY id") == [(2, "b", 20, "y"), (3, "b", 30, "z")]
    assert rows(db, "SELECT id, number FROM t VIEW by_v WHERE name = 'b' ORDER BY id") == [(2, 20), (3, 30)]
    assert rows(db, "SELECT id, word FROM t VIEW by_v WHERE name = 'a'") == [(1, "x")]
    db.sql("UPSERT INTO t (id, name, word) VALUES (1, 'c', 'q'); UPDATE t SET number = 21 WHERE id = 2")
    with pytest.raises(StrandlineError, match="only"):
        db.sql("UPSERT INTO t (id, number) VALUES (9, 30)")
    db.maintain()
    assert rows(db, "SELECT id FROM t VIEW later WHERE word = 'q'") == [(1,)]
    assert content(db, "/t") == [(1, "c", 10, "q"), (2, "b", 21, "y"), (3, "b", 30, "z")]
    assert rows(db, f"SELECT k, v FROM t VERSION AS OF {step} WHERE k = 2") == [(2, "b")], "as it was called"
    db.compact("/t")
    assert_sound(db, "/t")
    created = db.sql("SHOW CREATE TABLE t").rows()[0][0]
    assert "number" in created and "`n`" not in created


def test_names_that_change_places(filled: Database) -> None:
    db = filled
    db.sql("ALTER TABLE t RENAME COLUMN v TO tmp, RENAME COLUMN w TO v, RENAME COLUMN tmp TO w")
    assert rows(db, "SELECT k, v, w FROM t WHERE k = 1") == [(1, "x", "a")]
    assert rows(db, "SELECT k FROM t VIEW by_v WHERE w = 'b' ORDER BY k") == [(2,), (3,)]
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'new'); UPSERT INTO t (k, v, w, n) VALUES (4, 'p', 'q', 40)")
    db.compact("/t")
    db.maintain()
    assert content(db, "/t") == [(1, "a", 10, "new"), (2, "b", 20, "y"), (3, "b", 30, "z"), (4, "q", 40, "p")]
    assert rows(db, "SELECT k FROM t VIEW later WHERE v = 'p'") == [(4,)]
    assert_sound(db, "/t")


def test_a_name_that_is_used_again_brings_no_old_values_back(filled: Database) -> None:
    db = filled
    db.sql(
        "ALTER TABLE t DROP INDEX later; ALTER TABLE t RENAME COLUMN w TO other; ALTER TABLE t ADD COLUMN w Utf8"
    )
    assert rows(db, "SELECT other, w FROM t WHERE k = 1") == [("x", None)]
    db.sql("UPSERT INTO t (k, w) VALUES (1, 'fresh'); ALTER TABLE t DROP COLUMN other")
    db.sql("ALTER TABLE t RENAME COLUMN w TO other; ALTER TABLE t ADD COLUMN w Utf8")
    assert rows(db, "SELECT k, other, w FROM t ORDER BY k") == [
        (1, "fresh", None),
        (2, None, None),
        (3, None, None),
    ]
    db.sql("ALTER TABLE t ADD INDEX by_w GLOBAL SYNC ON (other, w)")
    db.compact("/t")
    assert rows(db, "SELECT k FROM t VIEW by_w WHERE other = 'fresh'") == [(1,)]
    assert_sound(db, "/t")


def test_what_is_refused_changes_nothing(filled: Database) -> None:
    db = filled
    before = (db.step, db.describe("/t"))
    for statement, message in (
        ("RENAME COLUMN nope TO x", "no column 'nope'"),
        ("RENAME COLUMN v TO v", "already has this name"),
        ("RENAME COLUMN v TO N", "defined twice"),
        ("RENAME COLUMN v TO __strandline_op", "reserved"),
        ("RENAME COLUMN v TO x, RENAME COLUMN v TO y", "no column 'v'"),
        ("RENAME COLUMN v TO x, ADD COLUMN v Utf8", "can be combined"),
    ):
        with pytest.raises(StrandlineError, match=message) as fault:
            db.sql(f"ALTER TABLE t {statement}")
        assert fault.value.hint
    assert (db.step, db.describe("/t")) == before
    db.sql("ALTER TABLE t RENAME COLUMN v TO V")
    assert db.describe("/t")["columns"][1]["name"] == "V"


def test_others_see_the_old_name_or_the_new_one(filled: Database, connect: Callable[..., Database]) -> None:
    db, other = filled, connect("w")
    assert rows(other, "SELECT v FROM t WHERE k = 1") == [("a",)]
    other.sql("BEGIN")
    db.sql("ALTER TABLE t RENAME COLUMN v TO name")
    assert rows(other, "SELECT v FROM t VIEW by_v WHERE v = 'a'") == [("a",)], "its moment was before"
    other.sql("UPSERT INTO t (k, v) VALUES (1, 'z')")
    with pytest.raises(StrandlineError):
        other.sql("COMMIT")
    assert rows(other, "SELECT name FROM t WHERE k = 1") == [("a",)]
    with pytest.raises(InvalidArgument, match="no column 'v'"):
        other.sql("UPSERT INTO t (k, v) VALUES (1, 'z')")


@pytest.mark.usefixtures("spark")
def test_the_same_on_spark(connect: Callable[..., Database], spark: Any) -> None:
    db = connect(spark=spark, settings=Settings(inline_rows=0, bulk_rows=0, scan_rows=0))
    db.sql(f"{TABLE.replace(', INDEX later GLOBAL ASYNC ON (w)', '')}; {FILLED}")
    db.sql(
        "ALTER TABLE t RENAME COLUMN k TO id, RENAME COLUMN v TO tmp, RENAME COLUMN w TO v, RENAME COLUMN tmp TO w"
    )
    db.sql("UPSERT INTO t (id, v) VALUES (1, 'new')")
    db.compact("/t")
    assert rows(db, "SELECT id, v, w, n FROM t ORDER BY id") == [
        (1, "new", "a", 10), (2, "y", "b", 20), (3, "z", "b", 30),
    ]  # fmt: skip
    assert rows(db, "SELECT id, v FROM t VIEW by_v WHERE w = 'b' ORDER BY id") == [(2, "y"), (3, "z")]
    assert_sound(db, "/t")
