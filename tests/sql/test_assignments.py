"""SET expressions, and their agreement with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strandline.errors import InvalidArgument
from strandline.sql.evaluate.assignments import assign
from strandline.sql.syntax import parse_expression
from strandline.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    name: parse_type(type_)
    for name, type_ in {"a": "Int8", "i": "Int32", "j": "Int64", "u": "Uint64", "s": "Utf8"}.items()
}
ROW = {"a": 100, "i": 2**31 - 2, "j": 2**63 - 2, "u": 2**64 - 1, "s": "x"}
COMPUTED = [
    ("1", 1),
    ("NULL", None),
    ("'y'", "y"),
    ("s", "x"),
    ("t.s", "x"),
    ("a + 1", 101),
    ("a * 100", 10000),
    ("1 - a", -99),
    ("a - 1", 99),
    ("i + 1", 2**31 - 1),
    ("i + 10L", 2**31 + 8),
    ("i + 2147483648", 2**32 - 2),
    ("i + -1", 2**31 - 3),
    ("j + 1", 2**63 - 1),
    ("u + 1", 2**64),
    ("3 * u", 3 * (2**64 - 1)),
]


@pytest.mark.parametrize(("text", "expected"), COMPUTED)
def test_simple_assignments(text: str, expected: object) -> None:
    compute = assign(parse_expression(text), COLUMNS, "t")
    assert compute is not None
    assert compute(ROW) == expected


def test_null_stays_null() -> None:
    compute = assign(parse_expression("i + 1"), COLUMNS)
    assert compute is not None
    assert compute({"i": None}) is None


@pytest.mark.parametrize("text", ["i + 2", "i * 2", "j + 2", "j * 2", "-9 * j"])
def test_an_overflow_is_an_error_as_in_spark(text: str) -> None:
    compute = assign(parse_expression(text), COLUMNS)
    assert compute is not None
    with pytest.raises(InvalidArgument, match="overflows"):
        compute(ROW)


@pytest.mark.parametrize(
    "text",
    [
        "i / 2",
        "i + j",
        "i + 1.5",
        "s + 1",
        "i + 1 + 1",
        "upper(s)",
        "missing",
        "x.i",
        "i + 1S",
        "DEFAULT",
        "u + 1L",
        "(SELECT 1)",
        "-i",
    ],
)
def test_what_is_beyond_is_left_to_spark(text: str) -> None:
    assert assign(parse_expression(text), COLUMNS, "t") is None


def test_spark_agrees(spark: SparkSession) -> None:
    source = ", ".join(f"CAST({value!r} AS {COLUMNS[name].spark}) AS {name}" for name, value in ROW.items())
    listed = ", ".join(f"({text})" for text, _ in COMPUTED)
    [found] = spark.sql(f"SELECT {listed} FROM (SELECT {source}) AS t").collect()
    assert list(found) == [expected for _, expected in COMPUTED]
