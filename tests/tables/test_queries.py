"""Queries: by key, through an index, by path, at a step, and with all of Spark SQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import Database, Settings
from tests.processes import run
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW, SPARK, NoSpark, content, rows

SETUP = """
CREATE TABLE t (k Int32, v Utf8, n Int64, d Double, b Bool, day Date, PRIMARY KEY (k),
    INDEX by_v GLOBAL SYNC ON (v) COVER (n), INDEX by_n GLOBAL SYNC ON (n, v), INDEX late GLOBAL ASYNC ON (v));
CREATE TABLE `dir/u` (k Int32, note Utf8, PRIMARY KEY (k));
UPSERT INTO t (k, v, n, d, b, day) VALUES
    (1, 'a', 10, 1.5, true, '2024-01-31'), (2, 'b', 20, NULL, false, '2024-02-29'), (3, 'a', 30, NULL, NULL, NULL),
    (4, NULL, 40, -0.5, true, '1999-12-31'), (5, '', NULL, 0.0, false, '9999-12-31'), (6, 'ä', -60, 1e300, true, '0001-01-01');
UPSERT INTO `dir/u` (k, note) VALUES (1, 'one'), (3, 'three'), (7, 'seven')
"""

HERE = [
    "SELECT * FROM t",
    "SELECT k, v FROM t WHERE k = 3",
    "SELECT k FROM t WHERE k IN (1, 3, 99)",
    "SELECT k FROM t WHERE k > 2 AND k <= 5",
    "SELECT k FROM t WHERE 2 >= k",
    "SELECT k FROM t WHERE k BETWEEN 2 AND 4 OR k = 6",
    "SELECT k FROM t WHERE NOT (k = 1)",
    "SELECT k FROM t WHERE k != 1 AND n IS NOT NULL",
    "SELECT k FROM t WHERE v = 'a' ORDER BY k DESC",
    "SELECT k FROM t WHERE v IS NULL",
    "SELECT k FROM t WHERE v <=> NULL",
    "SELECT k FROM t WHERE v = NULL",
    "SELECT k FROM t WHERE v = ''",
    "SELECT k FROM t WHERE v > 'a' ORDER BY v",
    "SELECT k FROM t WHERE b",
    "SELECT k FROM t WHERE b = false OR b IS NULL ORDER BY k",
    "SELECT k FROM t WHERE day = '2024-02-29'",
    "SELECT k FROM t WHERE day >= DATE '2024-01-01' ORDER BY day",
    "SELECT k FROM t WHERE d = 1.5",
    "SELECT k FROM t WHERE d < 1",
    "SELECT k FROM t WHERE d > 1e300",
    "SELECT d FROM t ORDER BY d",
    "SELECT k FROM t WHERE n = 20.0",
    "SELECT k FROM t WHERE n > 9223372036854775807",
    "SELECT k FROM t WHERE n >= -9223372036854775808 ORDER BY n",
    "SELECT k FROM t WHERE k = 1 AND k = 2",
    "SELECT count(*) FROM t",
    "SELECT count(*) AS many FROM t WHERE n >= 20",
    "SELECT k AS key, n AS number FROM t AS x WHERE x.k = 1",
    "SELECT t.k FROM t WHERE t.n = 10",
    "SELECT v, k FROM t ORDER BY v, k DESC",
    "SELECT v, k FROM t ORDER BY v DESC NULLS FIRST, 2",
    "SELECT n FROM t ORDER BY n NULLS LAST LIMIT 2",
    "SELECT k FROM t LIMIT 0",
    "SELECT k FROM t VIEW by_v WHERE v = 'a' ORDER BY k",
    "SELECT k, n FROM t VIEW by_v WHERE v IN ('a', 'b') ORDER BY n",
    "SELECT k, d FROM t VIEW by_v WHERE v = 'a' ORDER BY k",
    "SELECT * FROM t VIEW by_v WHERE v = 'b'",
    "SELECT k FROM t VIEW by_v WHERE v IS NULL",
    "SELECT k FROM t VIEW by_n WHERE n > 10 AND n < 40 ORDER BY k",
    "SELECT k FROM t VIEW by_n WHERE n = 30 AND v = 'a'",
    "SELECT k FROM t VIEW by_n WHERE b AND n > 0 ORDER BY k",
    "SELECT count(*) FROM t VIEW by_v",
    "SELECT k FROM t VIEW PRIMARY KEY WHERE k = 1",
    "SELECT v, k, n FROM `t/by_v/indexImplTable` ORDER BY v, k",
    "SELECT * FROM `/t/by_n/indexImplTable` WHERE n = 10",
    "SELECT note FROM `dir/u` WHERE k = 3",
    "SELECT `k` FROM `/dir/u` WHERE `note` = 'one'",
]
"""Queries that run in the process, and have the same result on Spark."""


@pytest.fixture
def filled(connect: Callable[..., Database]) -> Database:
    db = connect("shared", settings=ARROW)
    db.sql(SETUP)
    db.table("t").upsert([{"k": 3, "d": float("nan")}])
    db.maintain()
    return db


def test_simple_queries_need_no_spark_and_mean_what_spark_says(
    connect: Callable[..., Database], filled: Database, spark: Any
) -> None:
    there = connect("shared", settings=SPARK, spark=spark)
    for query in HERE:
        result = filled.sql(query)
        mine, theirs = result.collect(), there.sql(query)
        other = theirs.collect()
        if "ORDER BY" not in query:
            mine, other = sorted(mine, key=repr), sorted(other, key=repr)
        assert repr(mine) == repr(other), query  # NaN is not equal to itself.
        assert list(result.columns) == list(theirs.columns), query
        assert [type(v) for row in mine for v in row] == [type(v) for row in other for v in row], query


def test_a_result_is_rows_and_a_data_frame(
    connect: Callable[..., Database], filled: Database, spark: Any
) -> None:
    db = connect("shared", spark=spark)
    result = db.sql("SELECT k, v FROM t WHERE k < 3")
    assert result.collect()[0].v == "a"
    assert result.columns == ("k", "v")
    assert list(result) == result.rows() == [(1, "a"), (2, "b")]
    db.sql("DELETE FROM t")
    assert sorted(map(tuple, result.df.collect())) == [(1, "a"), (2, "b")], (
        "the frame shows the same state as the rows"
    )


def test_a_data_frame_of_a_table(connect: Callable[..., Database], filled: Database, spark: Any) -> None:
    db = connect("shared", spark=spark)
    step = db.step
    frame = db.table("t").df()
    db.sql("UPSERT INTO t (k, v) VALUES (7, 'new'); DELETE FROM t WHERE k = 1")
    assert frame.count() == 6, "it stays what it was"
    assert sorted(r.k for r in db.table("t").df().collect()) == [2, 3, 4, 5, 6, 7]
    assert sorted(r.k for r in db.table("t").df(at=step).collect()) == [1, 2, 3, 4, 5, 6]
    assert db.table("t/by_v/indexImplTable").df().count() == 6
    assert db.table("dir/u").df().columns == ["k", "note"]


def test_merged_logs_still_serve_the_past(connect: Callable[..., Database]) -> None:
    """Also with columns that were dropped before the merge."""
    db = connect(settings=Settings(merge_segments=4, compaction_share=1.0))
    db.sql("CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k))")
    seen = {}
    for number in range(3):
        db.sql(f"UPSERT INTO t (k, v, n) VALUES ({number % 2}, 'v{number}', {number})")
        seen[db.step] = content(db, "/t")
    db.sql("ALTER TABLE t DROP COLUMN v")
    db.sql("ALTER TABLE t ADD COLUMN v Int64")
    for number in range(9):
        db.sql(f"UPSERT INTO t (k, n, v) VALUES ({number % 4}, {-number}, {number})")
        seen[db.step] = content(db, "/t")
    assert db.describe("/t")["segments"] < 8
    for step, expected in seen.items():
        assert rows(db, f"SELECT * FROM t VERSION AS OF {step} ORDER BY k") == expected, step
    assert db.check("/t").ok


class Counting(QuickFiles):
    """Counts the reads of files."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def path(self, name: str) -> str:
        self.opened.append(name)
        return super().path(name)


