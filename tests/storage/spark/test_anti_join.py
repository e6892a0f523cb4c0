"""The anti-join by keys of every type."""

from __future__ import annotations

import random
import re
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.storage.keys import keys_of
from strandline.storage.spark.anti_join import without
from strandline.storage.spark.rows import local
from strandline.types import parse_type
from tests.storage.examples import schema
from tests.storage.rowwise import table_of

EDGES = [-(2**63), -(2**31) - 1, -65, -64, -63, -1, 0, 1, 62, 63, 64, 65, 127, 128, 2**31, 2**63 - 1]


def left(
    spark: SparkSession, types: str, rows: list[tuple[Any, ...]], gone: list[tuple[Any, ...]]
) -> set[tuple[Any, ...]]:
    names = "abc"[: len(rows[0])]
    table = schema(
        *(f"{name} {type_}" for name, type_ in zip(names, types.split(), strict=True)), key=" ".join(names)
    )
    frame = local(spark, table, table_of(table, table.names, rows))
    kept = without(frame, table, table_of(table, table.key, gone)).toArrow()
    return set(keys_of(table, kept.select(list(table.key)).cast(table_of(table, table.names, []).schema)))


@pytest.mark.parametrize("type_", ["Int64", "Int32", "Int16", "Int8", "Uint8", "Uint32"])
def test_whole_numbers_on_both_sides_of_every_edge(spark: SparkSession, type_: str) -> None:
    low, high = parse_type(type_).min, parse_type(type_).max
    rows = [(edge,) for edge in EDGES if low <= edge <= high] + [(None,)]
    for seed in range(3):
        gone = random.Random(seed).sample(rows[:-1], len(rows) // 2)
        assert left(spark, type_, rows, gone) == set(rows) - set(gone)


def test_nothing_is_left_out_for_no_key(spark: SparkSession) -> None:
    assert left(spark, "Int64", [(1,), (None,)], []) == {(1,), (None,)}


def test_null_is_a_key_like_any_other(spark: SparkSession) -> None:
    assert left(spark, "Int64", [(1,), (2,), (None,)], [(None,), (2,)]) == {(1,)}


def test_keys_of_other_types_and_of_several_columns(spark: SparkSession) -> None:
    assert left(spark, "Utf8", [("a",), ("b",), (None,)], [("b",)]) == {("a",), (None,)}
    assert left(
        spark, "Int64 Utf8", [(1, "a"), (1, "b"), (None, "a")], [(1, "b"), (None, "a"), (2, "a")]
    ) == {(1, "a")}


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("Utf8", ["", "a", "A", "a ", "ä", "x" * 300]),
        ("String", [b"", b"\x00", b"\x00\x00", b"a", b"\xff"]),
        ("Uint64", [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
        ("Decimal(22,9)", [Decimal("-1.5"), Decimal(0), Decimal("0.000000001"), Decimal("9999999999999")]),
        ("Date", [date(1960, 1, 1), date(1970, 1, 1), date(2026, 1, 1)]),
        ("Bool", [False, True]),
    ],
)
def test_keys_of_every_other_type(spark: SparkSession, type_: str, values: list[Any]) -> None:
    rows = [(value,) for value in values] + [(None,)]
    for gone in (rows[::2], rows[1::2], rows[-1:]):
        assert left(spark, type_, rows, gone) == set(rows) - set(gone)
    pairs = [(a, b) for a in (*values[:2], None) for b in (1, None)]
    for some in (pairs[::2], pairs[-1:]):
        assert left(spark, f"{type_} Int64", pairs, some) == set(pairs) - set(some)


def test_spark_looks_up_the_hash_of_a_key(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    table = schema("a Utf8", "b Int64 NOT NULL", key="a b")
    rows = local(spark, table, table_of(table, table.names, [("x", 1), (None, 2)]))
    without(rows, table, table_of(table, table.key, [("x", 1)])).explain()
    plan = capsys.readouterr().out
    (join,) = [line for line in plan.splitlines() if "Join" in line]
    assert re.search(r"BroadcastHashJoin \[xxhash64\([^\]]*\)\], \[xxhash64\([^\]]*\)\], LeftAnti", join), (
        plan
    )
