"""UPSERT, INSERT, REPLACE, UPDATE and DELETE."""

from __future__ import annotations

from decimal import Decimal

import pytest

from strandline.errors import SyntaxFault, Unsupported
from strandline.sql.evaluate.literals import literal
from strandline.sql.parser import parse
from strandline.sql.query import Query
from strandline.sql.statements import Change, Delete, DeleteOn, Update, Values, Write
from strandline.sql.syntax import parse_expression


def values(*rows: tuple[str, ...]) -> Values:
    return Values(tuple(tuple(parse_expression(text) for text in row) for row in rows))


def test_writes_of_values() -> None:
    assert parse("UPSERT INTO t (k, v) VALUES (1, 10), (2, 'x')") == [
        Write("UPSERT", "/t", ("k", "v"), values(("1", "10"), ("2", "'x'")))
    ]
    assert parse("replace into `a/t` values (1, null)") == [
        Write("REPLACE", "/a/t", None, values(("1", "null")))
    ]
    assert parse("INSERT INTO t (`a b`) VALUES (f(1, 2))") == [
        Write("INSERT", "/t", ("a b",), values(("f(1, 2)",)))
    ]
    assert parse("UPSERT INTO Table (key) VALUES (1)") == [
        Write("UPSERT", "/Table", ("key",), values(("1",)))
    ]
    assert parse("UPSERT INTO t (values, select) VALUES (1, 2)") == [
        Write("UPSERT", "/t", ("values", "select"), values(("1", "2")))
    ]
    assert isinstance(parse("UPSERT INTO t VALUES (1)")[0], Change)


def test_values_are_whole_expressions() -> None:
    [statement] = parse(
        "UPSERT INTO t (a, b, c) VALUES ((1), array(1, 2)[0], CASE WHEN a > 1 THEN 'x, )' ELSE \"(\" END)"
    )
    assert isinstance(statement, Write)
    assert isinstance(statement.source, Values)
    assert [value.text for value in statement.source.rows[0]] == [
        "(1)",
        "array(1, 2)[0]",
        "CASE WHEN a > 1 THEN 'x, )' ELSE \"(\" END",
    ]


def test_plain_values_are_constants() -> None:
    [statement] = parse("UPSERT INTO t VALUES (1, -2.50, 'a;b', NULL, TRUE, X'00', 'c'u, 5ul, -1e3)")
    assert isinstance(statement, Write)
    assert isinstance(statement.source, Values)
    found = [literal(value) for value in statement.source.rows[0]]
    assert found == [1, Decimal("-2.50"), "a;b", None, True, b"\0", "c", 5, -1000.0]


@pytest.mark.parametrize(
    ("text", "columns", "query"),
    [
        ("INSERT INTO t SELECT * FROM u", None, "SELECT * FROM u"),
        (
            "UPSERT INTO t (k, v) SELECT k, v FROM u VIEW i WHERE k > 1",
            ("k", "v"),
            "SELECT k, v FROM u VIEW i WHERE k > 1",
        ),
        ("UPSERT INTO t (SELECT k FROM u)", None, "(SELECT k FROM u)"),
        ("REPLACE INTO t WITH a AS (SELECT 1) SELECT * FROM a", None, "WITH a AS (SELECT 1) SELECT * FROM a"),
        ("UPSERT INTO t (k) FROM u", ("k",), "FROM u"),
    ],
)
def test_writes_of_queries(text: str, columns: tuple[str, ...] | None, query: str) -> None:
    [statement] = parse(text)
    assert isinstance(statement, Write)
    assert statement.columns == columns
    assert statement.source == Query(query)


