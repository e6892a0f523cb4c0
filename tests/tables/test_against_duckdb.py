"""Random queries return the same rows in Strandline and in DuckDB, an independent engine.

Queries that the process can answer are run there and, forced, on Spark. ``STRANDLINE_EXAMPLES=10`` runs ten
times as many examples, with a new seed each time. A failure prints the seed, the tables and a simplified
query.
"""

from __future__ import annotations

import itertools
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError
from tests.effort import EVERY, FACTOR
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW, NoSpark
from tests.tables.queries import (
    IN_DUCKDB,
    KINDS,
    Choices,
    Query,
    Writer,
    apply,
    make_change,
    make_rows,
    make_table,
    simplest,
)

LEFT_OUT = {
    "x / y and x % y where y may be 0": "NULL in DuckDB, an error in Spark's ANSI mode",
    "avg of integers and decimals": "a decimal of its own scale in Spark, a double in DuckDB",
    "CAST to and from text": "numbers and dates are written differently",
    "LIKE with a backslash": "an escape in Spark, a letter in DuckDB",
    "comparisons of different kinds": "the engines convert to different types",
    "arithmetic with dates": "intervals have other types and names",
    "LIMIT without a total order": "any rows are right",
    "ORDER BY without NULLS FIRST or LAST": "the defaults differ",
    "-0.0": "one group with 0.0 in Spark",
    "EXISTS or IN (SELECT ...) in a SELECT list or in ON": "Spark takes them only in WHERE",
    "correlated subqueries without an aggregate": "Spark must know that there is one row",
    "FULL JOIN with more than equalities": "DuckDB refuses it",
    "timestamps, bytes, Json, unsigned numbers": "other types in DuckDB; test_types_in_tables compares them with Python's own values",
    "TIMESTAMP AS OF, IN BACKUP": "they lead to a step, too, and have tests of their own",
}
"""Forms outside of the grammar: the engines rightly differ, or the results cannot be compared."""


class World:
    """A database, and a DuckDB table with the same rows for each table and step."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        choices = Choices(seed=seed)
        self.tables = [make_table(choices, name) for name in ("t", "u")]
        with strandline.connect(folder, files=QuickFiles(folder), spark=NoSpark(), settings=ARROW) as db:  # type: ignore[arg-type]
            for table in self.tables:
                db.sql(table.create)
            state: dict[str, list[Any]] = {table.name: [] for table in self.tables}
            self._keep(db, state)
            # Some tables stay empty.
            todo = [
                (table, "upsert", make_rows(choices, table.columns, 5, 16))
                for table in self.tables
                if choices.below(8)
            ]
            for _ in range(choices.below(5)):
                table = choices.pick(self.tables)
                todo.append((table, *make_change(choices, table)))
            for table, mode, given in todo:
                getattr(db.table(table.name), mode)(given)
                state[table.name] = apply(table, state[table.name], mode, given)
                self._keep(db, state)
                if not choices.below(6):
                    db.compact(f"/{table.name}")
        self.duckdb = duckdb.connect()
        self._made: set[str] = set()

    def _keep(self, db: Database, state: dict[str, list[Any]]) -> None:
        for table in self.tables:
            table.states[db.step] = state[table.name]

    def expected(self, query: Query) -> list[tuple[Any, ...]]:
        return self.duckdb.execute(query.for_duckdb(self._in_duckdb)).fetchall()

    def _in_duckdb(self, name: str, step: int | None) -> str:
        table = next(table for table in self.tables if table.name == name)
        step = max(table.states) if step is None else step
        made = f"{name}_{step}"
        if made not in self._made:
            self.duckdb.execute(
                f"CREATE TABLE {made} ({', '.join(f'{c} {IN_DUCKDB[KINDS[c]]}' for c in table.columns)})"
            )
            for row in table.states[step]:
                self.duckdb.execute(f"INSERT INTO {made} VALUES ({', '.join('?' * len(row))})", row)
            self._made.add(made)
        return made

    def compare(
        self, answer: Callable[[Query], list[tuple[Any, ...]]], count: int, *, plain: bool, tries: int = 300
    ) -> None:
        """Compare random queries with DuckDB. Simplify a failing one in at most ``tries`` tries."""

        def differs(numbers: Sequence[int]) -> bool:
            query = Writer(Choices(numbers), self.tables, plain=plain).query()
            try:
                return comparable(answer(query), query.ordered) != comparable(
                    self.expected(query), query.ordered
                )
            except (StrandlineError, duckdb.Error):
                return True

        for number in range(count):
            choices = Choices(seed=1000 * self.seed + number)
            Writer(choices, self.tables, plain=plain).query()
            if differs(choices.taken):
                query = Writer(
                    Choices(simplest(choices.taken, differs, tries)), self.tables, plain=plain
                ).query()
                print(
                    f"seed {self.seed}, {self.tables}\n{query.for_us()}\n{query.for_duckdb(self._in_duckdb)}"
                )
                assert comparable(answer(query), query.ordered) == comparable(
                    self.expected(query), query.ordered
                )


def comparable(rows: list[tuple[Any, ...]], ordered: bool) -> Any:
    """Compare numbers by value: the engines use different types for sums and quotients."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            return "NaN"
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return float(value)
        return value

    found = [tuple(map(plain, row)) for row in rows]
    return found if ordered else Counter(found)


def in_process(db: Database, query: Query) -> list[tuple[Any, ...]]:
    result = db.sql(query.for_us())
    assert result.is_here
    return result.rows()


def on_spark(db: Database, query: Query) -> list[tuple[Any, ...]]:
    # Lookups by key always run in the process; their DataFrames run on Spark.
    found = db.sql(query.for_us()).df.toArrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def seeds(count: int) -> range:
    first = random.randrange(10**6) if FACTOR else 0
    return range(first, first + count * max(FACTOR, 1))


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[], Path]:
    """Prepared warehouses: copying one is faster than creating one."""
    strandline.connect(tmp_path / "empty").close()
    numbers = itertools.count(1)
    return lambda: Path(shutil.copytree(tmp_path / "empty", tmp_path / str(next(numbers))))


@pytest.mark.slow
def test_the_process_answers_as_duckdb_does(folders: Callable[[], Path]) -> None:
    for seed in seeds(25 if EVERY else 12):
        world = World(folders(), seed)
        with strandline.connect(world.folder, spark=NoSpark(), settings=ARROW) as db:  # type: ignore[arg-type]
            world.compare(partial(in_process, db), 40, plain=True)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_spark_answers_as_duckdb_does(folders: Callable[[], Path], spark: Any) -> None:
    for seed in seeds(3 if EVERY else 1):
        world = World(folders(), seed)
        with (
            strandline.connect(world.folder, spark=NoSpark(), settings=ARROW) as here,  # type: ignore[arg-type]
            strandline.connect(world.folder, spark=spark, settings=Settings(scan_rows=-1)) as there,
        ):
            # The process can answer the first of them, too.
            world.compare(partial(in_process, here), 4, plain=True)
            world.compare(partial(on_spark, there), 4, plain=True, tries=60)
            world.compare(partial(on_spark, there), 16, plain=False, tries=60)
