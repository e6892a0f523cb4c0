"""Expressions: text, tree, and the translation of YQL's words for Spark."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from strandline.errors import SyntaxFault
from strandline.sql.parser import parse
from strandline.sql.statements import Explain, Update
from strandline.sql.syntax import parse_expression
from tests.sql.translated import for_spark


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "1"),
        ("-5ul", "-5"),
        ("1u + 2t + 3us + 4ut", "1 + 2Y + 3 + 4"),
        ("5l + 6S", "5l + 6S"),
        ("'a'u = \"b\"U", "'a' = \"b\""),
        ("CAST(a AS Uint64)", "CAST(a AS DECIMAL(20,0))"),
        ("try_cast(f(a, b) AS utf8)", "try_cast(f(a, b) AS STRING)"),
        ("a::Int8", "a::TINYINT"),
        ("CAST(a AS String)", "CAST(a AS String)"),
        ("(SELECT a AS Utf8)", "(SELECT a AS Utf8)"),
        ("Datetime('2026-01-01T00:00:00Z')", "TIMESTAMP('2026-01-01T00:00:00Z')"),
        ("x.datetime('a')", "x.datetime('a')"),
        ("datetime + 1", "datetime + 1"),
        (r"`a\\b` = 1", r"`a\b` = 1"),
        ("a /* c */ + 1", "a /* c */ + 1"),
    ],
)
def test_for_spark(text: str, expected: str) -> None:
    assert for_spark(parse_expression(text)) == expected


def test_what_stands_behind_other_text_is_rewritten_where_it_stands() -> None:
    (update,) = parse("UPDATE t SET n = 5u + CAST(n AS Int64) WHERE k = 1u")
    assert isinstance(update, Update)
    assert update.where is not None
    assert [for_spark(value) for _, value in update.assignments] == ["5 + CAST(n AS BIGINT)"]
    assert for_spark(update.where) == "k = 1"
    (explain,) = parse("EXPLAIN SELECT 5u + CAST(t.n AS Int64) FROM t JOIN u USING (k)")
    assert isinstance(explain, Explain)
    spark = "SELECT 5 + CAST(t.n AS BIGINT) FROM {a} AS `t` JOIN {b} AS `u` USING (k)"
    assert explain.query.render(["{a}", "{b}"]) == spark


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2",
        "a AS b",
        "a b",
        "*",
        "1, 2",
        "SELECT 1",
        "a FROM t",
        "DISTINCT a",
        "a WHERE b",
        "1 +",
        "(1",
        "a ORDER BY b",
        "k = = 1",
        "CAST(1 AS nothing)",
        "1; 2",
    ],
)
def test_what_is_not_one_expression_is_refused(text: str) -> None:
    with pytest.raises(SyntaxFault, match="line 1, column"):
        parse_expression(text)


def test_the_error_is_where_the_fault_is() -> None:
    with pytest.raises(SyntaxFault, match="line 2, column 5"):
        parse_expression("'a long string' = b AND\nc = = 1")


def test_expressions_are_values() -> None:
    one, two = parse_expression(" k = 1 "), parse_expression("k = 1")
    assert one == two
    assert hash(one) == hash(two)
    assert one != "k = 1"
    assert repr(one) == "Expression('k = 1')"
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.names == {"k"}


def test_a_tree_of_a_single_literal_is_made_when_asked_for() -> None:
    assert parse_expression("5").ast.name


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    for text in (
        "(" * 200 + "1" + ")" * 200,
        "NOT " * 5000 + "a",
        "f(" * 120 + "1" + ")" * 120,
        "- " * 5000 + "1",
    ):
        with pytest.raises(SyntaxFault, match="nested too deeply"):
            parse_expression(text)


def test_reasonable_nesting_is_not() -> None:
    parse_expression("(" * 25 + "k = 1" + ")" * 25)


def test_plain_writes_do_not_import_sqlglot() -> None:
    code = (
        "import sys; from strandline.sql.parser import parse; from strandline.sql.evaluate.literals import literal\n"
        "[s] = parse(\"UPSERT INTO t (k, v) VALUES (-1, 'x'), (2.5, NULL)\")\n"
        "assert [[literal(e) for e in row] for row in s.source.rows][0] == [-1, 'x']\n"
        "parse('SELECT k FROM t ORDER BY k LIMIT 1; BACKUP c; DROP TABLE t')\n"
        "assert 'sqlglot' not in sys.modules and 'pyspark' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