def test_update() -> None:
    [statement] = parse(
        "UPDATE `a/t` SET v = 1, w = CASE WHEN v > 1 THEN (2) END, x = x + 1 WHERE k IN (1, 2) AND t.v = 'x'"
    )
    assert statement == Update(
        "/a/t",
        (
            ("v", parse_expression("1")),
            ("w", parse_expression("CASE WHEN v > 1 THEN (2) END")),
            ("x", parse_expression("x + 1")),
        ),
        parse_expression("k IN (1, 2) AND t.v = 'x'"),
    )
    assert isinstance(statement, Update)
    assert statement.alias == "a/t"
    assert parse("UPDATE t SET v = NULL") == [Update("/t", (("v", parse_expression("NULL")),))]


def test_delete() -> None:
    assert parse("DELETE FROM t") == [Delete("/t")]
    assert parse("DELETE FROM Table WHERE key = 1") == [Delete("/Table", parse_expression("key = 1"))]
    assert parse("DELETE FROM D WHERE key IN (SELECT k FROM u)") == [
        Delete("/D", parse_expression("key IN (SELECT k FROM u)"))
    ]
    assert parse("DELETE FROM t ON (key) VALUES (2), (6)") == [
        DeleteOn("/t", ("key",), values(("2",), ("6",)))
    ]
    assert parse("DELETE FROM t ON (a, b) SELECT a, b FROM u") == [
        DeleteOn("/t", ("a", "b"), Query("SELECT a, b FROM u"))
    ]
    assert parse("DELETE FROM t ON SELECT a FROM u") == [DeleteOn("/t", None, Query("SELECT a FROM u"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("UPSERT t VALUES (1)", "expected INTO"),
        ("UPSERT INTO t", "expected \\(columns\\), VALUES or SELECT"),
        ("UPSERT INTO t (k)", "expected VALUES or SELECT"),
        ("UPSERT INTO t (k,) VALUES (1)", "expected a column name"),
        ("UPSERT INTO t () VALUES (1)", "expected a column name"),
        ("UPSERT INTO t (k) VALUES", "expected \\("),
        ("UPSERT INTO t (k) VALUES ()", "expected an expression"),
        ("UPSERT INTO t (k) VALUES (1", "expected \\)"),
        ("UPSERT INTO t (k) VALUES (1,)", "expected an expression"),
        ("UPSERT INTO t (k) VALUES (1),", "expected \\("),
        ("UPSERT INTO t (k) VALUES (1) (2)", "expected , or the end"),
        ("UPSERT INTO t (k) VALUES (1, 2)", "column 26: this row has 2 values where the columns are 1"),
        ("UPSERT INTO t VALUES (1, 2), (3)", "column 30: this row has 1 values where the first row has 2"),
        ("UPSERT INTO t VALUES (1 2)", "single expression|unexpected|Spark SQL"),
        ("UPSERT INTO t VALUES (a b)", "single expression"),
        ("UPDATE t", "expected SET"),
        ("UPDATE t SET", "expected a column name"),
        ("UPDATE t SET v", "expected ="),
        ("UPDATE t SET v =", "expected an expression"),
        ("UPDATE t SET v = 1,", "expected a column name"),
        ("UPDATE t SET v = 1 WHERE", "expected an expression"),
        ("UPDATE t SET v = 1) x", "expected , or WHERE"),
        ("UPDATE t SET t.v = 1", "expected ="),
        ("DELETE t", "expected FROM"),
        ("DELETE FROM t x", "expected WHERE or ON"),
        ("DELETE FROM t WHERE", "expected an expression"),
        ("DELETE FROM t WHERE k = 1 )", "expected the end"),
        ("DELETE FROM t ON", "expected"),
        ("DELETE FROM t ON VALUES (1)", "expected \\(columns\\)"),
    ],
)
def test_faults_say_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SyntaxFault, match=f"line 1, column .*({message})|line 1, {message}") as caught:
        parse(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "INSERT OVERWRITE t VALUES (1)",
        "INSERT OR REPLACE INTO t VALUES (1)",
        "UPDATE t ON SELECT 1",
        "UPDATE t SET (a, b) = (1, 2)",
    ],
)
def test_what_there_is_elsewhere_is_unsupported(text: str) -> None:
    with pytest.raises(Unsupported):
        parse(text)
