"""EXPLAIN shows how a query is executed, and is right about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline import Database
from strandline.cli.statements import plan_lines
from strandline.errors import InvalidArgument, PathNotFound
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
WITH_DUCKDB = [
    "SELECT sum(n) FROM t",
    "SELECT k + 1 FROM t",
    "SELECT k FROM t WHERE length(v) > 3",
    "SELECT a.k FROM t a JOIN t b USING (k)",
    "SELECT 1",
]
ON_SPARK = [
    "SELECT stddev(n) FROM t",
    "SELECT k FROM t WHERE v RLIKE 'b'",
    "SELECT a.k FROM t a NATURAL JOIN t b",
    "SELECT rand()",
]


@pytest.fixture
def filled(db: Database) -> Database:
    db.sql(TABLE)
    return db


def test_what_it_says_is_what_is_done(filled: Database) -> None:
    for query in [*HERE, *WITH_DUCKDB]:
        where, why = filled.sql(f"EXPLAIN {query}").rows()[0][2:]
        assert (where, "DuckDB" in why) == ("in the process", query in WITH_DUCKDB), query
        assert filled.sql(query).is_here
    for query in ON_SPARK:
        assert filled.sql(f"EXPLAIN {query}").rows()[0][2] == "on Spark", query
        with pytest.raises(Exception, match="Spark"):
            filled.sql(query)


def test_more_rows_than_may_be_read_here_go_to_spark(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(scan_rows=2))
    db.sql(TABLE)
    query = "EXPLAIN SELECT k FROM t ORDER BY k"
    assert db.sql(query).rows()[0][2:] == ("in the process", "with DuckDB, no JVM")
    db = connect(settings=Settings(scan_rows=0))
    db.sql(TABLE)
    why = "3 rows are more than scan_rows or bulk_bytes allow to stream"
    assert db.sql(query).rows()[0][2:] == ("on Spark", why)


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


CHANGES = {
    "UPSERT INTO t (k, v) VALUES (1, 'x'), (9, 'y')": [
        "upsert in the process",
        "write /t",
        "index by_v",
        "rows 2",
    ],
    "INSERT INTO t VALUES (8, 'x', 1)": ["insert in the process", "write /t", "index by_v", "rows 1"],
    "DELETE FROM t ON (k) VALUES (1)": ["delete in the process", "write /t", "index by_v", "rows 1"],
    "UPDATE t SET n = n + 1 WHERE k = 1": [
        *("update in the process", "write /t", "index by_v", "filter k = 1", "read /t", "look up 1 key")
    ],
    "MERGE INTO t USING (VALUES (2, 'x'), (10, 'y')) AS s (k, v) ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)": [
        *("merge in the process", "write /t", "index by_v", "update matched", "insert not matched"),
        *("filter t.k = s.k", "source 2 rows of values", "read /t", "look up by key"),
    ],
    "MERGE INTO t USING (SELECT k FROM t WHERE k > 2) AS s ON t.k = s.k WHEN MATCHED AND t.n > 99 THEN DELETE": [
        *("merge in the process", "write /t", "index by_v", "delete matched", "filter t.k = s.k"),
        *("source /t, 3 rows and changes in 1 segment", "read /t", "look up by key"),
    ],
    "DELETE FROM t WHERE k > 1": [
        *("delete in the process", "write /t", "index by_v", "filter k > 1", "read /t", "scan keys 1 to any")
    ],
}
CHANGES_WITH_DUCKDB = {
    "UPSERT INTO t SELECT k, v, n FROM t": [
        *("upsert in the process", "write /t", "index by_v", "rows of a query", "read /t", "scan all of it")
    ],
    "MERGE INTO t USING (SELECT k, upper(v) AS v FROM t) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v": [
        *("merge in the process", "write /t", "index by_v", "update matched", "filter t.k = s.k"),
        *("source a query, with DuckDB", "read /t", "look up by key"),
    ],
    "UPDATE t SET v = upper(v)": [
        *("update in the process", "write /t", "index by_v", "read /t", "scan all of it")
    ],
    "DELETE FROM t WHERE k = 2 AND length(v) > 0": [
        *("delete in the process", "write /t", "index by_v", "filter k = 2 AND length(v) > 0"),
        *("read /t", "look up 1 key"),
    ],
}
CHANGES_ON_SPARK = {
    "UPSERT INTO t SELECT k, reverse(v), n FROM t": [
        *("upsert on Spark", "write /t", "index by_v", "rows of a query", "read /t", "scan all of it")
    ],
    "MERGE INTO t USING (SELECT k, reverse(v) AS v FROM t) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v": [
        *("merge on Spark", "write /t", "index by_v", "update matched", "filter t.k = s.k"),
        *("source a query: the function reverse runs on Spark only", "read /t", "look up by key"),
    ],
    "UPDATE t SET v = reverse(v)": ["update on Spark", "write /t", "index by_v", "read /t", "scan all of it"],
    "DELETE FROM t WHERE v RLIKE 'a'": [
        *("delete on Spark", "write /t", "index by_v", "filter v RLIKE 'a'", "read /t", "scan all of it")
    ],
}


def test_a_change_is_told_and_not_made(filled: Database) -> None:
    before = filled.describe("t")
    for statement, told in {**CHANGES, **CHANGES_WITH_DUCKDB, **CHANGES_ON_SPARK}.items():
        steps = filled.sql(f"EXPLAIN {statement}").rows()
        assert [f"{what} {name}" for _, what, name, _ in steps] == told, statement
    assert filled.describe("t") == before
    for statement in [*CHANGES, *CHANGES_WITH_DUCKDB]:
        assert filled.sql(statement).rows_changed is not None
    for statement in CHANGES_ON_SPARK:
        with pytest.raises(Exception, match="Spark"):
            filled.sql(statement)


def test_which_indexes_a_change_maintains(filled: Database) -> None:
    filled.sql(
        "ALTER TABLE t ADD INDEX u GLOBAL UNIQUE SYNC ON (n); ALTER TABLE t ADD INDEX later GLOBAL ASYNC ON (n)"
    )

    def told(statement: str) -> dict[str, str]:
        rows = filled.sql(f"EXPLAIN {statement}").rows()
        return {name: details.partition(", ")[2] for _, what, name, details in rows if what == "index"}

    untouched = "none of its columns is set"
    assert told("UPDATE t SET v = 'x'") == {"by_v": "in the same commit", "u": untouched, "later": untouched}
    assert told("UPDATE t SET n = 1") == {
        "by_v": untouched,
        "u": "in the same commit, no key in two rows",
        "later": "follows later",
    }
    assert untouched not in told("UPSERT INTO t (k) VALUES (1)").values()
    assert untouched not in told("DELETE FROM t").values()


def test_more_rows_than_may_be_written_here_go_to_spark(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(bulk_rows=2))
    db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k))")
    db.sql("UPSERT INTO t VALUES (1, 'a'), (2, 'b')")
    db.sql("UPSERT INTO t VALUES (3, 'a'), (4, 'b')")
    first = db.sql("EXPLAIN UPSERT INTO t (k) VALUES (1), (2), (3)").rows()[0]
    assert first[1:3] == ("upsert", "on Spark") and first[3].startswith("3 rows, ")
    assert db.sql("EXPLAIN DELETE FROM t WHERE k IN (1, 2)").rows()[0][3] == "with Arrow, no JVM"
    assert "if more rows match" in db.sql("EXPLAIN DELETE FROM t WHERE k IN (1, 2, 3)").rows()[0][3]
    computed = db.sql("EXPLAIN UPSERT INTO t VALUES (1, upper('x'))").rows()[0]
    assert computed == (0, "upsert", "in the process", "when DuckDB has computed 1 value")
    why = "the function reverse runs on Spark only"
    computed = db.sql("EXPLAIN UPSERT INTO t VALUES (1, reverse('x'))").rows()[0]
    assert computed == (0, "upsert", "in the process", f"when Spark ({why}) has computed 1 value")


def test_an_export_is_told_and_not_made(filled: Database, tmp_path: Path) -> None:
    steps = filled.sql(f"EXPLAIN EXPORT t TO '{tmp_path}/t.csv'").rows()
    assert [step[:3] for step in steps] == [
        (0, "export", f"{tmp_path}/t.csv"),
        (1, "answer", "in the process"),
        (2, "read", "/t"),
        (3, "scan", "all of it"),
    ]
    assert steps[0][3] == "csv file, refused if something is there"
    assert not (tmp_path / "t.csv").exists()
    with pytest.raises(InvalidArgument, match="no format xml"):
        filled.sql(f"EXPLAIN EXPORT t TO '{tmp_path}/t' WITH (FORMAT = 'xml')")


@pytest.mark.parametrize(
    ("statement", "error"),
    {
        "UPSERT INTO nope (k) VALUES (1)": PathNotFound,
        "UPSERT INTO t (k, nope) VALUES (1, 2)": InvalidArgument,
        "UPSERT INTO t (k) VALUES ('x')": InvalidArgument,
        "UPSERT INTO t VALUES (1)": InvalidArgument,
        "UPDATE t SET k = 1": InvalidArgument,
        "DELETE FROM `t/by_v/indexImplTable`": InvalidArgument,
    }.items(),
)
def test_a_change_that_would_be_refused_is_refused(
    filled: Database, statement: str, error: type[Exception]
) -> None:
    for text in (f"EXPLAIN {statement}", statement):
        with pytest.raises(error):
            filled.sql(text)


def test_a_change_is_explained_in_its_transaction(filled: Database) -> None:
    with filled.transaction():
        filled.sql("UPSERT INTO t (k) VALUES (4)")
        assert "4 rows and changes in 2 segments" in filled.sql("EXPLAIN DELETE FROM t").rows()[-2][3]


def test_a_table_that_is_not_there(filled: Database) -> None:
    with pytest.raises(PathNotFound):
        filled.sql("EXPLAIN SELECT * FROM nope")
    with pytest.raises(InvalidArgument, match="no column nope"):
        filled.sql("EXPLAIN SELECT nope FROM t")
