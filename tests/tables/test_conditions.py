"""Comparisons of numbers at and beyond the limits of all types: process, Spark and a model agree."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from strandline import Database
from strandline.types import parse_type
from tests.effort import FACTOR
from tests.tables.examples import ARROW, SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = [
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Uint8",
    "Uint16",
    "Uint32",
    "Uint64",
    "Float",
    "Double",
    "Decimal(5,2)",
    "Decimal(38,0)",
]
Truth: TypeAlias = bool | None


def values(name: str) -> list[Any]:
    type_ = parse_type(name)
    if type_.kind == "float":
        return [None, -1.5, 0.0, 3.5]
    if type_.kind == "decimal":
        top = Decimal((0, (9,) * type_.precision, -type_.scale))
        return [None, top.copy_negate(), Decimal(0), top]
    return [None, type_.min, 5, type_.max]


ROWS = [{"k": k, **{f"c{i}": values(name)[k] for i, name in enumerate(TYPES)}} for k in range(4)]
LIMITS = sorted(
    {
        bound
        for name in TYPES
        if parse_type(name).kind == "int"
        for bound in (parse_type(name).min, parse_type(name).max)
    }
)
LITERALS = [
    *(str(limit + step) for limit in LIMITS for step in (-1, 0, 1)),
    *(
        "9223372036854775807.5",
        "-9223372036854775808.5",
        "1e19BD",
        "-1e30BD",
        "9" * 38,
        "-" + "9" * 38,
        "999.99",
        "1000.5",
        "-0.001",
    ),
]


def both(left: Truth, right: Truth) -> Truth:
    return False if left is False or right is False else None if left is None or right is None else True


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def compared(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Truth]:
    return lambda a, b: None if a is None else function(a, b)


less, equal, greater = compared(operator.lt), compared(operator.eq), compared(operator.gt)
at_most, at_least = compared(operator.le), compared(operator.ge)
FORMS: dict[str, Callable[[Any, Any], Truth]] = {
    "{a} < {b}": less,
    "{a} <= {b}": at_most,
    "{a} > {b}": greater,
    "{a} >= {b}": at_least,
    "{a} = {b}": equal,
    "{a} <> {b}": lambda a, b: negated(equal(a, b)),
    "{a} <=> {b}": lambda a, b: a is not None and a == b,
    "{b} < {a}": greater,
    "{b} >= {a}": at_most,
    "{a} IN ({b})": equal,
    "{a} IN ({b}, NULL)": lambda a, b: equal(a, b) or None,
    "{a} NOT IN ({b}, 7)": lambda a, b: both(negated(equal(a, b)), negated(equal(a, 7))),
    "{a} BETWEEN {b} AND 5": lambda a, b: both(at_least(a, b), at_most(a, 5)),
    "{a} BETWEEN 0 AND {b}": lambda a, b: both(at_least(a, 0), at_most(a, b)),
    "{a} NOT BETWEEN 0 AND {b}": lambda a, b: negated(both(at_least(a, 0), at_most(a, b))),
    "NOT ({a} < {b})": lambda a, b: negated(less(a, b)),
    "NOT ({b} < {a} OR {a} = 5)": lambda a, b: both(negated(greater(a, b)), negated(equal(a, 5))),
}


def number(text: str) -> Decimal:
    return Decimal(text.removesuffix("BD"))


def expected(condition: tuple[str, int, str]) -> list[Truth]:
    """Return the expected value of the condition for each row."""
    form, column, text = condition
    return [FORMS[form](value, number(text)) for value in values(TYPES[column])]


def written(condition: tuple[str, int, str]) -> str:
    form, column, text = condition
    return form.format(a=f"c{column}", b=text)


CONDITIONS = list(itertools.product(FORMS, range(len(TYPES)), LITERALS))


@pytest.fixture
def create(connect: Callable[..., Database], spark: SparkSession) -> Callable[[Any], Database]:
    def make(way: Any) -> Database:
        db = connect(spark=spark, settings=way)
        db.sql(
            f"CREATE TABLE t (k Int32, {', '.join(f'c{i} {name}' for i, name in enumerate(TYPES))}, PRIMARY KEY (k))"
        )
        db.table("t").upsert(ROWS)
        return db

    return make


def matching(truths: list[Truth]) -> list[int]:
    return [k for k, truth in enumerate(truths) if truth is True]


def test_a_condition_is_what_three_valued_logic_says_in_the_process_and_on_spark(
    create: Callable[[Any], Database],
) -> None:
    here, there = create(ARROW), create(SPARK)

    known = [
        ("{a} < {b}", i, text) for i in range(8) for text in ("9223372036854775808", "-9223372036854775809")
    ]
    for seed in range(max(1, FACTOR)):
        conditions = [*known, *Random(seed).sample(CONDITIONS, 60)]
        for condition in conditions:
            found = [k for (k,) in here.sql(f"SELECT k FROM t WHERE {written(condition)}").rows()]
            assert sorted(found) == matching(expected(condition)), written(condition)
        listed = ", ".join(f"({written(condition)})" for condition in conditions)
        rows = there.sql(f"SELECT k, {listed} FROM t ORDER BY k").rows()
        for place, condition in enumerate(conditions, 1):
            assert [row[place] for row in rows] == expected(condition), written(condition)
        counts = ", ".join(
            f"(SELECT collect_list(k) FROM t WHERE {written(condition)})" for condition in conditions[::3]
        )
        for condition, found in zip(conditions[::3], there.sql(f"SELECT {counts}").rows()[0], strict=True):
            assert sorted(found) == matching(expected(condition)), written(condition)
