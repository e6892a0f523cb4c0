"""Results: rows in memory, and rows that Spark computes later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline import Database
from strandline.api.result import SparkResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_that_are_here(db: Database) -> None:
    result = db.sql(
        "CREATE TABLE t (k Int32, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (1), (2), (3); SELECT k FROM t ORDER BY k"
    )
    assert result.is_here
    assert result.rows() == list(result) == [(1,), (2,), (3,)]
    assert result.rows(2) == [(1,), (2,)]
    assert list(db.sql("CREATE TABLE u (k Int32, PRIMARY KEY (k))")) == []


def test_of_a_result_that_is_larger_than_memory_only_what_is_asked_for_is_computed(
    spark: SparkSession,
) -> None:
    result = SparkResult(_frame=lambda: spark.range(0, 10**9, 1, 10**5))
    assert not result.is_here
    assert result.rows(3) == [(0,), (1,), (2,)]
    coming = iter(result)
    assert [next(coming) for _ in range(3)] == [(0,), (1,), (2,)]


def test_iterating_gives_all_rows_in_their_order(spark: SparkSession) -> None:
    result = SparkResult(_frame=lambda: spark.range(0, 1000, 1, 7).orderBy("id", ascending=False))
    assert list(result) == result.rows() == [(n,) for n in reversed(range(1000))]
