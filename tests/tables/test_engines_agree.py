"""Queries that run in the process give the same rows, types, names and errors on Spark.

Random expressions are tried one by one in the process, and those with a result many at once on Spark. Random
queries are compared by their rows in any order, unless their own order is total. ``STRANDLINE_EVERY`` tries
10,000 of both; ``STRANDLINE_EXAMPLES=10`` ten times as many as ``make test``, with new seeds.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError, Unsupported
from tests.effort import EVERY, FACTOR
from tests.quick_files import QuickFiles
from tests.tables.engine_queries import COLUMNS, QueryWriter, Writer, make_rows
from tests.tables.examples import NoSpark

EXPRESSIONS = 8000 if EVERY else 160 * max(FACTOR, 1)
QUERIES = 2000 if EVERY else 20 * max(FACTOR, 1)
TOGETHER = 40
"""Number of expressions, and half the number of queries, that are one query on Spark."""


def make_warehouse(folder: Path) -> None:
    choose = random.Random(7)
    columns = ", ".join(
        f"{name} {type_}{' NOT NULL' if name == 'k' else ''}" for name, type_ in COLUMNS.items()
    )
    with strandline.connect(folder, files=QuickFiles(folder), spark=NoSpark()) as db:  # type: ignore[arg-type]
        for name, count in (("t", 30), ("u", 20)):
            db.sql(f"CREATE TABLE {name} ({columns}, PRIMARY KEY (k), INDEX by_i32 GLOBAL SYNC ON (i32))")
            db.table(name).upsert(make_rows(choose, count))
        db.table("t").upsert(make_rows(choose, 10))  # Some rows are in two segments.
        db.table("t").delete([{"k": 3}])


@pytest.fixture
def engines(tmp_path: Path, spark: Any) -> Iterator[tuple[Database, Database]]:
    make_warehouse(tmp_path / "w")
    with (
        strandline.connect(tmp_path / "w", spark=NoSpark(), settings=Settings(engine="process")) as here,  # type: ignore[arg-type]
        strandline.connect(tmp_path / "w", spark=spark, settings=Settings(engine="spark")) as there,
    ):
        yield here, there


def seed() -> int:
    return random.randrange(10**6) if FACTOR else 1


def plain(value: Any) -> Any:
    """Return a value that can be compared and counted: NaN equals itself, and zero has a sign."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def unsigned(value: Any) -> Any:
    """Return a value without the sign of zero: which of two equal values is the least is not defined."""
    return tuple(map(unsigned, value)) if isinstance(value, tuple) else "0.0" if value == "-0.0" else value


def answer(db: Database, query: str) -> Any:
    """Return the schema and the rows of a query, or the code of its error."""
    try:
        result = db.sql(query)
        return [(f.name, f.type) for f in result.schema], [plain(row) for row in result.rows()]
    except StrandlineError as error:
        return error.code


def runs_here(here: Database, query: str) -> Any:
    """Return what the process finds, or None if it needs Spark."""
    try:
        result = here.sql(query)
        return [(f.name, f.type) for f in result.schema], [plain(row) for row in result.rows()]
    except Unsupported:
        return None


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_expressions_agree(engines: tuple[Database, Database]) -> None:
    here, there = engines
    choose = random.Random(seed())
    writer = Writer(choose)
    tried = left = 0
    while tried < EXPRESSIONS:
        batch: list[tuple[str, Any]] = []
        while len(batch) < TOGETHER:
            item = writer.expression(writer.any_kind(), choose.choice([1, 2, 2, 3]))
            item = item if choose.random() < 0.4 else f"{item} AS x"
            found = runs_here(here, f"SELECT {item} FROM t ORDER BY k")
            if found is None:
                left += 1
            else:
                batch.append((item, found))
        compare(there, batch)
        tried += len(batch)
    # Few are left to Spark: for a name, at a value, or because an operation fails.
    assert left < 2 * tried


def compare(there: Database, batch: Sequence[tuple[str, Any]]) -> None:
    """Compare expressions with Spark; of a batch that fails there, find the one that does."""
    items = ", ".join(item for item, _ in batch)
    found = answer(there, f"SELECT {items} FROM t ORDER BY k")
    if isinstance(found, str):
        assert len(batch) > 1, f"{batch[0][0]}: {found} on Spark, a result in the process"
        half = len(batch) // 2
        compare(there, batch[:half])
        compare(there, batch[half:])
        return
    schema, rows = found
    for place, (item, (own_schema, own_rows)) in enumerate(batch):
        assert own_schema == [schema[place]], item
        assert [row[0] for row in own_rows] == [row[place] for row in rows], item


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_queries_agree(engines: tuple[Database, Database]) -> None:
    here, there = engines
    choose = random.Random(seed() + 1)
    tried = left = 0
    while tried < QUERIES:
        batch: list[tuple[str, bool, Any]] = []
        while len(batch) < TOGETHER // 2:
            query, ordered = QueryWriter(choose).query()
            found = runs_here(here, query)
            if found is None:
                left += 1
            else:
                batch.append((query, ordered, found))
        compare_queries(there, batch)
        tried += len(batch)
    assert left < 2 * tried


def compare_queries(there: Database, batch: Sequence[tuple[str, bool, Any]]) -> None:
    """Compare queries with Spark: names and types one by one, rows all at once."""
    for query, _, (schema, _) in batch:
        try:
            assert [(f.name, f.type) for f in there.sql(query).schema] == schema, query
        except StrandlineError as error:
            raise AssertionError(f"{query}: {error} on Spark, a result in the process") from error
    items = []
    for place, (query, _, (schema, _)) in enumerate(batch):
        names = ", ".join(f"c{i}" for i in range(len(schema)))
        items.append(f"(SELECT collect_list(struct({names})) FROM ({query}) AS q({names})) AS r{place}")
    try:
        (rows,) = there.sql(f"SELECT {', '.join(items)}").rows()
    except StrandlineError as error:
        assert len(batch) > 1, f"{batch[0][0]}: {error} on Spark, a result in the process"
        half = len(batch) // 2
        compare_queries(there, batch[:half])
        compare_queries(there, batch[half:])
        return
    for (query, ordered, (_, own)), found in zip(batch, rows, strict=True):
        expected = [unsigned(plain(tuple(row))) for row in found]
        mine = [unsigned(row) for row in own]
        if ordered:
            assert mine == expected, query
        else:
            assert Counter(mine) == Counter(expected), query
