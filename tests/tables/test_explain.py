"""EXPLAIN says how a query is answered, and says the truth."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline import Database
from strandline.cli.statements import plan_lines
from strandline.errors import PathNotFound
from strandline.settings import Settings

TABLE = """CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v));
UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20), (3, 'b', 30)"""
HERE = [
    "SELECT * FROM t WHERE k = 1",
    "SELECT v FROM t WHERE k IN (1, 2) ORDER BY v LIMIT 1",
    "SELECT k FROM t WHERE k > 1 AND k < 3",
    "SELECT count(*) FROM t",
    "SELECT k FROM t VIEW by_v WHERE v = 'b'",
    "SELECT n FROM t VIEW by_v WHERE v = 'b'",
    "SELECT k FROM t WHERE k = 1 AND k = 2",
    "SELECT k FROM t VERSION AS OF 2",
]
ON_SPARK = [
    "SELECT sum(n) FROM t",
    "SELECT k + 1 FROM t",
    "SELECT k FROM t WHERE length(v) > 3",
    "SELECT a.k FROM t a JOIN t b USING (k)",
    "SELECT 1",
]


@pytest.fixture
def filled(db: Database) -> Database:
    db.sql(TABLE)
    return db


def test_what_it_says_is_what_is_done(filled: Database) -> None:
    for query in HERE:
        assert filled.sql(f"EXPLAIN {query}").rows()[0][2] == "in the process", query
        assert filled.sql(query).is_here
    for query in ON_SPARK:
        assert filled.sql(f"EXPLAIN {query}").rows()[0][2] == "on Spark", query
        with pytest.raises(Exception, match="Spark"):
            filled.sql(query)


def test_more_rows_than_may_be_read_here_go_to_spark(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(scan_rows=2))
    db.sql(TABLE)
    first = db.sql("EXPLAIN SELECT k FROM t ORDER BY k").rows()[0]
    assert first[2] == "on Spark" and "3 rows would have to be read here" in first[3]


def test_what_can_come_a_part_at_a_time_is_a_stream(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(scan_rows=2))
    db.sql(TABLE)
    query = "SELECT k FROM t WHERE k >= 0 LIMIT 2"
    steps = db.sql(f"EXPLAIN {query}").rows()
    assert [step[1:3] for step in steps] == [
        ("answer", "as a stream"),
        ("limit", "2"),
        ("filter", "k >= 0"),
        ("read", "/t"),
        ("scan", "some rows at a time"),
    ]
    assert "3 rows would have to be read here" in steps[-1][3]
    assert len(db.sql(query).rows()) == 2 and not db.sql(query).is_here
    assert db.sql("EXPLAIN SELECT k FROM t WHERE k = 1").rows()[0][2] == "in the process"


def test_the_tree(filled: Database) -> None:
    found = filled.sql("EXPLAIN SELECT n FROM t VIEW by_v WHERE v = 'b' ORDER BY n")
    assert found.columns == ("level", "what", "name", "details")
    lines = list(plan_lines(found.rows()))
    assert [line.split(":")[0] for line in lines] == [
        "answer in the process",
        "├─ sort n",
        "├─ filter v = 'b'",
        "└─ read /t",
        "   ├─ index by_v",
        "   │  └─ scan keys that begin with b",
        "   └─ look up rows of the table",
    ]


def test_a_table_that_is_not_there(filled: Database) -> None:
    with pytest.raises(PathNotFound):
        filled.sql("EXPLAIN SELECT * FROM nope")
