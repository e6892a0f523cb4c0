"""Simple queries: which ones are recognised, and that their results are the same as in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from strandline.sql.evaluate.predicates import predicate
from strandline.sql.evaluate.simple_select import OrderBy, SimpleSelect, sort_rows
from strandline.sql.query import parse_query
from strandline.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def simple(text: str) -> SimpleSelect | None:
    return parse_query(text).simple


def the(text: str) -> SimpleSelect:
    found = simple(text)
    assert found is not None
    return found


def test_columns() -> None:
    assert the("SELECT * FROM t").columns is None
    assert the("SELECT k, v AS w, t.n, `a b` c FROM t").columns == (
        ("k", "k"),
        ("v", "w"),
        ("n", "n"),
        ("a b", "c"),
    )
    assert the("SELECT x.k FROM `dir/t` AS x").columns == (("k", "k"),)
    assert the("SELECT key, value, date, timestamp FROM Table").columns == tuple(
        (n, n) for n in ("key", "value", "date", "timestamp")
    )


def test_count() -> None:
    found = the("SELECT count(*) FROM t WHERE k > 1")
    assert (found.count, found.columns) == ("count(1)", ())
    assert the("SELECT COUNT(1) AS n FROM t").count == "n"


def test_table_and_index() -> None:
    found = the("SELECT key FROM `d/T` VIEW idx WHERE indexed = 200")
    assert (found.table.path, found.table.index, found.table.alias) == ("/d/T", "idx", None)
    assert found.where is not None
    assert found.where.text == "indexed = 200"
    assert the("SELECT k FROM t VERSION AS OF 3 AS x").table.version == 3


def test_order_and_limit() -> None:
    found = the(
        "SELECT k AS v, v AS k, n FROM t ORDER BY k DESC, 3, t.v NULLS LAST, z DESC NULLS FIRST LIMIT 10"
    )
    assert found.order == (
        OrderBy("v", True, False),
        OrderBy("n", False, True),
        OrderBy("v", False, False),
        OrderBy("z", True, True),
    )
    assert found.limit == 10


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT DISTINCT k FROM t",
        "SELECT ALL k FROM t",
        "SELECT k + 1 FROM t",
        "SELECT upper(k) FROM t",
        "SELECT NULL FROM t",
        "SELECT TRUE FROM t",
        "SELECT 'k' FROM t",
        "SELECT *, k FROM t",
        "SELECT t.* FROM t",
        "SELECT x.k FROM t",
        "SELECT t.k FROM t AS x",
        "SELECT a.b.c FROM t",
        "SELECT count(k) FROM t",
        "SELECT count(*), k FROM t",
        "SELECT count(*) FROM t LIMIT 0",
        "SELECT max(k) FROM t",
        "SELECT current_date FROM t",
        "SELECT k FROM t, u",
        "SELECT k FROM t JOIN u ON t.k = u.k",
        "SELECT k FROM t CROSS JOIN u",
        "SELECT k FROM (SELECT * FROM t)",
        "SELECT k FROM range(3)",
        "SELECT k FROM t TABLESAMPLE (1 ROWS)",
        "SELECT k FROM t LATERAL VIEW explode(a) x AS y",
        "SELECT k FROM t GROUP BY k",
        "SELECT k FROM t WHERE k = 1 GROUP BY k",
        "SELECT k FROM t WHERE k IN (SELECT 1)",
        "SELECT k FROM t WHERE k = 1 UNION SELECT 2",
        "SELECT k FROM t HAVING count(*) > 1",
        "SELECT k FROM t ORDER BY k + 1",
        "SELECT k FROM t ORDER BY -1",
        "SELECT k FROM t ORDER BY 2",
        "SELECT * FROM t ORDER BY 1",
        "SELECT k FROM t ORDER BY ALL",
        "SELECT a AS x, b AS x FROM t ORDER BY x",
        "SELECT k FROM t SORT BY k",
        "SELECT k FROM t LIMIT 1 + 1",
        "SELECT k FROM t LIMIT ALL",
        "SELECT k FROM t LIMIT 1 OFFSET 1",
        "SELECT k FROM t AS x(k)",
        "WITH t AS (SELECT 1 AS k) SELECT k FROM t",
        "SELECT k FROM t |> WHERE k = 1",
        "SELECT k FROM t UNION ALL SELECT k FROM t",
        "FROM t SELECT k",
        "SELECT k FROM parquet.`/x`",
        "SELECT k[0] FROM t",
    ],
)
def test_everything_else_is_not(text: str) -> None:
    assert simple(text) is None


def test_rows_are_ordered_as_in_spark() -> None:
    nan = float("nan")
    rows: list[dict[str, Any]] = [{"x": value} for value in (1.0, None, nan, -1.0)]
    assert [row["x"] for row in sort_rows(rows, [OrderBy("x")])][:3] == [None, -1.0, 1.0]
    assert [row["x"] for row in sort_rows(rows, [OrderBy("x", True, False)])][1:] == [1.0, -1.0, None]
    assert sort_rows(rows, []) == rows


def test_spark_gives_the_same(spark: SparkSession) -> None:
    nan = float("nan")
    values = [(1, "b", 2.0), (2, None, nan), (3, "a", None), (None, "é", -0.0), (5, "B", 0.5)]
    frame = spark.createDataFrame(values, "k int, v string, x double")
    types = {"k": parse_type("Int32"), "v": parse_type("Utf8"), "x": parse_type("Double")}
    rows = [dict(zip(types, value, strict=True)) for value in values]
    for text in [
        "SELECT * FROM t ORDER BY k",
        "SELECT v, k FROM t ORDER BY v DESC, k",
        "SELECT K AS v, V AS k FROM t ORDER BY k NULLS LAST LIMIT 3",
        "SELECT x FROM t ORDER BY x DESC, k LIMIT 4",
        "SELECT t.x FROM t WHERE t.x > 0 ORDER BY 1",
        "SELECT count(*) FROM t WHERE v >= 'a'",
        "SELECT count(1) AS n FROM t",
        "SELECT k FROM t VIEW by_v WHERE NOT v = 'a' ORDER BY k LIMIT 0",
    ]:
        query = parse_query(text)
        found = the(text)
        expected = spark.sql(query.render(["{t0}"]), t0=frame)
        holds = (
            (lambda row: True)
            if found.where is None
            else predicate(found.where, types, found.table.qualifier)
        )
        assert holds is not None
        chosen = [row for row in rows if holds(row) is True]
        if found.count is not None:
            assert expected.columns == [found.count]
            assert expected.collect()[0][0] == len(chosen)
            continue
        columns = found.columns or tuple((name, name) for name in types)
        order = [OrderBy(by.column.lower(), by.descending, by.nulls_first) for by in found.order]
        here = [
            tuple(row[name.lower()] for name, _ in columns) for row in sort_rows(chosen, order)[: found.limit]
        ]
        assert expected.columns == [shown for _, shown in columns], text
        assert repr(here) == repr([tuple(row) for row in expected.collect()]), text
