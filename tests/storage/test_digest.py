from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from strandline.model import Digest, TableSchema
from strandline.storage.digest import (
    BLOCK,
    FEW,
    LONG,
    digest_of,
    row_digests,
    row_hashes,
    to_signed,
    to_unsigned,
)
from strandline.types import Type, parse_type
from strandline.types.arrays import python_to_array
from tests.values import TYPE_NAMES, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc


def every_type(key: tuple[str, ...] = ("k1", "k2")) -> TableSchema:
    columns = [("k1", parse_type("Uint64"), False), ("k2", parse_type("Utf8"), False)]
    columns += [(f"c{i}", parse_type(name), False) for i, name in enumerate(TYPE_NAMES)]
    return TableSchema.of(columns, key)


def arrays(schema: TableSchema, rows: list[tuple[Any, ...]]) -> dict[str, pa.Array]:
    return {
        column.name: python_to_array(column.type, [row[i] for row in rows])
        for i, column in enumerate(schema.columns)
    }


def generated(schema: TableSchema, count: int) -> list[tuple[Any, ...]]:
    """Generate many rows with Hypothesis, for a single Spark job: one job per row would take minutes."""
    rows: list[tuple[Any, ...]] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*(st.none() | values_of(column.type) for column in schema.columns)))
    def collect(row: tuple[Any, ...]) -> None:
        rows.append(row)

    collect()
    return rows


def hashes(schema: TableSchema, columns: Mapping[str, pa.Array]) -> list[int]:
    high, low = row_hashes(schema, columns)
    return [(h << 64) | w for h, w in zip(high.tolist(), low.tolist(), strict=True)]


def hash_of(type_: Type, value: Any) -> int:
    schema = TableSchema.of([("k", parse_type("Int32"), True), ("v", type_, False)], ("k",))
    return hashes(schema, arrays(schema, [(7, value)]))[0]


def test_spark_and_arrow_agree_on_values_of_every_type(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    from strandline.storage.spark.hashes import digest_from_sums, digest_sums, hash_columns

    schema = every_type()
    columns = arrays(schema, generated(schema, 400))
    table = pa.table({**columns, "row": pa.array(range(len(columns["k1"])))})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=64)
    ddl = ", ".join(["row bigint", *(f"{column.name} {column.type.spark}" for column in schema.columns)])
    frame = spark.read.schema(ddl).parquet(str(tmp_path / "rows.parquet"))
    frame = frame.select(
        "row",
        *(part.alias(name) for part, name in zip(hash_columns(schema, F.col), ("hi", "lo"), strict=True)),
    )

    high, low = row_hashes(schema, columns)
    expected = list(zip(range(len(high)), to_signed(high).tolist(), to_signed(low).tolist(), strict=True))
    assert [tuple(row) for row in frame.orderBy("row").collect()] == expected

    even = F.col("row") % 2 == 0
    sums = frame.agg(
        *digest_sums(F.col("hi"), F.col("lo")),
        *digest_sums(F.col("hi"), F.col("lo"), even, "even"),
        *digest_sums(F.when(even, F.col("hi")), F.when(even, F.col("lo")), prefix="was"),
        *digest_sums(F.col("hi"), F.col("lo"), F.lit(False), "none"),
    ).first()
    assert sums is not None
    assert digest_from_sums(sums) == digest_of(high, low)
    assert digest_from_sums(sums, "even") == digest_of(high[::2], low[::2])
    assert digest_from_sums(sums, "was") == digest_of(high[::2], low[::2])
    assert digest_from_sums(sums, "none") == Digest()


