"""Constants have the same values as in Spark; doubtful ones are left to Spark."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from strandline.sql.evaluate.literals import NotConstant, literal
from strandline.sql.syntax import parse_expression
from tests.sql.translated import for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc

CONSTANTS: list[tuple[str, object]] = [
    ("1", 1),
    ("-1", -1),
    ("+1", 1),
    ("- -1", 1),
    ("-(1)", -1),
    ("((2))", 2),
    ("-9223372036854775808", -(2**63)),
    ("123456789012345678901234567890", Decimal("123456789012345678901234567890")),
    ("1.50", Decimal("1.50")),
    ("-.5", Decimal("-0.5")),
    ("1e3", 1000.0),
    ("-1.5E-2", -0.015),
    ("-9223372036854775808", -(2**63)),
    ("9223372036854775808", Decimal(2**63)),
    ("'a''b\\n'", "a'b\n"),
    ('"x"', "x"),
    ("TRUE", True),
    ("false", False),
    ("NULL", None),
    ("X'00ff'", b"\x00\xff"),
    ("DATE '2026-01-31'", date(2026, 1, 31)),
    ("date'2026-01-31'", date(2026, 1, 31)),
    ("TIMESTAMP '2026-01-31 12:00:00.5'", datetime(2026, 1, 31, 12, 0, 0, 500000, UTC)),
    ("TIMESTAMP '2026-01-31T12:00:00+02:00'", datetime(2026, 1, 31, 10, 0, 0, 0, UTC)),
    ("Date('2026-01-31')", date(2026, 1, 31)),
    ("Timestamp('2026-01-31T12:00:00Z')", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("CAST('5' AS int)", 5),
    ("CAST('-5' AS bigint)", -5),
    ("CAST(5 AS string)", "5"),
    ("CAST('x' AS binary)", b"x"),
    ("CAST('2026-01-31' AS date)", date(2026, 1, 31)),
    ("CAST('2026-01-31 00:00:00' AS timestamp)", datetime(2026, 1, 31, tzinfo=UTC)),
    ("CAST(DATE '2026-01-31' AS timestamp)", datetime(2026, 1, 31, tzinfo=UTC)),
    ("CAST(1.5 AS decimal(10,2))", Decimal("1.50")),
    ("CAST('true' AS boolean)", True),
    ("CAST(1 AS double)", 1.0),
    ("7::smallint", 7),
    ("5L", 5),
    ("1.5BD", Decimal("1.5")),
    ("2D", 2.0),
]
YQL: list[tuple[str, object]] = [
    ("'abc'u", "abc"),
    ("1ul", 1),
    ("-2t", -2),
    ("Datetime('2026-01-31T12:00:00Z')", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("CAST('x' AS Utf8)", "x"),
    ("CAST(7 AS Uint32)", 7),
    ("CAST('x' AS Bytes)", b"x"),
]


@pytest.mark.parametrize(("text", "expected"), CONSTANTS + YQL)
def test_constants(text: str, expected: object) -> None:
    found = literal(parse_expression(text))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "k",
        "`k`",
        "-k",
        "1 + 1",
        "'a' 'b'",
        "1e400",
        "X'zz'",
        "now()",
        "current_date",
        "CAST('a' AS int)",
        "CAST(300 AS tinyint)",
        "CAST(1.5 AS int)",
        "CAST(NULL AS int)",
        "CAST(7 AS Uint64)",
        "CAST(k AS int)",
        "TRY_CAST('5' AS int)",
        "CAST('5' AS decimal)",
        "CAST(1 AS float)",
        "CAST(TRUE AS string)",
        "DATE '2026-1-1'",
        "TIMESTAMP_NTZ '2026-01-01'",
        "-'a'",
        "-TRUE",
        "(SELECT 1)",
        "CAST(1.555 AS decimal(10,2))",
        "INTERVAL 1 DAY",
        "ARRAY(1)",
        "(1, 2)",
    ],
)
def test_everything_else_is_left_to_spark(text: str) -> None:
    with pytest.raises(NotConstant):
        literal(parse_expression(text))


def test_spark_agrees(spark: SparkSession) -> None:
    listed = ", ".join(
        f"{for_spark(parse_expression(text))} AS c{i}" for i, (text, _) in enumerate(CONSTANTS + YQL)
    )
    row = spark.sql(f"SELECT {listed}").collect()[0]
    for (text, expected), found in zip(CONSTANTS + YQL, row, strict=True):
        if isinstance(expected, datetime):
            found = found.astimezone(UTC)
        if isinstance(found, bytearray):
            found = bytes(found)
        assert found == expected, text
