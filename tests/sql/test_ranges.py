"""Constraints on columns: exact where possible, and never too narrow."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.sql.evaluate.predicates import predicate
from strandline.sql.evaluate.ranges import Range, key_ranges
from strandline.sql.syntax import parse_expression
from strandline.types import parse_type

COLUMNS = {
    name: parse_type(type_)
    for name, type_ in {
        "k": "Uint8",
        "i": "Int32",
        "d": "Decimal(4,1)",
        "s": "Utf8",
        "b": "String",
        "t": "Date",
        "m": "Datetime",
        "x": "Double",
        "o": "Bool",
    }.items()
}
UTC = timezone.utc


def constraints(text: str) -> dict[str, Any]:
    return dict(key_ranges(parse_expression(text), COLUMNS, COLUMNS).columns)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 1", {"i": frozenset({1})}),
        ("1 = i", {"i": frozenset({1})}),
        ("I = 1.0", {"i": frozenset({1})}),
        ("i = 1.5", {"i": frozenset()}),
        ("k = -1", {"k": frozenset()}),
        ("k = 256", {"k": frozenset()}),
        ("i = NULL", {"i": frozenset()}),
        ("i <=> NULL", {"i": frozenset({None})}),
        ("i <=> 3", {"i": frozenset({3})}),
        ("i <=> 3.5", {"i": frozenset()}),
        ("i IS NULL", {"i": frozenset({None})}),
        ("i IN (1, 2, 2.5, NULL)", {"i": frozenset({1, 2})}),
        ("i != 1", {"i": Range()}),
        ("i IS NOT NULL", {}),
        ("i > 1", {"i": Range(low=1)}),
        ("i >= 1", {"i": Range(low=1, low_inclusive=True)}),
        ("i < 1", {"i": Range(high=1)}),
        ("i <= 1", {"i": Range(high=1, high_inclusive=True)}),
        ("1 < i", {"i": Range(low=1)}),
        ("i > 1.5", {"i": Range(low=1)}),
        ("i >= 1.5", {"i": Range(low=1)}),
        ("i < 1.5", {"i": Range(high=1, high_inclusive=True)}),
        ("i <= 1.5", {"i": Range(high=1, high_inclusive=True)}),
        ("k > -5", {"k": Range()}),
        ("k > 300", {"k": frozenset()}),
        ("k < 300", {"k": Range()}),
        ("k < -1", {"k": frozenset()}),
        ("i BETWEEN 1 AND 5", {"i": Range(1, True, 5, True)}),
        ("i BETWEEN 5 AND 1", {"i": frozenset()}),
        ("i BETWEEN 1 AND NULL", {"i": frozenset()}),
        ("i > 1 AND i < 5", {"i": Range(1, False, 5, False)}),
        ("i > 1 AND i >= 1 AND i <= 7 AND i < 7", {"i": Range(1, False, 7, False)}),
        ("i >= 2 AND i <= 2", {"i": Range(2, True, 2, True)}),
        ("i > 2 AND i < 2", {"i": frozenset()}),
        ("i IN (1, 2, 3) AND i > 1", {"i": frozenset({2, 3})}),
        ("i > 1 AND i IN (1, 2, 3)", {"i": frozenset({2, 3})}),
        ("i = 1 AND i = 2", {"i": frozenset()}),
        ("i = 1 AND k = 2", {"i": frozenset({1}), "k": frozenset({2})}),
        ("i = 1 OR i = 2", {"i": frozenset({1, 2})}),
        ("i = 1 OR i > 5", {"i": Range(low=1, low_inclusive=True)}),
        ("i < 1 OR i > 5", {"i": Range()}),
        ("(i > 1 AND i < 3) OR (i >= 1 AND i <= 2)", {"i": Range(1, True, 3, False)}),
        ("i IS NULL OR i > 5", {}),
        ("i IS NULL OR i = 5", {"i": frozenset({None, 5})}),
        ("i = NULL OR i > 5", {"i": Range(low=5)}),
        ("i = 1 OR k = 2", {}),
        ("(i = 1 AND k = 2) OR i = 3", {"i": frozenset({1, 3})}),
        ("NOT i = 1", {}),
        ("i = 1 AND length(s) = 3", {"i": frozenset({1})}),
        ("i = 1 OR length(s) = 3", {}),
        ("i = k", {}),
        ("i = 'x'", {}),
        ("d = 1.5", {"d": frozenset({Decimal("1.5")})}),
        ("d = 1.55", {"d": frozenset()}),
        ("d > 1.55", {"d": Range(low=Decimal("1.5"))}),
        ("d < -1.55", {"d": Range(high=Decimal("-1.6"), high_inclusive=True)}),
        ("d < 1000", {"d": Range()}),
        ("d > 1000", {"d": frozenset()}),
        ("s = 'a'", {"s": frozenset({"a"})}),
        ("s > 'a'", {"s": Range(low="a")}),
        ("b = 'a'", {"b": frozenset({b"a"})}),
        ("t = '2026-01-01'", {"t": frozenset({date(2026, 1, 1)})}),
        ("t >= DATE '2026-01-01'", {"t": Range(low=date(2026, 1, 1), low_inclusive=True)}),
        ("m = TIMESTAMP '2026-01-01 00:00:00.5'", {"m": frozenset()}),
        (
            "m = TIMESTAMP '2026-01-01 00:00:01'",
            {"m": frozenset({datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)})},
        ),
        ("x = 1", {}),
        ("o = TRUE", {"o": frozenset({True})}),
        ("i IN (SELECT 1)", {}),
        ("missing = 1 AND i = 1", {"i": frozenset({1})}),
        ("(i) = (1)", {"i": frozenset({1})}),
        ("i IS DISTINCT FROM 1", {}),
    ],
)
def test_constraints(text: str, expected: dict[str, Any]) -> None:
    assert constraints(text) == expected


def test_no_condition_constrains_nothing() -> None:
    assert key_ranges(None, COLUMNS, ["k"]).columns == {}


def test_only_the_named_columns_are_told() -> None:
    found = key_ranges(parse_expression("i = 1 AND k = 2"), COLUMNS, ["k"])
    assert found.columns == {"k": frozenset({2})}
    assert found.values("k") == frozenset({2})
    assert found.values("i") is None
    assert not found.impossible


def test_a_condition_that_cannot_hold_is_impossible() -> None:
    assert key_ranges(parse_expression("i = 1 AND i = 2"), COLUMNS, ["i"]).impossible


def test_a_column_may_be_qualified() -> None:
    assert key_ranges(parse_expression("t.i = 1"), COLUMNS, ["i"], "T").columns == {"i": frozenset({1})}
    assert key_ranges(parse_expression("u.i = 1"), COLUMNS, ["i"], "t").columns == {}


def test_a_column_that_differs_in_case_from_the_key_is_not_the_key() -> None:
    columns = {"k": parse_type("Int32"), "K": parse_type("Int32")}
    assert key_ranges(parse_expression("K = 1"), columns, ["k"]).columns == {}


VALUES = st.sampled_from(["-300", "-1", "-0.5", "0", "0.5", "1", "1.5", "2", "255", "256", "NULL"])
SIGNS = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"])
NAMES = st.sampled_from(["k", "i", "d"])
ATOMS = st.one_of(
    st.builds("{} {} {}".format, NAMES, SIGNS, VALUES),
    st.builds("{1} {2} {0}".format, NAMES, VALUES, SIGNS),
    st.builds("{} BETWEEN {} AND {}".format, NAMES, VALUES, VALUES),
    st.builds("{} IN ({}, {}, {})".format, NAMES, VALUES, VALUES, VALUES),
    st.builds("{} IS NULL".format, NAMES),
)
TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)
NUMBERS = {name: COLUMNS[name] for name in ("k", "i", "d")}
ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, 0, 1, 2, 255]),
        "i": st.sampled_from([None, -300, -1, 0, 1, 2, 256]),
        "d": st.sampled_from([None, Decimal("-0.5"), Decimal("0.0"), Decimal("1.5"), Decimal("255.0")]),
    }
)


@pytest.mark.slow
@given(TREES, st.lists(ROW, min_size=10, max_size=30))
@settings(deadline=None, max_examples=300)
def test_every_row_that_satisfies_the_condition_satisfies_the_constraints(
    text: str, rows: list[dict[str, Any]]
) -> None:
    expression = parse_expression(text)
    holds = predicate(expression, NUMBERS)
    assert holds is not None
    found = key_ranges(expression, NUMBERS, NUMBERS)
    for row in rows:
        if holds(row):
            assert not found.impossible
            for name, allowed in found.columns.items():
                assert row[name] in allowed