GOLDEN = [
    ("Bool", True, "d1f52f26faaa24e804371ff249609b5c"),
    ("Int8", -1, "1f1f4b66d015a40151f4afbe1aaaf6f0"),
    ("Int16", -(2**15), "589403f627f44b99e6f8d4ab890ce3a5"),
    ("Int32", 2**31 - 1, "660135a3f9a9c946ee214865c999fc54"),
    ("Int64", -(2**63), "ea00ea2f5f254e914a7cac77b8f07d6b"),
    ("Uint8", 255, "b663eff87f4fb95208668bcf507f5d99"),
    ("Uint16", 2**16 - 1, "079590c8c3f184809b48f5955a47f265"),
    ("Uint32", 2**32 - 1, "a4fa83c2b916e39948a4e04f356b5dd1"),
    ("Uint64", 2**64 - 1, "8b3742bc34e5c94dd20fed2d91e7f797"),
    ("Uint64", 0, "a216e687a38b7118e6c1941078a45c0b"),
    ("Float", 1.5, "75b2b64b5b3efa33ada85a553c61f2d5"),
    ("Double", -1.5, "c59ce181ec981ad5cce4ff141ad6cf6f"),
    ("Double", float("nan"), "8f9587dd769df30d56edbcd38a89fe8f"),
    ("Decimal(18,2)", Decimal("-1.23"), "cf293fedfa0204678cfd22ed9f9f9a96"),
    ("Decimal(22,9)", Decimal("-1.230000000"), "65823e3860d7564e8d00655e0a5d2e1f"),
    ("String", b"\x00\xff", "70260376544502938bfbcb4d930be01b"),
    ("Utf8", "", "c1c2e8bb7960e7f6046525d7a7f6613b"),
    ("Utf8", "a text of more than thirty-two bytes: ü", "c4ca9bed79a7d6d0be1760153bfcae5a"),
    ("Json", "{}", "d4b90ab300ced10dd07d111fa9c9beb8"),
    ("Date", date(1, 1, 1), "5bb59ba6162abaa431a4eff3f35c3731"),
    ("Datetime", datetime(2024, 1, 31, 12, tzinfo=UTC), "a74c2da38877abd67df4b0fc03a4291f"),
    ("Timestamp", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "80abd9337f3fe247d8542b3b8b7be698"),
    ("Utf8", None, "2e8987c6a9c0ffb12fbcc4b7e7b489b4"),
]


@pytest.mark.parametrize(("name", "value", "expected"), GOLDEN)
def test_hashes_never_change(name: str, value: Any, expected: str) -> None:
    assert f"{hash_of(parse_type(name), value):032x}" == expected


@pytest.mark.slow
def test_many_rows_have_the_hashes_that_each_has_alone() -> None:
    schema = every_type()
    columns = arrays(schema, generated(schema, 2 * FEW))
    alone = [{name: column.slice(i, 1) for name, column in columns.items()} for i in range(2 * FEW)]
    assert hashes(schema, columns) == [found for row in alone for found in hashes(schema, row)]


