"""``format("strandline")``: filter pushdown reduces what is read."""

from __future__ import annotations

import pytest

from strandline import Database
from tests.api.source.sparkless import load, planned, read
from tests.tables.examples import rows

try:
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThanOrEqual,
        In,
        IsNull,
        LessThan,
        StringStartsWith,
    )
except ImportError:
    pytest.skip("PySpark tells a source of conditions since 4.1", allow_module_level=True)

FILTERS: list[tuple[str, list[Filter], int]] = [
    ("k = 150", [EqualTo(("k",), 150)], 1),
    ("k >= 100 AND k < 150", [GreaterThanOrEqual(("k",), 100), LessThan(("k",), 150)], 1),
    ("k >= 150", [GreaterThanOrEqual(("k",), 150)], 2),
    ("k IN (3, 210)", [In(("k",), (3, 210))], 3),  # Values between the first and the last.
    ("k IS NULL", [IsNull(("k",))], 0),
    ("k < -1", [LessThan(("k",), -1)], 0),
    ("v = 'v1'", [StringStartsWith(("v",), "v1")], 3),  # A filter without effect on keys.
]


@pytest.mark.parametrize(("where", "filters", "count"), FILTERS, ids=[each[0] for each in FILTERS])
def test_filters_leave_out_what_cannot_match(
    full: Database, where: str, filters: list[Filter], count: int
) -> None:
    reader, partitions = planned(full, filters, path="/t")
    found = read(reader, partitions)
    assert set(found) >= set(rows(full, f"SELECT k, v, n FROM t WHERE {where}"))
    assert len(partitions) == count


def test_a_filter_on_the_key_reads_no_other_row(full: Database) -> None:
    assert load(full, [GreaterThanOrEqual(("k",), 20), LessThan(("k",), 23)], path="/t") == [
        (k, f"v{k % 7}", k) for k in (20, 21, 22, 23)
    ]  # Key ranges include both ends; Spark filters out the last key.


def test_a_filter_on_an_index_finds_its_rows(full: Database) -> None:
    found = load(full, [EqualTo(("v",), "changed")], path="/t", view="by_v")
    assert found == rows(full, "SELECT k, v, n FROM t WHERE v = 'changed' ORDER BY k")