def test_a_lookup_opens_only_the_files_that_may_hold_the_key(
    connect: Callable[..., Database], tmp_path: Path
) -> None:
    files = Counting(tmp_path / "pruned")
    db = connect("pruned", files=files)
    db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v))")
    for start in range(0, 40_000, 10_000):
        db.table("t").upsert([{"k": n, "v": f"{n:06}"} for n in range(start, start + 10_000)])
    assert db.describe("/t")["segments"] == 4
    assert isinstance(db._runtime.spark, NoSpark)
    for query, expected in (
        ("SELECT v FROM t WHERE k = 25000", [("025000",)]),
        ("SELECT k FROM t VIEW i WHERE v = '025000'", [(25000,)]),
        ("SELECT k FROM t WHERE k >= 39999", [(39999,)]),
    ):
        files.opened.clear()
        assert rows(db, query) == expected
        assert len(set(files.opened)) <= 1, query


NO_JVM = """
import os, sys
import strandline

db = strandline.connect(sys.argv[1])
db.sql("CREATE TABLE `a/t` (k Uint64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), "
       "INDEX by_v GLOBAL SYNC ON (v) COVER (n), INDEX late GLOBAL ASYNC ON (n)) WITH (PARTITION_AT_KEYS = (100))")
db.sql("UPSERT INTO `a/t` (k, v, n) VALUES (1, 'x', 1), (18446744073709551615, 'y', 2); UPDATE `a/t` SET n = n + 1 WHERE k = 1")
db.table("a/t").upsert([{"k": n, "v": str(n)} for n in range(5000)])
db.sql("INSERT INTO `a/t` (k) VALUES (6000); REPLACE INTO `a/t` (k, v) VALUES (5, 'r'); DELETE FROM `a/t` WHERE k = 7")
with db.transaction():
    db.sql("DELETE FROM `a/t` ON (k) VALUES (8)")
    assert db.table("a/t").get(8) is None
assert [r.v for r in db.sql("SELECT v FROM `a/t` WHERE k = 5").collect()] == ["r"]
assert [int(r.k) for r in db.sql("SELECT k FROM `a/t` VIEW by_v WHERE v = '77'").collect()] == [77]
assert [(int(r.k), r.n) for r in db.sql("SELECT k, n FROM `a/t` VIEW by_v WHERE v = 'y'").collect()] == [(2**64 - 1, 2)]
db.sql("ALTER TABLE `a/t` ADD COLUMN z Int8")
db.sql("ALTER TABLE `a/t` ADD INDEX by_z GLOBAL ON (z)")
db.sql("ALTER TABLE `a/t` DROP INDEX by_z")
db.sql("ALTER TABLE `a/t` DROP COLUMN z")
assert [e.name for e in db.ls("/a/t")] == ["by_v", "late"]
assert db.describe("/a/t")["rows"] == 5000
assert db.check("/a/t").ok
assert len(db.sql("SHOW TABLES").collect()) == 1
db.maintain("/a")
db.sql("DROP TABLE `a/t`")

pyspark = sys.modules.get("pyspark")
if pyspark is not None:
    assert pyspark.SparkContext._gateway is None and pyspark.SparkContext._active_spark_context is None
    sql = sys.modules.get("pyspark.sql")
    assert sql is None or sql.SparkSession._instantiatedSession is None
assert "JAVA_GATEWAY" not in " ".join(os.environ)
db.close()
children = open(f"/proc/self/task/{os.getpid()}/children").read().split() if os.path.exists("/proc/self") else []
assert children == [], children
print("no JVM")
"""


@pytest.mark.slow
def test_small_work_starts_no_jvm(tmp_path: Path) -> None:
    assert run(NO_JVM, str(tmp_path / "warehouse")) == "no JVM\n"


def test_files_are_where_the_warehouse_is(tmp_path: Path, connect: Callable[..., Database]) -> None:
    db = connect("here", files=None)
    db.sql("CREATE TABLE t (k Int32, PRIMARY KEY (k))")
    db.table("t").upsert([{"k": n} for n in range(3000)])
    assert [p.suffix for p in (tmp_path / "here" / "data").rglob("*") if p.is_file()] == [".parquet"]
