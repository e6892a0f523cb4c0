"""UPSERT, INSERT, REPLACE, UPDATE and DELETE: effects on rows and indexes, in the process and on Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from strandline import Database, Settings
from tests.tables.examples import assert_sound, content, refused, rows

if TYPE_CHECKING:
    pass

ONE_INDEX = (
    "CREATE TABLE t (k Int32, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"
)
TABLE = f"{ONE_INDEX[:-1]}, INDEX by_n GLOBAL ON (n, v))"


# --- what only Spark can evaluate -------------------------------------------------------------------------


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
    spark = db._runtime.spark
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
        return len(list(db._runtime.files.names("data")))

    rows_ = [(1, "x"), (3, "y"), (3, "z")]
    db.table("t").upsert(db._runtime.spark.createDataFrame(rows_, "k int, v string").coalesce(1))
    db.table("t").delete(db._runtime.spark.createDataFrame([(2,), (9,)], "k int"))
    assert files() == 0, "Spark writes files, the process keeps few rows in the catalog"
    assert content(db, "/t") == [(1, "x", 1), (3, "z", None)]
    monkeypatch.setattr(db._runtime.store, "settings", replace(db._runtime.settings, bulk_bytes=2))
    db.table("t").upsert(db._runtime.spark.createDataFrame([(1, "wide"), (4, "rows")], "k int, v string"))
    assert files() > 0
    assert content(db, "/t") == [(1, "wide", 1), (3, "z", None), (4, "rows", None)]
    assert_sound(db, "/t")


def test_a_commit_too_large_for_the_catalog_goes_to_a_file(db: Database) -> None:
    db.sql(TABLE)
    db.table("t").upsert([{"k": n, "v": f"row {n}", "n": n % 10} for n in range(3000)])
    assert len(list(db._runtime.files.names("data"))) == 3, "the table and its two indexes"
    db.table("t").upsert([{"k": n, "n": -n} for n in range(2500, 3500)])
    assert db.describe("/t")["rows"] == 3500
    assert rows(db, "SELECT n FROM t WHERE k = 2999") == [(-2999,)]
    assert rows(db, "SELECT count(*) FROM t VIEW by_n WHERE n = 5") == [(250,)]
    assert_sound(db, "/t")


def test_bulk_writes_are_carried_out_on_spark(connect: Callable[..., Database], spark: object) -> None:
    small = connect(settings=Settings(bulk_rows=10**9))
    large = connect(settings=Settings(bulk_rows=50), spark=spark)
    for db in (small, large):
        db.sql(ONE_INDEX)
        db.table("t").upsert([{"k": n, "v": str(n % 3), "n": n} for n in range(60)])
        db.table("t").upsert([{"k": n, "v": "changed"} for n in range(40, 95)])
        db.table("t").delete(list(range(0, 90, 1)))
    sizes = {"bytes": 0, "committed_bytes": 0}
    assert small.describe("/t") | sizes == large.describe("/t") | sizes
    assert content(small, "/t") == content(large, "/t")
    assert_sound(large, "/t")
