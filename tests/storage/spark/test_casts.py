"""Spark accepts and refuses the same values for a column as Python."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from strandline.errors import InvalidArgument
from strandline.storage.spark import casts as module
from strandline.storage.spark.casts import spark_cast
from strandline.storage.spark.failures import spark_errors
from strandline.types import parse_type
from strandline.types.arrays import array_from_user, column_to_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc

SOURCES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-128, -1, 0, 1, 127, None]),
    "smallint": (pa.int16(), [-(2**15), -129, -128, 0, 127, 128, 255, 256, 2**15 - 1, None]),
    "int": (pa.int32(), [-(2**31), -(2**15) - 1, -1, 0, 65535, 65536, 2**24, 2**24 + 1, 2**31 - 1, None]),
    "bigint": (
        pa.int64(),
        [
            -(2**63),
            -(2**31) - 1,
            -1,
            0,
            999,
            1000,
            2**32 - 1,
            2**32,
            2**53,
            2**53 + 1,
            2**60,
            2**63 - 1,
            None,
        ],
    ),
    "decimal(20,0)": (
        pa.decimal128(20, 0),
        [Decimal(n) for n in (-1, 0, 255, 2**63, 2**64 - 1, 2**64, 10**20 - 1)] + [None],
    ),
    "decimal(10,3)": (
        pa.decimal128(10, 3),
        [
            Decimal(t)
            for t in ("0.000", "1.000", "-1.000", "1.500", "0.001", "999.990", "999.995", "127.500", "0.100")
        ]
        + [None],
    ),
    "decimal(38,37)": (
        pa.decimal128(38, 37),
        [Decimal("1"), Decimal("1E-37"), Decimal(f"9.{'9' * 37}"), Decimal("0.1")],
    ),
    "decimal(38,0)": (
        pa.decimal128(38, 0),
        [Decimal(n) for n in (1, -(10**38) + 1, 10**38 - 1, 2**63, 2**127 // 10**3)],
    ),
    "decimal(30,28)": (
        pa.decimal128(30, 28),
        [Decimal(1) + Decimal(2) ** -24, Decimal("1.0000000596046447753906250001")],
    ),
    "float": (pa.float32(), [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), None]),
    "double": (
        pa.float64(),
        [0.0, 0.1, 1e38, 3.5e38, -1e300, 1e-300, float("nan"), float("inf"), -float("inf"), None],
    ),
    "string": (pa.string(), ["", "ü", "1", "true", "[1]", "{bad", "NaN", '"\\ud800"', None]),
    "binary": (pa.binary(), [b"", b"\xff", None]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(2024, 1, 31), None]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(2024, 3, 31, 2, 30, 0, 1, UTC),
            datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        ],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [
            datetime(1, 1, 1),
            datetime(2024, 3, 31, 2, 30),
            datetime(2024, 10, 27, 2, 30, 0, 1),
            datetime(9999, 12, 31),
            None,
        ],
    ),
}
TARGETS = (
    *("Bool", "Int8", "Int16", "Int32", "Int64", "Uint8", "Uint16", "Uint32", "Uint64", "Float", "Double"),
    *(
        "Decimal(5,2)",
        "Decimal(20,0)",
        "Decimal(38,37)",
        "Decimal(38,0)",
        "String",
        "Utf8",
        "Json",
        "Date",
        "Datetime",
        "Timestamp",
    ),
)


def verdict(target: str, source: pa.DataType, value: Any) -> Any:
    """Return the value converted by Arrow; the exception's class if it is refused."""
    type_ = parse_type(target)
    try:
        return column_to_python(type_, array_from_user(type_, pa.array([value], source), "c"))[0]
    except InvalidArgument:
        return InvalidArgument


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_spark_judges_as_arrow_does(
    spark: SparkSession, tmp_path: Path, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Return NULL for a refused value instead of raising, so that one job answers for all values.
    monkeypatch.setattr(
        module, "_refuse_lossy_cast", lambda type_, col, converted, *rest, **options: converted
    )
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    for source, (arrow, values) in SOURCES.items():
        if zone != "UTC" and not source.startswith("timestamp"):
            continue  # The zone matters only to timestamps.
        path = str(tmp_path / f"{source}.parquet")
        pq.write_table(pa.table({"c": pa.array(values, arrow)}), path)
        given = session.read.schema(f"c {source}").parquet(path)
        casts, expected = [], []
        for target in TARGETS:
            verdicts = [verdict(target, arrow, value) for value in values]
            try:
                cast = spark_cast(parse_type(target), F.col("c"), given.schema["c"].dataType, "c")
            except InvalidArgument:
                kept = [v for value, v in zip(values, verdicts, strict=True) if value is not None]
                assert all(v is InvalidArgument for v in kept), (source, target)
                continue
            casts.append(cast.alias(target))
            expected.append([None if v is InvalidArgument else v for v in verdicts])
        found = given.select(*casts).toArrow()
        for target, wanted in zip(found.column_names, expected, strict=True):
            type_ = parse_type(target)
            assert found[target].type == type_.arrow, (source, target)
            assert repr(column_to_python(type_, found[target])) == repr(wanted), (source, target)


@pytest.mark.parametrize(
    ("target", "expression", "shown"),
    [
        ("Uint8", "300", "300"),
        ("Int64", "1.5", "1.5"),
        ("Uint64", "-1", "-1"),
        ("Decimal(5,2)", "1.005", "1.005"),
        ("Float", "1e39D", "1.0E39"),
        ("Double", "9007199254740993L", "9007199254740993"),
        ("Utf8", "cast(x'61FF' as string)", "61FF"),
        ("Json", "'[NaN]'", "[NaN]"),
        ("Json", f"'{'[' * 200}'", "[" * 60),
        ("Json", "cast(x'FF' as string)", "FF"),
        ("Date", "date_add(date'9999-12-31', 1)", "+10000-01-01"),
        ("Datetime", "timestamp'2024-01-31 00:00:00.5Z'", "2024-01-31 00:00:00.5+00:00"),
        ("Timestamp", "timestamp_micros(253402300800000000L)", "+10000-01-01 00:00:00+00:00"),
        ("Date", "'2024-1-31'", "2024-1-31"),
        ("Timestamp", "'2024-01-31 12:00:00 Europe/Berlin'", "2024-01-31 12:00:00 Europe/Berlin"),
    ],
)
def test_a_refusal_by_spark_is_an_invalid_argument(
    spark: SparkSession, target: str, expression: str, shown: str
) -> None:
    frame = spark.sql(f"SELECT {expression} AS c FROM range(1)")
    cast = spark_cast(parse_type(target), frame["c"], frame.schema["c"].dataType, "price")
    with pytest.raises(InvalidArgument) as caught, spark_errors():
        frame.select(cast).collect()
    assert caught.value.message == f"column price of type {target} cannot hold the value {shown}"
    assert "[" not in caught.value.hint


@pytest.mark.parametrize(
    ("target", "expression"), [("Int32", "1D"), ("Utf8", "x'00'"), ("Date", "1"), ("Bool", "1")]
)
def test_impossible_pairs_are_refused_at_once(spark: SparkSession, target: str, expression: str) -> None:
    frame = spark.sql(f"SELECT {expression} AS c")
    with pytest.raises(InvalidArgument, match=f"column price of type {target} cannot be made from Spark's"):
        spark_cast(parse_type(target), frame["c"], frame.schema["c"].dataType, "price")


def test_null_fits_every_type(spark: SparkSession) -> None:
    frame = spark.sql("SELECT NULL AS c")
    kind = frame.schema["c"].dataType
    row = frame.select(*(spark_cast(parse_type(t), frame["c"], kind, "c").alias(t) for t in TARGETS)).first()
    assert row == (None,) * len(TARGETS)


def test_a_collation_is_left_behind(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'A' COLLATE UTF8_LCASE AS c")
    cast = frame.select(
        spark_cast(parse_type("Utf8"), frame["c"], frame.schema["c"].dataType, "c").alias("c")
    )
    assert cast.schema["c"].dataType.simpleString() == "string"
    assert cast.collect() == [("A",)]
