"""The size of a caller's DataFrame is estimated without a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.storage.spark.input_size import estimate_bytes, read_estimate

ROWS = 100_000


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, int]:
    """A DataFrame of Parquet files, and their size."""
    folder = tmp_path / "in"
    spark.range(0, ROWS, 1, 3).select("id", F.hex(F.xxhash64("id")).alias("v")).write.parquet(str(folder))
    return spark.read.parquet(str(folder)), sum(f.stat().st_size for f in folder.rglob("*.parquet"))


def test_files_have_their_size_whatever_is_done_with_them(written: tuple[DataFrame, int]) -> None:
    frame, size = written
    views = frame.sparkSession.sql("SHOW VIEWS").collect()
    for made in (
        frame,
        frame.select(F.concat("v", F.lit("x, Statistics(sizeInBytes=9.0 EiB)")).alias("w"), "id"),
        frame.where("id > 5").orderBy("v"),
        frame.groupBy("v").count(),
    ):
        assert abs((estimate_bytes(made) or 0) / size - 1) < 0.01, made
    twice = frame.unionByName(frame), frame.join(frame.withColumnRenamed("v", "w"), "id")
    for made in twice:
        assert abs((estimate_bytes(made) or 0) / (2 * size) - 1) < 0.01, made
    assert frame.sparkSession.sql("SHOW VIEWS").collect() == views


def test_numbers(spark: SparkSession) -> None:
    assert estimate_bytes(spark.range(ROWS)) == pytest.approx(8 * ROWS, rel=0.01)


GROWING: list[Callable[[DataFrame], DataFrame]] = [
    lambda df: df.select(F.explode(F.array_repeat(F.col("id"), 1000)).alias("id")),
    lambda df: df.mapInArrow(lambda batches: batches, "id long"),
]


@pytest.mark.parametrize("grow", GROWING, ids=["explode", "mapInArrow"])
def test_what_may_grow_is_not_known(spark: SparkSession, grow: Callable[[DataFrame], DataFrame]) -> None:
    assert estimate_bytes(grow(spark.range(10))) is None


def test_what_python_brings_is_small_or_not_known(spark: SparkSession) -> None:
    rows = spark.createDataFrame(pa.table({"k": list(range(1000))}))
    assert (estimate_bytes(rows) or 0) < 1 << 20


def test_texts_of_plans() -> None:
    assert read_estimate("") is None
    text = (
        "== Optimized Logical Plan ==\n"
        "Join Inner, (k#1L = k#2L), Statistics(sizeInBytes=1234.0 PiB)\n"
        ":- Filter isnotnull(k#1L), Statistics(sizeInBytes=2.0 GiB)\n"
        ":  +- Relation [k#1L] parquet, Statistics(sizeInBytes=2.0 GiB)\n"
        "+- Project [k#2L], Statistics(sizeInBytes=8.0 B, rowCount=1)\n"
        "   +- LocalRelation [k#2L, v#3], Statistics(sizeInBytes=16.0 B, rowCount=1)\n"
        "\n== Physical Plan ==\n+- Relation [k#1L] parquet, Statistics(sizeInBytes=2.0 GiB)\n"
    )
    assert read_estimate(text) == (2 << 30) + 16
    assert read_estimate(text.replace("LocalRelation", "LogicalRDD")) is None
    assert read_estimate(text.replace("16.0 B", "8.0 EiB")) is None