TEXTS: dict[str, list[str | None]] = {
    "of one length": [f"{i:055}" for i in range(FEW)],
    "of one length, a multiple of eight": [f"{i:064}" for i in range(FEW)],
    "empty": [""] * FEW,
    "of every length": ["ab" * i for i in range(LONG)],
    "short, behind a long one": ["x" * LONG * 2, *(f"{i:07}" for i in range(FEW))],
    "with nulls": [None if i % 3 == 0 else "é" * (i % 50) for i in range(2 * FEW)],
    "in two blocks": [str(i) for i in range(BLOCK + FEW)],
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_hashed_together_as_each_is_alone(name: str) -> None:
    schema = TableSchema.of([("k", parse_type("Int32"), True), ("v", parse_type("Utf8"), False)], ("k",))
    columns = arrays(schema, list(enumerate(["before", *TEXTS[name]])))
    # An array may be a slice of another one.
    columns = {of: column.slice(1) for of, column in columns.items()}
    some = sorted({*range(0, len(TEXTS[name]), 1 + len(TEXTS[name]) // 300), len(TEXTS[name]) - 1})
    found = hashes(schema, columns)
    for i in some:
        assert hashes(schema, {of: column.slice(i, 1) for of, column in columns.items()}) == [found[i]], i


def test_a_table_and_its_indexes_are_hashed_in_one_go() -> None:
    schema = TableSchema.of([("k", parse_type("Int32"), True), ("v", parse_type("Utf8"), False)], ("k",))
    index = TableSchema.of([("v", parse_type("Utf8"), False), ("k", parse_type("Int32"), True)], ("v", "k"))
    columns = arrays(schema, [(i, None if i % 5 == 0 else f"v{i}") for i in range(BLOCK + 1)])
    each = [digest_of(*row_hashes(of, columns)) for of in (schema, index)]
    assert row_digests([schema, index], columns) == each
    assert each[0] != each[1]


def test_zeros_are_one_and_nans_are_one() -> None:
    for name, bits, kind in (("Float", np.uint32, np.float32), ("Double", np.uint64, np.float64)):
        type_ = parse_type(name)
        assert hash_of(type_, -0.0) == hash_of(type_, 0.0) != hash_of(type_, 1.0)
        odd_nan = np.array([np.iinfo(bits).max], bits).view(kind)
        schema = TableSchema.of([("k", parse_type("Int32"), True), ("v", type_, False)], ("k",))
        found = hashes(schema, {"k": pa.array([7], pa.int32()), "v": pa.array(odd_nan)})
        assert found == [hash_of(type_, float("nan"))]


def test_a_column_that_is_null_adds_nothing() -> None:
    schema = TableSchema.of([("k", parse_type("Int32"), True), ("v", parse_type("Utf8"), False)], ("k",))
    columns = arrays(schema, [(1, "a"), (2, None)])
    wider = schema.with_column("w", parse_type("Int64"))
    assert hashes(wider, columns) == hashes(schema, columns)
    assert hashes(wider, {**columns, "w": pa.nulls(2, pa.int64())}) == hashes(schema, columns)
    assert hashes(wider, {**columns, "w": pa.array([None, 0], pa.int64())})[0] == hashes(schema, columns)[0]
    assert hashes(wider, {**columns, "w": pa.array([None, 0], pa.int64())})[1] != hashes(schema, columns)[1]


def test_equal_values_in_other_columns_hash_differently() -> None:
    text = parse_type("Utf8")
    schema = TableSchema.of([(name, text, False) for name in ("a", "b", "v", "w")], ("a", "b"))
    rows = [
        ("x", None, None, None),
        (None, "x", None, None),
        (None, None, "x", None),
        (None, None, None, "x"),
    ]
    rows += [("xy", "", None, None), ("x", "y", None, None), ("", "xy", None, None), (None,) * 4]
    assert len(set(hashes(schema, arrays(schema, rows)))) == len(rows)


def test_key_order_counts_and_column_order_does_not() -> None:
    number = parse_type("Int64")
    schema = TableSchema.of([(name, number, False) for name in ("a", "b", "v", "w")], ("a", "b"))
    columns = arrays(schema, [(1, 2, 3, 4)])
    turned = TableSchema(tuple(reversed(schema.columns)), schema.key)
    assert hashes(turned, columns) == hashes(schema, columns)
    assert hashes(TableSchema(schema.columns, ("b", "a")), columns) != hashes(schema, columns)


def test_chunks_and_slices_hash_as_their_rows() -> None:
    schema = every_type()
    whole = arrays(schema, generated(schema, 20))
    count = len(whole["k1"])
    expected = hashes(schema, whole)
    assert hashes(schema, {name: array[3:] for name, array in whole.items()}) == expected[3:]
    chunked = {name: pa.chunked_array([array[:5], array[5:]]) for name, array in whole.items()}
    assert hashes(schema, chunked) == expected
    assert hashes(schema, {name: array[:0] for name, array in whole.items()}) == []
    order = list(reversed(range(count)))
    assert digest_of(
        *row_hashes(schema, {name: array.take(pa.array(order)) for name, array in whole.items()})
    ) == Digest(count, sum(expected) % 2**128)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=20))
def test_a_digest_is_the_sum_of_the_hashes(halves: list[tuple[int, int]]) -> None:
    high, low = (np.array([pair[i] for pair in halves], np.uint64) for i in (0, 1))
    assert digest_of(high, low) == Digest(len(halves), sum((h << 64) + w for h, w in halves) % 2**128)
    assert to_unsigned(to_signed(high)).tolist() == high.tolist()


def test_a_missing_key_column_is_an_error() -> None:
    schema = TableSchema.of([(name, parse_type("Int32"), False) for name in ("a", "b")], ("a", "b"))
    with pytest.raises(KeyError):
        row_hashes(schema, {"a": pa.array([1], pa.int32())})
