"""Queries and changes that run in the process with DuckDB, and those that go to Spark, with the reason."""

from __future__ import annotations

import _thread
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline
from strandline import Database, Settings
from strandline.cancellation import Interrupted, Work, doing
from strandline.errors import InvalidArgument, Unsupported
from strandline.storage.duckdb_engine import DuckDBEngine, QueryInput, RefusedByDuckDB
from strandline.storage.duckdb_files import InputColumn
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark

CREATE = """CREATE TABLE t (k Int64 NOT NULL, n Int32, s Utf8, d Double, m Decimal(10,2), u Uint8, b Bool,
    day Date, at Timestamp, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n))"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with strandline.connect(tmp_path, files=QuickFiles(tmp_path), spark=NoSpark()) as db:  # type: ignore[arg-type]
        db.sql(CREATE)
        db.sql(
            "INSERT INTO t (k, n, s, d, m, u) VALUES (1, 10, 'a', 0.5, 1.25, 200), (2, NULL, 'B', 1.5, 2, 3), "
            "(3, 30, NULL, NULL, NULL, NULL)"
        )
        yield db


def reason(db: Database, statement: str) -> str:
    """Return why a statement needs Spark, or an empty text if it does not."""
    where, details = db.sql(f"EXPLAIN {statement}").rows()[0][2:]
    assert where in ("on Spark", "in the process")
    return details.partition(";")[0] if where == "on Spark" else ""


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT 1", [(1,)]),
        ("SELECT count(*) FROM t", [(3,)]),
        ("SELECT max(k) FROM t", [(3,)]),
        ("SELECT n IS NULL AS x, count(*) FROM t GROUP BY 1 ORDER BY x", [(False, 2), (True, 1)]),
        ("SELECT d * 2 FROM t ORDER BY k", [(1.0,), (3.0,), (None,)]),
        ("SELECT k FROM t WHERE s LIKE 'a%'", [(1,)]),
        ("SELECT x.k, y.s FROM t x JOIN t y ON x.k = y.k + 1 ORDER BY 1", [(2, "a"), (3, "B")]),
        ("SELECT k FROM t VIEW by_n WHERE n + 1 > 11", [(3,)]),
        ("SELECT s FROM t VIEW by_n WHERE n = 10 AND s LIKE 'a'", [("a",)]),
        ("SELECT max(u) AS x, min(k) FROM t VERSION AS OF 0 WHERE k + 1 > 0", [(None, None)]),
        ("SELECT n, sum(k) AS total FROM t GROUP BY n ORDER BY n", [(None, 2), (10, 1), (30, 3)]),
        ("SELECT k FROM t WHERE 2 BETWEEN k AND n", [(1,)]),
    ],
)
def test_a_query_needs_no_jvm(db: Database, query: str, rows: list[tuple[Any, ...]]) -> None:
    if "VERSION" in query:
        query = query.replace("OF 0", f"OF {db.step - 1}")
    result = db.sql(query)
    assert result.is_here
    assert result.rows() == rows
    assert reason(db, query) == ""


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("UPDATE t SET n = coalesce(n, 0) + 1 WHERE k = 2", [(1, 10), (2, 1), (3, 30)]),
        ("UPDATE t SET n = k * 2 WHERE s LIKE 'a%'", [(1, 2), (2, None), (3, 30)]),
        ("DELETE FROM t WHERE length(s) = 1", [(3, 30)]),
        ("UPSERT INTO t (k, n) SELECT k + 10, n FROM t WHERE k < 2", [(1, 10), (2, None), (3, 30), (11, 10)]),
        ("INSERT INTO t (k, n) VALUES (2 * 2, 3 + 4)", [(1, 10), (2, None), (3, 30), (4, 7)]),
        ("DELETE FROM t ON (k) SELECT k FROM t WHERE n + 0 = 30", [(1, 10), (2, None)]),
    ],
)
def test_a_change_needs_no_jvm(db: Database, statement: str, after: list[tuple[Any, ...]]) -> None:
    assert reason(db, statement) == ""
    db.sql(statement)
    assert db.sql("SELECT k, n FROM t ORDER BY k").rows() == after
    db.check("/t")


def test_changes_of_different_keys_do_not_conflict(db: Database, tmp_path: Path) -> None:
    """The query of UPDATE looks its key up, so the commit does not depend on other rows."""
    with strandline.connect(tmp_path, files=QuickFiles(tmp_path), spark=NoSpark()) as other:  # type: ignore[arg-type]
        with db.transaction() as tx:
            tx.sql("UPDATE t SET n = coalesce(n, 0) + 1 WHERE k = 2")
            other.sql("UPDATE t SET n = coalesce(n, 0) + 1 WHERE k = 1")
    assert db.sql("SELECT k, n FROM t ORDER BY k").rows() == [(1, 11), (2, 1), (3, 30)]


def test_the_catalog_counts_rows_if_no_log_changes_them(db: Database) -> None:
    assert "from the catalog" in db.sql("EXPLAIN SELECT count(*) FROM t").rows()[0][3]
    db.sql("DELETE FROM t WHERE k = 1")
    assert "from the catalog" not in db.sql("EXPLAIN SELECT count(*) FROM t").rows()[0][3]
    assert db.sql("SELECT count(*) FROM t").rows() == [(2,)]


def test_the_setting_chooses_the_engine(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="engine cannot be 'fast'"):
        Settings(engine="fast")
    settings = Settings(engine="process")
    with strandline.connect(tmp_path, spark=NoSpark(), settings=settings) as db:  # type: ignore[arg-type]
        db.sql(CREATE)
        with pytest.raises(Unsupported, match="regexp_extract"):
            db.sql("SELECT regexp_extract(s, 'a') AS x FROM t")
    with strandline.connect(tmp_path, spark=NoSpark(), settings=Settings(engine="spark")) as db:  # type: ignore[arg-type]
        assert reason(db, "SELECT k FROM t WHERE k = 1") == "the setting engine is spark"
        with pytest.raises(Exception, match="Spark was used"):
            db.sql("SELECT 1")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n + 2147483647 AS x FROM t",
        "SELECT n / (n - 10) AS x FROM t",
        "SELECT CAST(n + 1000 AS TINYINT) AS x FROM t",
        "SELECT sum(k + 9223372036854775800) AS x FROM t",
        "SELECT (SELECT k FROM t) AS x",
        "SELECT upper('\u00df' || s) AS x FROM t",
    ],
)
def test_spark_judges_a_value_that_an_operation_fails_at(tmp_path: Path, db: Database, query: str) -> None:
    """Such an operation fails in DuckDB as well; Spark then repeats the query, and has the error to show."""
    assert reason(db, query) == ""
    with pytest.raises(Exception, match="Spark was used"):
        db.sql(query)


def test_spark_judges_a_value_in_a_late_row(tmp_path: Path) -> None:
    """DuckDB has returned rows when the operation fails, and Arrow reports the error."""
    with strandline.connect(tmp_path, spark=NoSpark(), settings=Settings(bulk_rows=10**6)) as db:  # type: ignore[arg-type]
        fill(db, 400_000)
        with pytest.raises(Exception, match="Spark was used"):
            db.sql("SELECT k, 1 / (n - 399999) AS x FROM t")


def test_forms_that_differed_from_spark(tmp_path: Path) -> None:
    """Forms for which random queries found other results on Spark."""
    with strandline.connect(tmp_path, spark=NoSpark()) as db:  # type: ignore[arg-type]
        db.sql("CREATE TABLE t (k Int64 NOT NULL, z Double, f Float, PRIMARY KEY (k))")
        db.table("t").upsert([{"k": 1, "z": -0.0, "f": -0.0}])
        for name in ("greatest", "least"):
            for first, other in (("z", "0D"), ("z", "z"), ("coalesce(f, f)", "f"), ("z + z", "z")):
                ((zero,),) = db.sql(f"SELECT {name}({first}, {other}) AS x FROM t").rows()
                assert math.copysign(1, zero) == -1, "Spark returns the first of equal values"
            assert db.sql(f"SELECT {name}(NULL, z, NULL, 1D) AS x FROM t").rows() == [
                (float(name == "greatest"),)
            ]
        for overflow in (
            "-(-9223372036854775808)",
            "k - 4 + -9223372036854775808 + 4",
            "(k + 9223372036854775806 + 1) * 0",
        ):
            with pytest.raises(Exception, match="Spark was used"):
                db.sql(f"SELECT {overflow} AS x FROM t")
        assert db.sql("SELECT -0.01 - 2Y AS x").schema.types == [pa.decimal128(6, 2)]
        assert db.sql("SELECT -0.01 - 2S AS x").schema.types == [pa.decimal128(4, 2)]
        assert reason(db, "SELECT 99999999999999999999").startswith("an expression has no alias")


def test_parameters_are_values(db: Database) -> None:
    text = "SELECT s || :more AS x, :n + 1 AS y, :none AS z FROM t WHERE k = :k"
    values = {"more": "'; DROP TABLE t", "n": 1, "none": None, "k": 1}
    assert db.sql(text, values).rows() == [("a'; DROP TABLE t", 2, None)]


def test_the_result_has_the_types_of_the_table(db: Database) -> None:
    result = db.sql("SELECT u, U + 1 AS v, m * 2 AS w, at FROM t WHERE k + 0 = 1")
    assert result.columns == ("u", "v", "w", "at")
    assert result.schema.types == [pa.uint8(), pa.int32(), pa.decimal128(12, 2), pa.timestamp("us", tz="UTC")]


def test_a_query_is_interrupted(tmp_path: Path) -> None:
    """The thread that waits for DuckDB leaves at a check, after DuckDB has stopped."""
    engine, begun, work = DuckDBEngine(1 << 28), threading.Event(), Work()

    def endless() -> Iterator[pa.Table]:
        begun.set()
        while True:
            yield pa.table({"k": pa.array([1], pa.int64())})

    def end() -> None:
        begun.wait()
        work.end()

    thread = threading.Thread(target=end)
    thread.start()
    inputs = {"t0": QueryInput([InputColumn("k", "c0", "bigint")], endless)}
    with pytest.raises(Interrupted), doing(work):
        engine.run("SELECT count(*) AS c0 FROM t0", inputs, ["bigint"], 1 << 20)
    thread.join()
    assert all(t.name != "strandline-duckdb" for t in threading.enumerate())


ENDLESS = "SELECT count(*) AS c FROM t a, t b, t c, t d, t e WHERE a.k * b.k * c.k + d.k * e.k = 7"


def fill(db: Database, rows: int) -> None:
    keys = pa.array(range(rows), pa.int64())
    db.sql("CREATE TABLE t (k Int64 NOT NULL, n Int64, PRIMARY KEY (k))")
    db.table("t").upsert(pa.table({"k": keys, "n": keys}))


def is_running() -> bool:
    return any(thread.name == "strandline-duckdb" for thread in threading.enumerate())


def test_a_query_that_takes_too_long_goes_to_spark(tmp_path: Path) -> None:
    for engine, error, text in (
        ("process", Unsupported, "it takes longer than process_seconds"),
        ("auto", Exception, "Spark was used"),
    ):
        settings = Settings(process_seconds=0.01, engine=engine)
        with strandline.connect(tmp_path / engine, spark=NoSpark(), settings=settings) as db:  # type: ignore[arg-type]
            fill(db, 1000)
            assert "with DuckDB" in db.sql(f"EXPLAIN {ENDLESS}").rows()[0][3]
            with pytest.raises(error, match=text):
                db.sql(ENDLESS)
            assert not is_running()


@pytest.mark.slow
def test_a_query_that_takes_too_much_memory_goes_to_spark(tmp_path: Path) -> None:
    query = "SELECT count(DISTINCT a.k * 1000003 + b.k) AS c FROM t a CROSS JOIN t b"
    for engine, error, text in (
        ("process", Unsupported, "Out of Memory"),
        ("auto", Exception, "Spark was used"),
    ):
        settings = Settings(bulk_bytes=1 << 20, engine=engine)
        with strandline.connect(tmp_path / engine, spark=NoSpark(), settings=settings) as db:  # type: ignore[arg-type]
            fill(db, 5000)
            with pytest.raises(error, match=text):
                db.sql(query)


def test_ctrl_c_ends_a_query(tmp_path: Path) -> None:
    def interrupt() -> None:
        while not is_running():
            time.sleep(0.001)
        _thread.interrupt_main()

    with strandline.connect(tmp_path, spark=NoSpark()) as db:  # type: ignore[arg-type]
        fill(db, 1000)
        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            db.sql(ENDLESS)
        helper.join()
        assert not is_running()
        assert db.sql("SELECT sum(n) AS x FROM t").rows() == [(499500,)]


def test_duckdb_sees_nothing_but_the_tables_of_the_query(tmp_path: Path) -> None:
    engine = DuckDBEngine(1 << 28)
    (tmp_path / "a.csv").write_text("x\n1\n")
    for text in (
        f"SELECT * FROM read_csv('{tmp_path}/a.csv')",
        f"COPY (SELECT 1) TO '{tmp_path}/b.csv'",
        "INSTALL httpfs",
        "SET threads = 9",
        "SELECT * FROM tmp_path",
    ):
        with pytest.raises(RefusedByDuckDB):
            engine.run(text, {}, ["int"], 1 << 20)
    with pytest.raises(RefusedByDuckDB, match="too large"):
        engine.run("SELECT range AS c0 FROM range(10000000)", {}, ["bigint"], 1 << 20)


def test_an_error_of_the_input_is_the_error_of_the_query() -> None:
    def broken() -> Iterator[pa.Table]:
        raise InvalidArgument("the file is not there")
        yield

    inputs = {"t0": QueryInput([InputColumn("k", "c0", "bigint")], broken)}
    with pytest.raises(InvalidArgument, match="the file is not there"):
        DuckDBEngine(1 << 28).run("SELECT count(*) AS c0 FROM t0", inputs, ["bigint"], 1 << 20)


@pytest.mark.slow
def test_a_large_group_and_a_large_join_need_no_jvm(tmp_path: Path) -> None:
    with strandline.connect(tmp_path, files=QuickFiles(tmp_path), spark=NoSpark()) as db:  # type: ignore[arg-type]
        for name in ("a", "b"):
            db.sql(f"CREATE TABLE {name} (k Int64 NOT NULL, g Int32, PRIMARY KEY (k))")
            for start in range(0, 100_000, 50_000):
                keys = pa.array(range(start, start + 50_000), pa.int64())
                db.table(name).upsert(pa.table({"k": keys, "g": pa.array([k.as_py() % 7 for k in keys])}))
        found = db.sql("SELECT a.g, count(*) AS n FROM a JOIN b ON a.k = b.k + 1 GROUP BY a.g ORDER BY 1")
        assert [row[1] for row in found.rows()] == [14285, 14286, 14286, 14286, 14286, 14285, 14285]


SCRIPT = """
import sys, strandline
with strandline.connect(sys.argv[1]) as db:
    db.sql("CREATE TABLE t (k Int64 NOT NULL, n Int32, PRIMARY KEY (k))")
    db.sql("UPSERT INTO t (k, n) VALUES (1, 1)")
    assert db.sql("SELECT k, n FROM t WHERE k = 1").rows() == [(1, 1)]
    assert "duckdb" not in sys.modules
    db.sql("UPDATE t SET n = coalesce(n, 0) + 1 WHERE k = 1")
    assert db.sql("SELECT max(n), count(*) FROM t").rows() == [(2, 1)]
    assert "duckdb" in sys.modules and "pyspark" not in sys.modules
    raise SystemExit(7)
"""


def test_a_lookup_does_not_load_duckdb_and_a_query_not_spark(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, env=env, check=False
    )
    assert (done.returncode, done.stderr) == (7, "")
