"""Conditions on whole columns give the same results as conditions on single rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.sql.evaluate import masks
from strandline.sql.evaluate.masks import mask
from strandline.sql.syntax import parse_expression
from strandline.types.arrays import python_to_array
from tests.sql.test_predicates import BEYOND, COLUMNS, CONDITIONS, NAMES, ROWS, holds

TABLE = pa.table(
    {name: python_to_array(COLUMNS[name], [row[i] for row in ROWS]) for i, name in enumerate(NAMES)}
)
ONE_BY_ONE = {
    "i <= 1.5",
    "i IN (1, 2.0, -5)",
    "1.0 = i",
    "i <=> 1",
    "i <=> NULL",
    "i IS NOT DISTINCT FROM 1",
    "i IS DISTINCT FROM NULL",
    "i = j",
    "i < j",
    "i <=> j",
    "j = u",
    "x = y",
    "x <=> y",
    "x < y",
    "o <=> FALSE",
    "i = 1 OR NULL",
    "i = 1 AND NULL",
    "TRUE",
    "FALSE OR i > 0",
}
"""Conditions that are not evaluated by Arrow's kernels."""


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_mask_is_the_predicate_of_each_row(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if condition not in ONE_BY_ONE:
        monkeypatch.setattr(masks, "predicate", None)
    decide = mask(parse_expression(condition), COLUMNS, "r")
    assert decide is not None
    assert decide(TABLE).to_pylist() == [holds(condition, row) for row in ROWS]


@pytest.mark.parametrize("condition", BEYOND)
def test_what_is_beyond_predicates_is_beyond_masks(condition: str) -> None:
    assert mask(parse_expression(condition), COLUMNS, "r") is None
