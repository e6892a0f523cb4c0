"""UPSERT, INSERT, REPLACE, UPDATE and DELETE: effects on rows and indexes, in the process and on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from strandline import Database, Settings
from strandline.catalog import chains
from strandline.catalog.writer import current_step
from strandline.model import OP
from strandline.storage.arrow import changes as logs_of
from strandline.storage.files import LocalFiles
from tests.effort import EVERY
from tests.tables.examples import ARROW, SPARK, QuickFiles, assert_sound, content, read_with, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_INDEX = (
    "CREATE TABLE t (k Int32, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"
)
TABLE = f"{ONE_INDEX[:-1]}, INDEX by_n GLOBAL ON (n, v))"


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def either(request: pytest.FixtureRequest, connect: Callable[..., Database]) -> Database:
    """A database with an indexed table that works entirely in the process, or entirely on Spark.

    On Spark there is only one index, because each index needs extra jobs.
    """
    return _either(request.param, request, connect)


def _either(way: str, request: pytest.FixtureRequest, connect: Callable[..., Database]) -> Database:
    if way == "arrow":
        db = connect(settings=ARROW)
        db.sql(TABLE)
        return db
    db = connect("shared", settings=SPARK, spark=request.getfixturevalue("spark"))
    read_with(db, connect("shared", settings=ARROW))
    db.sql(ONE_INDEX)
    return db


@pytest.fixture(params=["arrow", *([pytest.param("spark", marks=pytest.mark.spark)] if EVERY else [])])
def mostly_here(request: pytest.FixtureRequest, connect: Callable[..., Database]) -> Database:
    """Like ``either``, for behaviour that other tests cover on Spark: on Spark only in exhaustive runs."""
    return _either(request.param, request, connect)


@pytest.fixture
def here(connect: Callable[..., Database]) -> Database:
    """Like ``either``, in the process only."""
    db = connect(settings=ARROW)
    db.sql(TABLE)
    return db


def changes(db: Database, path: str, after: int) -> list[tuple[Any, ...]]:
    """Return the changes in the log after a step: (op, key, whether the row existed before)."""
    from strandline.catalog import paths
    from strandline.catalog.tables import TableInfo

    with db.runtime.catalog.read() as conn:
        info = TableInfo.of(paths.require(conn, path))
        logs = chains.log_between(conn, info.id, after, current_step(conn))
    found = logs_of.changes(db.runtime.store.shelf, info.schema, logs, after=after, upto=2**60)
    names = [*info.schema.key]
    return [
        (row[OP], tuple(row[n] for n in names), row["__strandline_was_hi"] is not None)
        for row in found.to_pylist()
    ]


def test_upsert_sets_what_it_names_and_keeps_the_rest(mostly_here: Database) -> None:
    db = mostly_here
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20)")
    db.sql("UPSERT INTO t (k, n) VALUES (1, 11), (3, 30)")
    assert content(db, "/t") == [(1, "a", 11), (2, "b", 20), (3, None, 30)]
    db.sql("UPSERT INTO t (v, k) VALUES (NULL, 2)")
    assert content(db, "/t") == [(1, "a", 11), (2, None, 20), (3, None, 30)]
    assert_sound(db, "/t")


def test_replace_clears_what_it_does_not_name(mostly_here: Database) -> None:
    db = mostly_here
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20)")
    db.sql("REPLACE INTO t (k, n) VALUES (1, 11), (3, 30)")
    assert content(db, "/t") == [(1, None, 11), (2, "b", 20), (3, None, 30)]
    assert_sound(db, "/t")


def test_insert_refuses_a_key_that_is_there(mostly_here: Database) -> None:
    db = mostly_here
    db.sql("INSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b')")
    with refused(db, "PRECONDITION_FAILED"):
        db.sql("INSERT INTO t (k, v) VALUES (3, 'c'), (2, 'd')")
    with refused(db, "PRECONDITION_FAILED"):
        db.sql("INSERT INTO t (k, v) VALUES (4, 'c'), (4, 'd')")
    assert content(db, "/t") == [(1, "a", None), (2, "b", None)]
    db.sql("DELETE FROM t WHERE k = 1; INSERT INTO t (k, n) VALUES (1, 5)")
    assert content(db, "/t") == [(1, None, 5), (2, "b", None)]
    assert_sound(db, "/t")


def test_update_changes_only_rows_that_are_there(either: Database) -> None:
    db = either
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', NULL), (3, 'c', 30)")
    assert db.sql("UPDATE t SET n = n + 1, v = 'x' WHERE k < 3").rows_changed == 2
    assert content(db, "/t") == [(1, "x", 11), (2, "x", None), (3, "c", 30)]
    assert db.sql("UPDATE t SET v = 'none' WHERE k = 99").step is None
    db.sql("UPDATE t SET v = NULL; UPDATE t SET n = 100 WHERE v IS NULL AND k > 1")
    assert content(db, "/t") == [(1, None, 11), (2, None, 100), (3, None, 100)]
    assert_sound(db, "/t")


def test_update_sees_the_old_row_on_the_right_side(here: Database) -> None:
    db = here
    db.sql(
        "CREATE TABLE p (k Int32, a Int32, b Int32, PRIMARY KEY (k)); UPSERT INTO p (k, a, b) VALUES (1, 10, 20)"
    )
    db.sql("UPDATE p SET a = b, b = a WHERE p.k = 1")
    assert content(db, "/p") == [(1, 20, 10)]


def test_delete_where_records_only_rows_that_were_there(mostly_here: Database) -> None:
    db = mostly_here
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20), (3, 'a', 30)")
    before = db.step
    assert db.sql("DELETE FROM t WHERE v = 'a' OR k = 77").rows_changed == 2
    assert changes(db, "/t", before) == [("E", (1,), True), ("E", (3,), True)]
    assert db.sql("DELETE FROM t WHERE k = 77").step is None
    assert content(db, "/t") == [(2, "b", 20)]
    db.sql("DELETE FROM t")
    assert content(db, "/t") == []
    assert_sound(db, "/t")


def test_delete_on_records_every_key_it_names(mostly_here: Database) -> None:
    db = mostly_here
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20)")
    before = db.step
    db.sql("DELETE FROM t ON (k) VALUES (2), (7), (7)")
    assert changes(db, "/t", before) == [("E", (2,), True), ("E", (7,), False)]
    assert changes(db, "/t/by_v/indexImplTable", before) == [("E", ("b", 2), True)]
    assert content(db, "/t") == [(1, "a", 10)]
    assert_sound(db, "/t")


def test_the_last_of_equal_keys_wins_and_partial_ones_add_up(mostly_here: Database) -> None:
    db = mostly_here
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (1, 'b', 2), (2, 'x', 0), (1, 'c', 3)")
    assert content(db, "/t") == [(1, "c", 3), (2, "x", 0)]
    assert db.sql("REPLACE INTO t (k, v) VALUES (2, 'y'), (2, 'z')").rows_changed == 1
    assert content(db, "/t") == [(1, "c", 3), (2, "z", None)]
    assert_sound(db, "/t")


def test_a_change_of_an_index_key_moves_the_entry(mostly_here: Database) -> None:
    db = mostly_here
    if len(db.describe("/t")["indexes"]) == 1:
        db.sql("ALTER TABLE t ADD INDEX by_n GLOBAL ON (n, v)")
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20)")
    before = db.step
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'z')")
    assert changes(db, "/t/by_v/indexImplTable", before) == [("E", ("a", 1), True), ("U", ("z", 1), False)]
    assert changes(db, "/t/by_n/indexImplTable", before) == [
        ("E", (10, "a", 1), True),
        ("U", (10, "z", 1), False),
    ]
    before = db.step
    db.sql("UPSERT INTO t (k, n) VALUES (2, 21)")
    assert changes(db, "/t/by_v/indexImplTable", before) == [("U", ("b", 2), True)], (
        "only a covered column changed"
    )
    before = db.step
    db.sql("UPSERT INTO t (k, v, n) VALUES (2, 'b', 21)")
    assert changes(db, "/t/by_v/indexImplTable", before) == [], "nothing changed"
    assert changes(db, "/t", before) == [("U", (2,), True)]
    assert_sound(db, "/t")


def test_change_and_change_back_in_one_commit_touches_no_index(here: Database) -> None:
    db = here
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10)")
    before = db.step
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'b'); UPSERT INTO t (k, v) VALUES (1, 'a')")
    assert content(db, "/t/by_v/indexImplTable") == [("a", 1, 10)]
    assert db.step == before + 1
    assert_sound(db, "/t")


def test_statements_of_one_text_are_one_commit_and_see_each_other(either: Database) -> None:
    db = either
    db.sql("CREATE TABLE u (k Int32, total Int64, PRIMARY KEY (k))")
    before = db.step
    result = db.sql(
        "UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20);"
        "UPDATE t SET n = n * 2 WHERE v = 'a';"
        "DELETE FROM t WHERE n = 20 AND k = 2;"
        "UPSERT INTO u (k, total) VALUES (1, 20);"
        "INSERT INTO t (k, v) VALUES (2, 'again')"
    )
    assert result.step == before + 1 == db.step
    assert content(db, "/t") == [(1, "a", 20), (2, "again", None)]
    assert content(db, "/u") == [(1, 20)]
    for path in ("/t", "/u", "/t/by_v/indexImplTable"):
        assert db.describe(path)["step"] == result.step
    assert changes(db, "/t", before) == [("U", (1,), False), ("U", (2,), False)]
    assert_sound(db, "/t")


def test_a_refused_statement_takes_its_whole_commit_with_it(here: Database) -> None:
    db = here
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a')")
    with refused(db, "PRECONDITION_FAILED"):
        db.sql(
            "UPSERT INTO t (k, v) VALUES (2, 'b'); DELETE FROM t; UPSERT INTO t (k) VALUES (5); INSERT INTO t (k) VALUES (5)"
        )


def test_insert_then_delete_is_one_tombstone(here: Database) -> None:
    db = here
    before = db.step
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); DELETE FROM t WHERE k = 1")
    assert changes(db, "/t", before) == [("E", (1,), False)]
    assert content(db, "/t/by_v/indexImplTable") == []
    assert_sound(db, "/t")


def test_delete_then_upsert_forgets_the_old_columns(here: Database) -> None:
    db = here
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10)")
    db.sql("DELETE FROM t WHERE k = 1; UPSERT INTO t (k, n) VALUES (1, 15)")
    assert content(db, "/t") == [(1, None, 15)]
    assert_sound(db, "/t")


def test_a_table_of_nothing_but_keys(here: Database) -> None:
    db = here
    db.sql("CREATE TABLE s (a Utf8, b Int32, PRIMARY KEY (a, b), INDEX i GLOBAL ON (b))")
    db.sql("UPSERT INTO s (a, b) VALUES ('x', 1), ('x', NULL), (NULL, NULL), ('', 1)")
    db.sql("DELETE FROM s WHERE a IS NULL; DELETE FROM s ON (a, b) VALUES ('', 1), ('x', NULL)")
    assert content(db, "/s") == [("x", 1)]
    assert content(db, "/s/i/indexImplTable") == [(1, "x")]
    assert_sound(db, "/s")


def test_null_in_keys_and_in_index_columns(either: Database) -> None:
    db = either
    db.sql("CREATE TABLE s (a Utf8, b Int32, v Utf8, PRIMARY KEY (a, b), INDEX i GLOBAL ON (v))")
    db.sql("UPSERT INTO s (a, b, v) VALUES (NULL, NULL, NULL), (NULL, 1, NULL), ('', NULL, ''), ('', 1, 'x')")
    db.sql("UPSERT INTO s (a, b, v) VALUES (NULL, NULL, 'n'), (NULL, 1, NULL)")
    assert content(db, "/s") == [(None, None, "n"), (None, 1, None), ("", None, ""), ("", 1, "x")]
    assert db.describe("/s")["rows"] == 4
    assert rows(db, "SELECT b FROM s WHERE a IS NULL AND b IS NULL") == [(None,)]
    assert rows(db, "SELECT b FROM s VIEW i WHERE v IS NULL") == [(1,)]
    with refused(db, "PRECONDITION_FAILED"):
        db.sql("INSERT INTO s (a, b) VALUES (NULL, NULL)")
    db.sql("DELETE FROM s WHERE a IS NULL")
    assert content(db, "/s") == [("", None, ""), ("", 1, "x")]
    assert_sound(db, "/s")


def test_not_null_is_kept(mostly_here: Database) -> None:
    db = mostly_here
    db.sql(
        "CREATE TABLE s (k Int32 NOT NULL, v Utf8 NOT NULL, n Int32, PRIMARY KEY (k)); UPSERT INTO s (k, v) VALUES (1, 'x')"
    )
    for statement in (
        "UPSERT INTO s (k, v) VALUES (NULL, 'x')",
        "UPSERT INTO s (k, n) VALUES (2, 2)",
        "UPSERT INTO s (k, v) VALUES (1, NULL)",
        "REPLACE INTO s (k, n) VALUES (1, 1)",
        "INSERT INTO s (k) VALUES (3)",
        "UPDATE s SET v = NULL WHERE k = 1",
    ):
        with refused(db, "INVALID_ARGUMENT"):
            db.sql(statement)
    db.sql("UPSERT INTO s (k, n) VALUES (1, 5)")
    assert content(db, "/s") == [(1, "x", 5)]
    assert db.sql("DELETE FROM s WHERE k = 1").rows_changed == 1
    assert_sound(db, "/s")


# --- expressions that need Spark -------------------------------------------------------------------------


def test_a_select_feeds_every_kind_of_write(spark_db: Database) -> None:
    db = spark_db
    db.sql(TABLE)
    db.sql(
        "CREATE TABLE src (k Int32, v Utf8, n Int64, PRIMARY KEY (k)); UPSERT INTO src (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', NULL)"
    )
    db.sql("INSERT INTO t SELECT k, v, n FROM src WHERE k < 3")
    assert content(db, "/t") == [(1, "a", 10), (2, "b", 20)]
    db.sql("UPSERT INTO t (k, n) SELECT k, k * 100 FROM src")
    assert content(db, "/t") == [(1, "a", 100), (2, "b", 200), (3, None, 300)]
    db.sql("REPLACE INTO t (k, v) SELECT k, upper(v) FROM src WHERE k = 2")
    assert content(db, "/t") == [(1, "a", 100), (2, "B", None), (3, None, 300)]
    db.sql("DELETE FROM t ON SELECT k FROM src WHERE k > 2")
    assert content(db, "/t") == [(1, "a", 100), (2, "B", None)]
    with refused(db, "PRECONDITION_FAILED"):
        db.sql("INSERT INTO t SELECT k, v, n FROM src")
    db.sql("UPSERT INTO t VALUES (7, concat('x', 'y'), 3 + 4)")
    assert content(db, "/t")[-1] == (7, "xy", 7)
    assert_sound(db, "/t")


def test_an_upsert_fed_from_its_own_table_may_change_keys(spark_db: Database) -> None:
    db = spark_db
    db.sql(TABLE)
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30)")
    db.sql("UPSERT INTO t (k, v, n) SELECT k + 1, v, n FROM t")
    assert content(db, "/t") == [(1, "a", 10), (2, "a", 10), (3, "b", 20), (4, "c", 30)]
    db.sql("DELETE FROM t WHERE k > 1; UPSERT INTO t (k, v) SELECT k + 1, v || '!' FROM t")
    assert content(db, "/t") == [(1, "a", 10), (2, "a!", None)]
    assert_sound(db, "/t")


def test_conditions_and_values_with_subqueries(spark_db: Database) -> None:
    db = spark_db
    db.sql(TABLE)
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30)")
    db.sql(
        "UPDATE t SET n = (SELECT max(n) FROM t), v = substr(v, 1, 1) WHERE k IN (SELECT k FROM t WHERE v = 'a')"
    )
    assert content(db, "/t")[0] == (1, "a", 30)
    db.sql("DELETE FROM t WHERE n = (SELECT max(n) FROM t) AND EXISTS (SELECT 1 FROM t AS o WHERE o.k = 2)")
    assert content(db, "/t") == [(2, "b", 20)]
    assert_sound(db, "/t")


def test_spark_does_not_cast_in_silence(spark_db: Database) -> None:
    db = spark_db
    db.sql("CREATE TABLE s (k Uint8, d Decimal(4,2), t Timestamp, j Json, PRIMARY KEY (k))")
    for select in (
        "SELECT 256",
        "SELECT -1",
        "SELECT 'x'",
        "SELECT 1.5",
        "SELECT true",
        "SELECT explode(array(1, 300))",
    ):
        with refused(db, "INVALID_ARGUMENT"):
            db.sql(f"UPSERT INTO s (k) {select}")
    for column, value in (
        ("d", "100.00"),
        ("d", "0.001"),
        ("d", "double(0.5)"),
        ("j", "'{' || 'x'"),
        ("j", "'NaN' || ''"),
    ):
        with refused(db, "INVALID_ARGUMENT"):
            db.sql(f"UPSERT INTO s (k, {column}) SELECT 1, {value}")
    db.sql("UPSERT INTO s (k, d, j) SELECT 255, 99.990, '{\"a\": ' || '[1]}'")
    assert rows(db, "SELECT k, d, j FROM s") == [(255, Decimal("99.99"), '{"a": [1]}')]


# --- rows without SQL -------------------------------------------------------------------------------------


def test_dicts_may_name_different_columns(db: Database) -> None:
    db.sql(TABLE)
    before = db.step
    step = db.table("t").upsert([{"k": 1, "v": "a"}, {"k": 2, "n": 5}, {"n": 7, "k": 1}, {"K": 3, "V": "c"}])
    assert step == before + 1
    assert content(db, "/t") == [(1, "a", 7), (2, None, 5), (3, "c", None)]
    db.table("t").replace([{"k": 1, "n": 0}])
    db.table("t").insert({"k": 9})
    assert content(db, "/t") == [(1, None, 0), (2, None, 5), (3, "c", None), (9, None, None)]
    assert db.table("t").get(2) == {"k": 2, "v": None, "n": 5}
    assert db.table("t").get(77) is None
    assert db.table("t").upsert([]) is None
    assert_sound(db, "/t")


def test_delete_takes_keys_in_many_forms(db: Database) -> None:
    db.sql(TABLE)
    db.table("t").upsert([{"k": n} for n in range(10)])
    db.table("t").delete([0, 1])
    db.table("t").delete(2)
    db.table("t").delete([(3,), [4]])
    db.table("t").delete([{"k": 5}])
    db.table("t").delete({"k": 6})
    db.table("t").delete(pa.table({"k": [7]}))
    assert content(db, "/t") == [(8, None, None), (9, None, None)]
    db.sql(
        "CREATE TABLE c (a Utf8, b Int32, PRIMARY KEY (a, b)); UPSERT INTO c (a, b) VALUES ('x', 1), ('y', 2), (NULL, 3)"
    )
    db.table("c").delete([("x", 1), (None, 3)])
    assert content(db, "/c") == [("y", 2)]


def test_arrow_tables_go_in(db: Database) -> None:
    db.sql("CREATE TABLE s (k Uint64, d Date, t Timestamp, b String, PRIMARY KEY (k))")
    moment = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=timezone.utc)
    table = pa.table(
        {
            "k": pa.array([1, 2**64 - 1], pa.uint64()),
            "d": pa.array([date(2024, 1, 31), None]),
            "t": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "b": pa.array([b"\0\xff", None], pa.binary()),
        }
    )
    db.table("s").upsert(table)
    db.table("s").upsert(table.to_batches()[0])
    assert db.table("s").get(2**64 - 1) == {"k": 2**64 - 1, "d": None, "t": None, "b": None}
    assert db.table("s").get(1) == {"k": 1, "d": date(2024, 1, 31), "t": moment, "b": b"\0\xff"}
    with refused(db, "INVALID_ARGUMENT"):
        db.table("s").upsert(pa.table({"k": pa.array([-1], pa.int64())}))
    with refused(db, "INVALID_ARGUMENT"):
        db.table("s").upsert(pa.table({"k": ["1"]}))
    with refused(db, "INVALID_ARGUMENT"):
        db.table("s").upsert(pa.table({"d": [date(2024, 1, 1)]}))


def test_data_frames_go_in(spark_db: Database) -> None:
    db = spark_db
    spark = db.runtime.spark
    db.sql(TABLE)
    db.table("t").upsert(spark.range(5).selectExpr("int(id) AS k", "string(id) AS v"))
    db.table("t").delete(spark.range(3).selectExpr("int(id) AS k"))
    db.table("t").upsert(spark.createDataFrame([(4, 40), (9, 90)], "K int, N long"))
    assert content(db, "/t") == [(3, "3", None), (4, "4", 40), (9, None, 90)]
    with refused(db, "PRECONDITION_FAILED"):
        db.table("t").insert(spark.range(10).selectExpr("int(id) AS k"))
    with refused(db, "INVALID_ARGUMENT"):
        db.table("t").upsert(spark.range(10).selectExpr("int(id) AS k", "1 AS nothing"))
    assert_sound(db, "/t")


def test_few_rows_of_a_data_frame_do_not_make_spark_scan_the_table(
    spark_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = spark_db
    db.sql(ONE_INDEX)
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2)")

    def files() -> int:
        return len(list(db.runtime.files.names("data")))

    rows_ = [(1, "x"), (3, "y"), (3, "z")]
    db.table("t").upsert(db.runtime.spark.createDataFrame(rows_, "k int, v string").coalesce(1))
    db.table("t").delete(db.runtime.spark.createDataFrame([(2,), (9,)], "k int"))
    assert files() == 0, "Spark writes files, the process keeps few rows in the catalog"
    assert content(db, "/t") == [(1, "x", 1), (3, "z", None)]
    monkeypatch.setattr(db.runtime.store, "settings", replace(db.runtime.settings, bulk_bytes=2))
    db.table("t").upsert(db.runtime.spark.createDataFrame([(1, "wide"), (4, "rows")], "k int, v string"))
    assert files() > 0
    assert content(db, "/t") == [(1, "wide", 1), (3, "z", None), (4, "rows", None)]
    assert_sound(db, "/t")


def test_a_commit_too_large_for_the_catalog_goes_to_a_file(db: Database) -> None:
    db.sql(TABLE)
    db.table("t").upsert([{"k": n, "v": f"row {n}", "n": n % 10} for n in range(3000)])
    assert len(list(db.runtime.files.names("data"))) == 3, "the table and its two indexes"
    db.table("t").upsert([{"k": n, "n": -n} for n in range(2500, 3500)])
    assert db.describe("/t")["rows"] == 3500
    assert rows(db, "SELECT n FROM t WHERE k = 2999") == [(-2999,)]
    assert rows(db, "SELECT count(*) FROM t VIEW by_n WHERE n = 5") == [(250,)]
    assert_sound(db, "/t")


class Seen(QuickFiles):
    """Records the files that were read in this process."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.seen: set[str] = set()

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        self.seen.add(name)
        return super().chunks(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalFiles, (self.root,)  # Executors cannot import the tests.


def test_files_of_a_load_are_described_here_unless_they_are_large(
    connect: Callable[..., Database], spark: SparkSession, tmp_path: Path
) -> None:
    """The process reads up to eight times its usual limit: starting Python on executors takes longer."""

    def loaded(folder: str, bulk_bytes: int) -> tuple[set[str], int]:
        files = Seen(tmp_path / folder)
        db = connect(folder, files=files, spark=spark, settings=Settings(bulk_rows=0, bulk_bytes=bulk_bytes))
        db.sql("CREATE TABLE t (k Int64, PRIMARY KEY (k))")
        db.table("t").upsert(spark.range(1000).withColumnRenamed("id", "k"))
        read = set(files.seen)
        assert_sound(db, "/t")
        return read, db.describe("/t")["bytes"]

    read, size = loaded("some", 1 << 20)
    assert read
    assert loaded("as many as may be", -(-size // 8))[0]
    assert not loaded("too many", size // 8 - 1)[0]


def test_bulk_writes_are_carried_out_on_spark(connect: Callable[..., Database], spark: object) -> None:
    small = connect(settings=Settings(bulk_rows=10**9))
    large = connect(settings=Settings(bulk_rows=50), spark=spark)
    for db in (small, large):
        db.sql(ONE_INDEX)
        db.table("t").upsert([{"k": n, "v": str(n % 3), "n": n} for n in range(60)])
        db.table("t").upsert([{"k": n, "v": "changed"} for n in range(40, 95)])
        db.table("t").delete(list(range(0, 90, 1)))
    assert small.describe("/t") | {"bytes": 0} == large.describe("/t") | {"bytes": 0}
    assert content(small, "/t") == content(large, "/t")
    assert_sound(large, "/t")
