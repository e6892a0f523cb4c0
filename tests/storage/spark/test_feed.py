"""A stream on Spark has the same columns, types and rows as in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from strandline.model import Chain, TableSchema
from strandline.storage.arrow.feed import feed as feed_here
from strandline.storage.feed import MODES, STATEFUL_MODES, Feed
from strandline.storage.spark.feed import feed as feed_there
from strandline.types import parse_type
from tests.storage.spark.tables import ALL_TYPES, SMALL, Table, comparable, random_table


def feed_of(table: Table, mode: str, after: int, upto: int) -> Feed:
    logs = tuple(s for s in table.segments if s.upto > after and s.after < upto)
    return Feed(
        schema=table.schema,
        mode=mode,
        after=after,
        upto=upto,
        logs=logs,
        before=Chain(table.segments, after) if mode in STATEFUL_MODES else None,
    )


def listed(df: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows through Arrow, which has no local time zone."""
    rows = [tuple(comparable(v) for v in row.values()) for row in df.toArrow().to_pylist()]
    return sorted(rows, key=repr)


def same(spark: SparkSession, table: Table, feed: Feed) -> list[tuple[Any, ...]]:
    on_spark = feed_there(spark, table.cache, feed)
    local = spark.createDataFrame(feed_here(table.cache, feed))
    assert [(f.name, f.dataType.simpleString()) for f in on_spark.schema] == [
        (f.name, f.dataType.simpleString()) for f in local.schema
    ]
    found = listed(on_spark)
    assert found == listed(local)
    return found


@pytest.mark.parametrize("mode", MODES)
def test_all_types_and_all_kinds_of_changes(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    table = random_table(tmp_path, ALL_TYPES, 5)
    assert same(spark, table, feed_of(table, mode, 1, table.step))
    same(spark, table, feed_of(table, mode, 0, 3))


@pytest.mark.parametrize("mode", MODES)
def test_from_the_very_beginning_and_an_empty_window(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    table = Table.new(tmp_path, SMALL)
    assert same(spark, table, feed_of(table, mode, 0, 0)) == []
    for i in range(3):
        table.write(
            "REPLACE" if i == 1 else "UPSERT",
            [(1, f"v{i}", None, float("nan")), (None, "same", 7, -0.0)],
            inline=i == 2,
        )
    table.write("DELETE ON", [(1,), (99,)], ["k"])
    assert len(same(spark, table, feed_of(table, mode, 0, 4))) == 8
    assert same(spark, table, feed_of(table, mode, 4, 4)) == []


@pytest.mark.parametrize("mode", MODES)
def test_names_that_hold_anything(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    kinds = [
        ("a.b", "Int32"),
        ("st`ep", "Utf8"),
        ("Step", "Utf8"),
        ("op", "Utf8"),
        ("old_op", "Utf8"),
        ("changed", "Bool"),
        ("v 0", "Utf8"),
    ]
    table = Table.new(
        tmp_path, TableSchema.of([(name, parse_type(kind), False) for name, kind in kinds], ("a.b",))
    )
    table.write("UPSERT", [(1, "x", "y", "z", None, True, "w"), (2, None, None, None, None, None, None)])
    table.write(
        "UPSERT",
        [(1, "x", "Y", None, "o", True, "w"), (2, None, None, None, None, False, None)],
        inline=False,
    )
    assert len(same(spark, table, feed_of(table, mode, 0, 2))) == 4


@pytest.mark.parametrize("mode", MODES)
def test_a_table_without_value_columns(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    table = Table.new(tmp_path, TableSchema.of([("k", parse_type("Utf8"), False)], ("k",)))
    table.write("UPSERT", [("a",), (None,)])
    table.write("DELETE ON", [("a",)])
    table.write("UPSERT", [("a",)])
    assert len(same(spark, table, feed_of(table, mode, 0, 3))) == 4
