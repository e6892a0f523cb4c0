"""Conditions: three-valued logic, types, and agreement with Spark on every row."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.sql.evaluate.predicates import predicate
from strandline.sql.syntax import parse_expression
from strandline.types import parse_type
from tests.sql.translated import for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc
COLUMNS = {
    name: parse_type(type_)
    for name, type_ in {
        "i": "Int32",
        "j": "Int64",
        "u": "Uint64",
        "d": "Decimal(10,2)",
        "f": "Float",
        "x": "Double",
        "y": "Double",
        "s": "Utf8",
        "b": "String",
        "o": "Bool",
        "t": "Date",
        "m": "Timestamp",
        "a b": "Int32",
    }.items()
}
NAMES = list(COLUMNS)
NAN = float("nan")
TENTH = 0.10000000149011612
"""The nearest 32-bit float to 0.1."""
ROWS: list[tuple[Any, ...]] = [
    (1, 1, 1, Decimal("1.00"), 1.5, 0.1, 0.1, "a", b"a", True, date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), 1),
    (2, 1, 2**64 - 1, Decimal("1.50"), TENTH, NAN, NAN, "B", b"\xff", False, date(2025, 12, 31), datetime(2026, 1, 1, 1, tzinfo=UTC), 2),
    (None,) * 13,
    (-5, 2**62, 0, Decimal("-0.01"), NAN, -0.0, 0.0, "é", b"", None, date(1, 1, 1), datetime(9999, 12, 31, tzinfo=UTC), None),
]  # fmt: skip

CONDITIONS = [
    "i = 1",
    "i == 1",
    "i != 1",
    "i <> 1",
    "i < 2",
    "i <= 1.5",
    "2 > i",
    "1.0 = i",
    "i > -1",
    "i >= - 5",
    "i <=> 1",
    "i <=> NULL",
    "i IS NOT DISTINCT FROM 1",
    "i IS DISTINCT FROM NULL",
    "i = NULL",
    "NOT i = NULL",
    "i = j",
    "i < j",
    "i <=> j",
    "j = u",
    "u = 18446744073709551615",
    "u > 9223372036854775807",
    "d = 1.5",
    "d = 1.50",
    "d > 1",
    "d < 0",
    "f = 1.5",
    "f = 0.1",
    "f > 1",
    "x = 0.1",
    "x > 1e300",
    "x = 0",
    "x = y",
    "x <=> y",
    "x < y",
    "f > 0.5",
    "s = 'a'",
    "s > 'Z'",
    's <= "a"',
    "s IN ('a', 'B', NULL)",
    "s NOT IN ('a', 'B')",
    "s NOT IN ('a', NULL)",
    "b = 'a'",
    "b = X'FF'",
    "b > X'61'",
    "b < '\\u00ff'",
    "o",
    "NOT o",
    "!o",
    "o = TRUE",
    "o <=> FALSE",
    "o AND i = 1",
    "o OR i = 2",
    "i = 1 OR NULL",
    "i = 1 AND NULL",
    "TRUE",
    "FALSE OR i > 0",
    "t = '2026-01-01'",
    "t > DATE '2025-12-31'",
    "t < Date('2026-01-01')",
    "m = TIMESTAMP '2026-01-01 00:00:00'",
    "m > '2026-01-01T00:00:00Z'",
    "m >= DATE '2026-01-01'",
    "i IN (1, 2.0, -5)",
    "i IN (7, NULL)",
    "(i) IN (1)",
    "i BETWEEN 1 AND 2",
    "i NOT BETWEEN 1 AND 2",
    "i BETWEEN 2 AND NULL",
    "NOT (i BETWEEN 2 AND NULL)",
    "i IS NULL",
    "i IS NOT NULL",
    "NOT i IS NULL AND j = 1",
    "NOT i = 1 AND j = 1",
    "(i = 1 OR j = 1) AND NOT (s = 'B')",
    "I = 1",
    "`a b` = 1",
    "r.i = 1",
    "R.`i` = 1",
]

BEYOND = [
    "i + 1 = 2",
    "i = '1'",
    "i = 'abc'",
    "s = 1",
    "i = 1e0",
    "f = 100000000",
    "s LIKE 'a%'",
    "length(s) = 1",
    "i = 1 IS NULL",
    "i IS NULL = TRUE",
    "1 = 1",
    "i",
    "s",
    "i IN (1, 'a')",
    "i IN (SELECT 1)",
    "i = (SELECT 1)",
    "EXISTS (SELECT 1)",
    "missing = 1",
    "other.i = 1",
    "i.f = 1",
    "t = '2026-1-1'",
    "t = 'never'",
    "t = TIMESTAMP '2026-01-01 00:00:00'",
    "t = m",
    "s = b",
    "i = s",
    "o = 1",
    "o = 'true'",
    "(i, j) IN ((1, 2))",
    "i BETWEEN j + 1 AND 2",
    "i = 1 COLLATE utf8_lcase",
    "i = ANY (SELECT 1)",
    "CASE WHEN i = 1 THEN TRUE END",
    "d = 0.0000000000000000000000000000000000001",
    "i IS TRUE",
    "current_date = t",
    "i = -j",
]


def holds(condition: str, row: tuple[Any, ...]) -> bool | None:
    compiled = predicate(parse_expression(condition), COLUMNS, "r")
    assert compiled is not None, condition
    return compiled(dict(zip(NAMES, row, strict=True)))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i = 1", [True, False, None, False]),
        ("NOT i = 1", [False, True, None, True]),
        ("i <=> NULL", [False, False, True, False]),
        ("i IN (1, NULL)", [True, None, None, None]),
        ("i = 1 OR NULL", [True, None, None, None]),
        ("i = 1 AND NULL", [None, False, None, False]),
        ("x = y", [True, True, None, True]),
        ("x > 1e300", [False, True, None, False]),
        ("o", [True, False, None, None]),
    ],
)
def test_three_valued_logic(condition: str, expected: list[bool | None]) -> None:
    assert [holds(condition, row) for row in ROWS] == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x = ?", [False, True, None, False]),
        ("x <=> ?", [False, True, False, False]),
        ("x IS DISTINCT FROM ?", [True, False, True, True]),
        ("x IN (?)", [False, True, None, False]),
        ("x NOT IN (1, ?)", [True, False, None, True]),
        ("x < ?", [True, False, None, True]),
    ],
)
def test_a_bound_nan_equals_itself_as_in_spark(condition: str, expected: list[bool | None]) -> None:
    compiled = predicate(parse_expression(condition, [float("nan")]), COLUMNS)  # not the object in ROWS
    assert compiled is not None
    assert [compiled(dict(zip(NAMES, row, strict=True))) for row in ROWS] == expected


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_simple_subset_compiles(condition: str) -> None:
    for row in ROWS:
        assert holds(condition, row) in (True, False, None)


@pytest.mark.parametrize("condition", BEYOND)
def test_what_is_beyond_is_left_to_spark(condition: str) -> None:
    assert predicate(parse_expression(condition), COLUMNS, "r") is None


def test_a_name_of_two_columns_is_left_to_spark() -> None:
    columns = {"k": parse_type("Int32"), "K": parse_type("Int32")}
    assert predicate(parse_expression("k = 1"), columns) is None


def test_long_chains_do_not_recurse() -> None:
    chain = parse_expression(" OR ".join(f"i = {i}" for i in range(5000)))
    compiled = predicate(chain, COLUMNS)
    assert compiled is not None
    assert compiled({"i": 4999}) is True
    assert compiled({"i": 5000}) is False


def test_spark_agrees(spark: SparkSession) -> None:
    schema = ", ".join(f"`{name}` {type_.spark}" for name, type_ in COLUMNS.items())
    rows = [
        tuple(Decimal(v) if n == "u" and v is not None else v for n, v in zip(NAMES, row, strict=True))
        for row in ROWS
    ]
    spark.createDataFrame(rows, schema).createOrReplaceTempView("r")
    listed = ", ".join(f"({for_spark(parse_expression(text))})" for text in CONDITIONS)
    # Match each row by its own values, to know which row of the table it is.
    for row, key in zip(ROWS, ("i = 1", "i = 2", "i IS NULL", "i = -5"), strict=True):
        [found] = spark.sql(f"SELECT {listed} FROM r WHERE {key}").collect()
        for text, expected in zip(CONDITIONS, found, strict=True):
            assert holds(text, row) == expected, (text, row)


SIGNS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]
LITERALS = ["0", "1", "-1", "1.5", "NULL", "2147483648"]
ATOMS = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from("ij"), st.sampled_from(SIGNS), st.sampled_from(LITERALS)),
    st.builds("{} {} {}".format, st.sampled_from("ij"), st.sampled_from(["=", "<", "<=>"]), st.sampled_from("ij")),
    st.builds("{} IN ({}, {})".format, st.sampled_from("ij"), st.sampled_from(LITERALS), st.sampled_from(LITERALS)),
    st.builds("{} BETWEEN {} AND {}".format, st.sampled_from("ij"), st.sampled_from(LITERALS), st.sampled_from(LITERALS)),
    st.builds("{} IS {}NULL".format, st.sampled_from("ij"), st.sampled_from(["", "NOT "])),
    st.sampled_from(["TRUE", "FALSE", "NULL"]),
)  # fmt: skip
CONDITION_TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=8,
)


@given(CONDITION_TREES)
@settings(deadline=None)
def test_a_condition_or_its_negation_or_neither_holds(text: str) -> None:
    row = {"i": 1, "j": None}
    columns = {"i": COLUMNS["i"], "j": COLUMNS["j"]}
    compiled, negated = (
        predicate(parse_expression(text), columns),
        predicate(parse_expression(f"NOT ({text})"), columns),
    )
    assert compiled is not None
    assert negated is not None
    found = compiled(row)
    assert negated(row) == (None if found is None else not found)


@settings(max_examples=4, deadline=None)
@given(st.lists(CONDITION_TREES, min_size=40, max_size=40))
def test_spark_agrees_on_any_tree(spark: SparkSession, texts: list[str]) -> None:
    values = [None, -1, 0, 1, 2]
    columns = {"i": COLUMNS["i"], "j": COLUMNS["j"]}
    compiled = [predicate(parse_expression(text), columns) for text in texts]
    frame = spark.createDataFrame([(i, j) for i in values for j in values], "i int, j bigint")
    for found in frame.selectExpr("i", "j", *(f"({text}) AS c{n}" for n, text in enumerate(texts))).collect():
        row = {"i": found.i, "j": found.j}
        for n, condition in enumerate(compiled):
            assert condition is not None
            assert condition(row) == found[f"c{n}"], (texts[n], row)
