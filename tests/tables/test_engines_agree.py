"""Queries that run in the process give the same rows, types, names and errors on Spark.

A round is 32 random expressions and 8 random queries that the process answers. It depends on its seed alone.
Spark answers the expressions of a round, and the rows of its queries, in one query each. Rows are compared in
any order, unless the order of the query is total. ``make test`` runs a few rounds, and
``STRANDLINE_EXAMPLES=10`` ten times as many with new seeds. ``make engines`` runs the rounds 1 to 250:
10,000 queries. ``make engines ROUNDS=17-17`` repeats one round.
"""

from __future__ import annotations

import math
import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError, SyntaxFault, Unsupported
from strandline.storage import duckdb_files
from tests.effort import EVERY, FACTOR
from tests.quick_files import QuickFiles
from tests.tables.engine_data import COLUMNS, PARAMS, make_edges, make_rows
from tests.tables.engine_expressions import Writer
from tests.tables.engine_queries import QueryWriter
from tests.tables.examples import NoSpark

DEFECTS = ("java.util.NoSuchElementException: None.get", "java.util.NoSuchElementException: key not found")
"""Internal errors of Spark 4.1, for example for EXISTS with OR. They say nothing about the query."""
EXPRESSIONS, QUERIES = 32, 8
"""Number of expressions and queries of a round."""
PER_WORLD = 25
"""Number of rounds over the same tables."""


def seeds() -> range:
    """Return the seeds of the rounds to run."""
    if given := os.environ.get("STRANDLINE_ROUNDS"):
        first, _, last = given.partition("-")
        return range(int(first), int(last or first) + 1)
    if EVERY:
        return range(1, 251)
    start = random.randrange(10**6) if FACTOR else 1
    return range(start, start + 4 * max(FACTOR, 1))


def make_world(folder: Path, seed: int) -> None:
    """Create tables with rows in several segments. In every second world, all of them are files."""
    choose = random.Random(seed)
    columns = ", ".join(
        f"{name} {type_}{' NOT NULL' if name == 'k' else ''}" for name, type_ in COLUMNS.items()
    )
    settings = Settings(inline_rows=0 if seed % 2 else 2000)
    with strandline.connect(folder, files=QuickFiles(folder), spark=NoSpark(), settings=settings) as db:  # type: ignore[arg-type]
        for name in ("t", "u", "e"):
            db.sql(f"CREATE TABLE {name} ({columns}, PRIMARY KEY (k), INDEX by_i32 GLOBAL SYNC ON (i32))")
        for name, count in (("t", 30), ("u", 20)):
            db.table(name).upsert(make_rows(choose, count))
        db.table("e").upsert(make_edges(choose, 3))
        db.table("t").upsert(make_rows(choose, 10))  # Some rows are in two segments.
        db.table("t").delete([{"k": 3}])


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


def run(db: Database, text: str) -> Any:
    """Return the schema and the rows of a query."""
    used = {name: value for name, value in PARAMS.items() if re.search(rf":{name}\b", text)}
    result = db.sql(text, used or None)
    return [(f.name, f.type) for f in result.schema], [plain(tuple(row)) for row in result.rows()]


