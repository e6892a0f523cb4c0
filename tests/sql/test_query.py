"""Queries: the tables that they read, and that the rest of their text does not change."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import InvalidArgument, SyntaxFault
from strandline.sql.query import parse_query
from strandline.sql.tokens import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def paths(text: str) -> list[str]:
    return [table.path for table in parse_query(text).tables]


def rendered(text: str) -> str:
    query = parse_query(text)
    return query.render([f"{{t{i}}}" for i in range(len(query.tables))])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", []),
        ("VALUES (1), (2)", []),
        ("SELECT * FROM t", ["/t"]),
        ("FROM t SELECT k", ["/t"]),
        ("FROM t", ["/t"]),
        ("(SELECT * FROM t)", ["/t"]),
        ("SELECT * FROM `dir/t`", ["/dir/t"]),
        ("SELECT * FROM `/dir/t`", ["/dir/t"]),
        ("SELECT * FROM Table", ["/Table"]),
        ("SELECT * FROM a, b, Table", ["/a", "/b", "/Table"]),
        ("SELECT * FROM a x JOIN b y ON x.k = y.k LEFT JOIN c USING (k)", ["/a", "/b", "/c"]),
        ("SELECT * FROM (a JOIN b ON a.k = b.k)", ["/a", "/b"]),
        ("SELECT * FROM ((a))", ["/a"]),
        ("SELECT * FROM (SELECT * FROM (SELECT * FROM t) x) y", ["/t"]),
        ("SELECT (SELECT max(k) FROM u) FROM t", ["/u", "/t"]),
        ("SELECT * FROM t WHERE k IN (SELECT k FROM u) AND EXISTS (SELECT 1 FROM v)", ["/t", "/u", "/v"]),
        ("SELECT * FROM a UNION ALL SELECT * FROM b EXCEPT SELECT * FROM c", ["/a", "/b", "/c"]),
        ("SELECT * FROM a, a", ["/a", "/a"]),
        ("SELECT * FROM range(10)", []),
        ("SELECT * FROM t, explode(t.a)", ["/t"]),
        ("SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.k = t.k) x", ["/t", "/u"]),
        ("SELECT * FROM t LATERAL VIEW explode(a) x AS y", ["/t"]),
        ("SELECT * FROM t LATERAL VIEW OUTER explode(a) x AS y", ["/t"]),
        ("SELECT * FROM t PIVOT (sum(v) FOR k IN (1, 2))", ["/t"]),
        ("SELECT * FROM VALUES (1) AS v(x), t", ["/t"]),
        ("SELECT extract(YEAR FROM d), trim(BOTH 'x' FROM s) FROM t WHERE a IS DISTINCT FROM b", ["/t"]),
        ("SELECT * FROM t TABLESAMPLE (10 PERCENT)", ["/t"]),
        ("SELECT 'FROM x' AS `FROM y` -- FROM z\nFROM /* FROM w */ t", ["/t"]),
        ("SELECT * FROM t |> WHERE k = 1", ["/t"]),
        # names of common table expressions
        ("WITH a AS (SELECT * FROM t) SELECT * FROM a", ["/t"]),
        ("WITH a AS (SELECT * FROM t), b AS (SELECT * FROM a JOIN u) SELECT * FROM b, A", ["/t", "/u"]),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", ["/t"]),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM a, b", ["/a"]),
        ("WITH RECURSIVE t AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM t) SELECT * FROM t", []),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) x, a", ["/a"]),
        ("WITH a AS (SELECT 1) SELECT * FROM t WHERE k IN (SELECT * FROM a)", ["/t"]),
        ("WITH a AS (SELECT 1) SELECT * FROM a VERSION AS OF 3", ["/a"]),
    ],
)  # fmt: skip
def test_tables(text: str, expected: list[str]) -> None:
    assert paths(text) == expected


def test_clauses_behind_a_table() -> None:
    query = parse_query(
        "SELECT * FROM t VIEW by_v x, `d/u` VERSION AS OF 5 AS y, v TIMESTAMP AS OF '2026-01-01T00:00:00Z', "
        "w IN BACKUP nightly AT '20260101120000Z_full', z IN BACKUP `my c` q JOIN t VIEW PRIMARY KEY IN BACKUP c VIEW2 GROUP BY 1"
    )
    found = [(t.path, t.index, t.version, t.timestamp, t.backup, t.alias) for t in query.tables]
    assert found == [
        ("/t", "by_v", None, None, None, "x"),
        ("/d/u", None, 5, None, None, "y"),
        ("/v", None, None, datetime(2026, 1, 1, tzinfo=timezone.utc), None, None),
        ("/w", None, None, None, ("nightly", "20260101120000Z_full"), None),
        ("/z", None, None, None, ("my c", None), "q"),
        ("/t", None, None, None, ("c", None), "VIEW2"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM t", "SELECT * FROM {t0} AS `t`"),
        ("SELECT t.k FROM `dir/t` AS t", "SELECT t.k FROM {t0} AS t"),
        ("SELECT t.k FROM `dir/t` t", "SELECT t.k FROM {t0} t"),
        ("SELECT * FROM `a``b`", "SELECT * FROM {t0} AS `a``b`"),
        ("SELECT * FROM `{x}`", "SELECT * FROM {t0} AS `{{x}}`"),
        ("SELECT k FROM t VIEW idx WHERE v = '{'", "SELECT k FROM {t0} AS `t` WHERE v = '{{'"),
        ("SELECT '{}' AS x", "SELECT '{}' AS x"),
        ("SELECT  *\nFROM a ,b -- c {\n", "SELECT  *\nFROM {t0} AS `a` ,{t1} AS `b`"),
        ("FROM t TABLESAMPLE (5 ROWS) REPEATABLE (1) WHERE 1 = 1", "FROM {t0} TABLESAMPLE (5 ROWS) REPEATABLE (1) AS `t` WHERE 1 = 1"),
        ("SELECT * FROM t TABLESAMPLE (5 ROWS) x", "SELECT * FROM {t0} TABLESAMPLE (5 ROWS) x"),
        ("SELECT 1ul, 'a'u, CAST(k AS Utf8) FROM t", "SELECT 1, 'a', CAST(k AS STRING) FROM {t0} AS `t`"),
        ("SELECT 1ul", "SELECT 1"),
        ("SELECT a < 9223372036854775807 AND a >= -9223372036854775808", "SELECT a < 9223372036854775807 AND a >= -9223372036854775808"),
        ("SELECT a<9223372036854775808", "SELECT a<+9223372036854775808"),
        ("SELECT a > - 9223372036854775809 OR a > -1e19BD", "SELECT a > +- 9223372036854775809 OR a > +-1e19BD"),
        ("SELECT a < 9223372036854775807.5, 18446744073709551615ul", "SELECT a < +9223372036854775807.5, +18446744073709551615"),
        ("SELECT a < 1e19", "SELECT a < 1e19"),
        (r"SELECT `a\`b` FROM `c\`d`", "SELECT `a``b` FROM {t0} AS `c``d`"),
        ("SELECT * FROM t LATERAL VIEW explode(a) x AS y", "SELECT * FROM {t0} AS `t` LATERAL VIEW explode(a) x AS y"),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", "WITH t AS (SELECT * FROM {t0} AS `t`) SELECT * FROM t"),
    ],
)  # fmt: skip
def test_rendering(text: str, expected: str) -> None:
    assert rendered(text) == expected


def test_as_many_names_as_tables_are_needed() -> None:
    with pytest.raises(ValueError, match="1 tables"):
        parse_query("SELECT * FROM t").render([])


def test_files_are_left_to_spark() -> None:
    query = parse_query("SELECT * FROM parquet.`/a/b` x JOIN t ON x.k = t.k")
    assert query.files == ("parquet.`/a/b`",)
    assert query.render(["{t0}"]) == "SELECT * FROM parquet.`/a/b` x JOIN {t0} AS `t` ON x.k = t.k"


def test_names_of_a_query() -> None:
    assert {"k", "a b", "t"} <= parse_query("SELECT K, `A b` FROM t").names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a query"),
        ("SELECT * FROM", "line 1, column"),
        ("SELECT a FROM b WHERE x = = 1", "line 1, column 27: unexpected ="),
        ("SELECT *\nFROM t\nWHERE (k = 1", "line 3, column"),
        ("SELECT * FROM dir/t", "line 1, column 18"),
        ("INSERT INTO t SELECT 1", "expected a query"),
        ("WITH a AS (SELECT 1) INSERT INTO x SELECT * FROM a", "expected a query"),
        ("FROM t INSERT OVERWRITE DIRECTORY '/x' SELECT *", "expected a query|unexpected INSERT"),
        ("DROP TABLE t", "expected a query"),
        ("SELECT 1; SELECT 2", "SQL"),
        ("WITH a AS (SET x = 1) SELECT * FROM a", "SQL"),
        ("SELECT * FROM t VIEW a VIEW b", "VIEW is given twice"),
        ("SELECT * FROM t VERSION AS OF 'x'", "step number"),
        ("SELECT * FROM t VERSION AS OF 1 IN BACKUP c", "one point in time"),
        ("SELECT * FROM t TIMESTAMP AS OF 'never'", "not a time"),
        ("SELECT * FROM t IN BACKUP", "backup collection"),
        ("SELECT * FROM t LATERAL VIEW explode(z) q AS w, c IN BACKUP n", "does not follow a table"),
    ],
)
def test_what_is_no_query_is_refused(text: str, message: str) -> None:
    with pytest.raises(SyntaxFault, match=message):
        parse_query(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT * FROM a.b JOIN t", "`a`.`b`"),
        ("SELECT * FROM t, a.b.c", "`a`.`b`.`c`"),
        ("FROM a.b.c.d JOIN t", "`a`.`b`.`c`.`d`"),
        ("SELECT (SELECT 1 FROM `x y`.b) FROM t", "`x y`.`b`"),
    ],
)
def test_a_table_of_a_catalog_is_left_to_spark(text: str, name: str) -> None:
    query = parse_query(text)
    assert query.files == (name,)
    assert [table.path for table in query.tables] == ["/t"]
    assert query.dotted is not None
    assert "a dot does not separate" in query.dotted.message


NAMES = st.text(min_size=1, max_size=8).filter(lambda name: "/" not in name and name not in (".", ".."))


@given(st.lists(NAMES, min_size=1, max_size=3), st.text(max_size=8))
@settings(deadline=None)
def test_any_name_that_can_be_a_path_is_found(parts: list[str], noise: str) -> None:
    path = "/".join(parts)
    literal = "'" + noise.replace("\\", "\\\\").replace("'", "''") + "'"
    text = f"SELECT {literal} AS x, max({quote(parts[0])}) FROM {quote(path)} GROUP BY 1"
    try:
        query = parse_query(text)
    except InvalidArgument:
        return
    assert [table.path for table in query.tables] == ["/" + path]
    assert query.render(["{t0}"]).count("{t0}") >= 1


def test_spark_runs_what_is_rendered(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "k int, v string")
    other = spark.createDataFrame([(2, "x"), (3, "y")], "k int, w string")
    for text, expected in [
        ("SELECT t.k FROM t JOIN `dir/u` ON t.k = `dir/u`.k", [(2,)]),
        ("SELECT k FROM t WHERE v = '{b}' OR k = 2ul", [(2,)]),
        ("WITH t AS (SELECT k + 1 AS k FROM t) SELECT t.k, w FROM t LEFT JOIN `dir/u` u USING (k) ORDER BY k", [(2, "x"), (3, "y")]),
        ("SELECT x FROM t TABLESAMPLE (100 PERCENT) LATERAL VIEW explode(array(v, '}')) e AS x WHERE t.k = 1 ORDER BY x", [("a",), ("}",)]),
        ("SELECT Table.k FROM Table WHERE k IN (SELECT k FROM `dir/u`)", [(2,)]),
        (r"SELECT `a\`b`.k FROM `a\`b` VIEW i WHERE CAST(k AS Utf8) = '1'u", [(1,)]),
        ("FROM t |> WHERE k = 1 |> SELECT v", [("a",)]),
        ("SELECT count(*) FROM t, t AS s", [(4,)]),
    ]:  # fmt: skip
        query = parse_query(text)
        frames = {f"t{i}": other if table.path == "/dir/u" else frame for i, table in enumerate(query.tables)}
        found = spark.sql(query.render([f"{{t{i}}}" for i in range(len(query.tables))]), **frames).collect()  # type: ignore[arg-type]
        assert [tuple(row) for row in found] == expected, text


def test_wide_characters_are_escaped_for_spark() -> None:
    """Spark 4.1 puts bound values at a wrong place in a text after a character of more than 16 bits."""
    query = parse_query("SELECT '\U0001f600\\\U0001f601\\\\x\u00e4' || :p, r'\U0001f600' AS x", {"p": 1})
    assert query.render([]).startswith("SELECT '\\U0001f600\\U0001f601\\\\x\u00e4' || :")
