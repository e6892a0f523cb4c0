"""The page on queries in the process has the rules of the translator, and the forms that go to Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlglot import exp
from sqlglot.dialects.spark import Spark

import strandline
from strandline import Database
from strandline.errors import StrandlineError
from strandline.sql.query import parse_query
from strandline.sql.translate import Refused, aggregates, translate
from strandline.sql.translate.compiler import FUNCTIONS
from strandline.sql.translate.queries import QueryCompiler
from strandline.types import parse_type
from tests.tables.examples import NoSpark

PAGE = Path(__file__).parents[2] / "docs/reference/process-queries.md"
HERE, SPARK = PAGE.read_text().split("## What goes to Spark")
COLUMNS = [
    (name, parse_type(type_))
    for name, type_ in re.findall(r"`([a-z]+) ([A-Z][A-Za-z0-9]+(?:\(\d+,\d+\))?)`", HERE.split("##")[0])
]


def cells(text: str) -> list[list[str]]:
    """Return the examples in each row of the tables of a text: what is in backquotes."""
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [[each.replace("\\|", "|") for each in re.findall(r"`([^`]+)`", row)] for row in rows]


EXAMPLES = [each for row in cells(HERE) for each in row]
FORMS = {
    found[1].replace("\\|", "|"): found[2]
    for found in re.finditer(r"^\| `(.*)` \| (.*) \|$", SPARK, re.MULTILINE)
}


def translated(example: str) -> tuple[exp.Expr | None, object]:
    """Return the tree of an example, and its translation."""
    text = example if example.startswith(("SELECT", "WITH")) else f"SELECT {example} AS x FROM t"
    params = {"parameter": 1} if ":parameter" in text else {}
    query = parse_query(text, params)
    found = translate(query, [COLUMNS] * len(query.tables), named=False)
    return query.tree() if query.tree is not None else None, found


def test_the_page_is_read() -> None:
    assert len(COLUMNS) == 10 and len(EXAMPLES) > 100 and len(FORMS) > 40


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_in_the_process(example: str) -> None:
    found = translated(example)[1]
    assert not isinstance(found, Refused), found.reason


def test_each_rule_has_an_example() -> None:
    """A rule that is not on the page would be one that users do not know of."""
    trees = [tree for tree, _ in map(translated, EXAMPLES) if tree is not None]
    kinds = {type(node).__name__ for tree in trees for node in tree.walk()}
    rules = {*QueryCompiler.rules, *aggregates._RULES, *aggregates._RANKS}
    # sqlglot makes some nodes only of the functions of other dialects, or of NOT before another node.
    assert rules - kinds <= {"TryCast", "NullSafeNEQ"}, sorted(rules - kinds)
    called = {name for example in EXAMPLES for name in re.findall(r"([a-z_]+)\(", example)}
    assert called - {"parameter"} == FUNCTIONS, sorted(called ^ FUNCTIONS)


ARGUMENTS = (
    *("", "*", "i", "d", "s", "b", "at", "day", "s, s", "i, i", "s, 1", "b, i, i", "s, 1, 2"),
    *("s, 'a', s", "s, 'a'"),
)


def test_no_other_function_runs_in_the_process() -> None:
    """sqlglot reads many names as functions that have a rule. Spark does not know most of them.

    Four operators may also be written as functions.
    """
    names = {name.lower() for name in (*Spark.Parser.FUNCTIONS, *Spark.Parser.FUNCTION_PARSERS)}
    found = set()
    for name in names - FUNCTIONS - {"and", "or", "div", "like"}:
        for over in ("", " OVER (ORDER BY i)"):
            for arguments in ARGUMENTS:
                try:
                    result = translated(f"{name}({arguments}){over}")[1]
                except StrandlineError:
                    continue
                if not isinstance(result, Refused):
                    found.add(name)
    assert found == set()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    columns = ", ".join(f"{name} {type_.name}{' NOT NULL' if name == 'l' else ''}" for name, type_ in COLUMNS)
    with strandline.connect(tmp_path_factory.mktemp("page"), spark=NoSpark()) as db:  # type: ignore[arg-type]
        for name in ("t", "u"):
            db.sql(f"CREATE TABLE {name} ({columns}, PRIMARY KEY (l))")
        yield db


@pytest.mark.parametrize("query", FORMS)
def test_a_form_goes_to_spark(db: Database, query: str) -> None:
    where, details = db.sql(f"EXPLAIN {query}").rows()[0][2:]
    assert (where, details.partition(";")[0]) == ("on Spark", FORMS[query])