@dataclass
class Rounds:
    """Rounds of queries over the tables of a world.

    Attributes:
        here: runs all queries in the process, and refuses others.
        there: runs all queries on Spark.
        tried: number of queries that were compared.
        left: number of queries that the process left to Spark.
        defects: number of queries that failed on Spark with an internal error.
        differences: a text for each query with another result on Spark.
    """

    here: Database
    there: Database
    tried: int = 0
    left: int = 0
    defects: int = 0
    differences: list[str] = field(default_factory=list)

    def run(self, seed: int) -> None:
        choose = random.Random(seed)
        table = choose.choice(["t", "t", "e"])
        self._compare_expressions(seed, table, self._expressions(choose, table))
        self._compare_queries(seed, self._queries(choose))

    def _answer(self, text: str) -> Any:
        """Return what the process finds, or None if it needs Spark."""
        try:
            found = run(self.here, text)
        except (Unsupported, SyntaxFault):  # Text that the parser refuses reaches neither engine.
            self.left += 1
            return None
        self.tried += 1
        return found

    def _differs(self, seed: int, text: str, *results: object) -> None:
        if any(defect in str(results[-1]) for defect in DEFECTS):
            self.defects += 1
            return
        self.differences.append("\n   ".join([f"round {seed}: {text}", *map(str, results)]))
        print(self.differences[-1], flush=True)

    def _expressions(self, choose: random.Random, table: str) -> list[tuple[str, Any]]:
        writer, found = Writer(choose), list[tuple[str, Any]]()
        while len(found) < EXPRESSIONS:
            item = writer.expression(writer.any_kind(), choose.choice([1, 2, 2, 3]))
            item = item if choose.random() < 0.4 else f"{item} AS x"
            if (answer := self._answer(f"SELECT {item} FROM {table} ORDER BY k")) is not None:
                found.append((item, answer))
        return found

    def _compare_expressions(self, seed: int, table: str, batch: Sequence[tuple[str, Any]]) -> None:
        """Compare expressions with Spark; of a batch that fails there, find those that do."""
        items = ", ".join(item for item, _ in batch)
        try:
            schema, rows = run(self.there, f"SELECT {items} FROM {table} ORDER BY k")
        except StrandlineError as error:
            if len(batch) == 1:
                self._differs(seed, f"{batch[0][0]} FROM {table}", batch[0][1], error)
                return
            half = len(batch) // 2
            self._compare_expressions(seed, table, batch[:half])
            self._compare_expressions(seed, table, batch[half:])
            return
        for place, (item, (own_schema, own_rows)) in enumerate(batch):
            own, expected = [row[0] for row in own_rows], [row[place] for row in rows]
            if own_schema != [schema[place]]:
                self._differs(seed, f"{item} FROM {table}", own_schema, schema[place])
            elif own != expected:
                pairs = [pair for pair in zip(own, expected, strict=True) if pair[0] != pair[1]]
                self._differs(seed, f"{item} FROM {table}", pairs)

    def _queries(self, choose: random.Random) -> list[tuple[str, bool, Any]]:
        found: list[tuple[str, bool, Any]] = []
        while len(found) < QUERIES:
            query, ordered = QueryWriter(choose).query()
            if (answer := self._answer(query)) is not None:
                found.append((query, ordered, answer))
        return found

    def _compare_queries(self, seed: int, batch: Sequence[tuple[str, bool, Any]]) -> None:
        """Compare queries with Spark: names and types one by one, rows all at once."""
        good = []
        for query, ordered, (own, rows) in batch:
            used = {name: value for name, value in PARAMS.items() if re.search(rf":{name}\b", query)}
            try:
                schema = [(f.name, f.type) for f in self.there.sql(query, used or None).schema]
            except StrandlineError as error:
                self._differs(seed, query, rows, error)
                continue
            if schema != own:
                self._differs(seed, query, own, schema)
            else:
                good.append((query, ordered, (own, rows)))
        self._compare_rows(seed, good)

    def _compare_rows(self, seed: int, batch: Sequence[tuple[str, bool, Any]]) -> None:
        items = []
        for place, (query, _, (schema, _)) in enumerate(batch):
            names = ", ".join(f"c{i}" for i in range(len(schema)))
            items.append(f"(SELECT collect_list(struct({names})) FROM ({query}) AS q({names})) AS r{place}")
        if not items:
            return
        try:
            _, (rows,) = run(self.there, f"SELECT {', '.join(items)}")
        except StrandlineError as error:
            if len(batch) == 1:
                self._differs(seed, batch[0][0], batch[0][2], error)
                return
            half = len(batch) // 2
            self._compare_rows(seed, batch[:half])
            self._compare_rows(seed, batch[half:])
            return
        for (query, ordered, (_, own)), found in zip(batch, rows, strict=True):
            expected = [unsigned(plain(tuple(row))) for row in found]
            mine = [unsigned(row) for row in own]
            if ordered and mine != expected:
                self._differs(seed, query, mine, expected)
            elif Counter(mine) != Counter(expected):
                one, other = Counter(mine), Counter(expected)
                self._differs(seed, query, f"here {one - other}", f"on Spark {other - one}")


@pytest.fixture
def worlds(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that opens the tables of a round."""
    # DuckDB reads files of any size itself.
    monkeypatch.setattr(duckdb_files, "is_small", lambda segment: segment.file is None)
    opened: dict[int, Rounds] = {}

    def open_(seed: int) -> Rounds:
        number = seed // PER_WORLD
        if number not in opened:
            folder = tmp_path / str(number)
            make_world(folder, number)
            opened[number] = Rounds(
                strandline.connect(folder, spark=NoSpark(), settings=Settings(engine="process")),  # type: ignore[arg-type]
                strandline.connect(folder, spark=spark, settings=Settings(engine="spark")),
            )
        return opened[number]

    yield open_
    for each in opened.values():
        each.here.close()
        each.there.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_engines_agree(worlds: Any) -> None:
    used = seeds()
    for seed in used:
        worlds(seed).run(seed)
        if seed % PER_WORLD == PER_WORLD - 1:
            print(f"round {seed} is done", flush=True)
    rounds = {id(r): r for r in map(worlds, used)}.values()
    differences = [each for r in rounds for each in r.differences]
    tried, left, defects = (sum(getattr(r, name) for r in rounds) for name in ("tried", "left", "defects"))
    print(
        f"rounds {used[0]} to {used[-1]}: {tried} queries, {left} left to Spark, {defects} failed inside Spark, "
        f"{len(differences)} differences"
    )
    assert not differences, "\n".join(differences)
    # Few are left to Spark: for a name, at a value, or because an operation fails.
    assert left < 3 * tried and defects < tried / 100
