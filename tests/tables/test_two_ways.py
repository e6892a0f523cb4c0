"""Random schemas and statements have the same result in the process, on Spark and in a model.

After each step, the table and its indexes are compared row by row, the digests of both ways with each other,
and recorded digests with the rows. ``STRANDLINE_EXAMPLES=10`` runs ten times as many examples, with a new
seed each time.
"""

from __future__ import annotations

import copy
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import strandline
from strandline import Database
from strandline.errors import PreconditionFailed, StrandlineError
from strandline.types import parse_type
from tests.effort import FACTOR
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW, SPARK, NoSpark, content
from tests.tables.model import (
    MOVES,
    POOL,
    Column,
    Condition,
    Delete,
    DeleteOn,
    Index,
    Model,
    Moved,
    Refused,
    Statement,
    Update,
    Write,
    comparable,
    has_literal,
    quoted,
)

ORDERABLE = [name for name in POOL if parse_type(name).orderable]
NAMES = ["k", "k2", "key three", "v", "w", "Ünïcödé", "a`b", "x.y"]


def values(column: Column) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *POOL[column.type.name]])


def statements_of(model: Model, *, spark: bool) -> st.SearchStrategy[Statement]:
    """Return statements on the present table, mostly on existing keys or similar ones."""

    @st.composite
    def rows(draw: st.DrawFn, size: int = 4) -> tuple[dict[str, Any], ...]:
        made = []
        optional = [c for c in model.columns if c.name not in model.key]
        chosen = draw(st.lists(st.sampled_from(optional), unique=True) if optional else st.just([]))
        for _ in range(draw(st.integers(1, size))):
            if draw(st.integers(0, 4)) == 0:
                chosen = draw(st.lists(st.sampled_from(optional), unique=True) if optional else st.just([]))
            names = [c for c in model.columns if c.name in model.key] + chosen
            made.append({c.name: draw(values(c)) for c in names})
        return tuple(made)

    @st.composite
    def conditions(draw: st.DrawFn) -> Condition:
        column = draw(st.sampled_from([c for c in model.columns if c.type.orderable]))
        sign = draw(st.sampled_from(["=", "=", ">=", "<", "IS NULL", ""]))
        if not sign:
            return Condition()
        return Condition(column.name, sign, None if sign == "IS NULL" else draw(values(column)))  # type: ignore[arg-type]

    @st.composite
    def writes(draw: st.DrawFn) -> Write:
        made = draw(rows())
        text = (
            draw(st.booleans())
            and all(has_literal(v) for row in made for v in row.values())
            and len({tuple(r) for r in made}) == 1
        )
        return Write(draw(st.sampled_from(["UPSERT", "UPSERT", "INSERT", "REPLACE"])), made, text)

    @st.composite
    def updates(draw: st.DrawFn) -> Update:
        others = [c for c in model.columns if c.name not in model.key]
        chosen = draw(st.lists(st.sampled_from(others), min_size=1, max_size=2, unique=True))
        return Update({c.name: draw(values(c).filter(has_literal)) for c in chosen}, draw(conditions()))

    @st.composite
    def erases(draw: st.DrawFn) -> DeleteOn:
        keys = draw(st.lists(st.tuples(*(values(model[n]) for n in model.key)), min_size=1, max_size=3))
        return DeleteOn(tuple(keys), draw(st.booleans()))

    @st.composite
    def moves(draw: st.DrawFn) -> Moved:
        column = draw(st.sampled_from([n for n in model.key if model[n].type.kind in MOVES]))
        rest = draw(
            st.lists(st.sampled_from([n for n in model.names if n not in model.key] or [""]), unique=True)
        )
        names = (*model.key, *(n for n in rest if n))
        sql, function = MOVES[model[column].type.kind]
        return Moved(
            draw(st.sampled_from(["UPSERT", "REPLACE"])), column, names, draw(conditions()), sql, function
        )

    kinds: list[st.SearchStrategy[Any]] = [writes(), writes(), writes(), conditions().map(Delete), erases()]
    if len(model.columns) > len(model.key):
        kinds.append(updates())
    if spark and any(model[n].type.kind in MOVES for n in model.key):
        kinds += [moves(), moves()]
    return st.one_of(kinds)


class Machine(RuleBasedStateMachine):
    """A table in one or two databases, and its model."""

    spark = False

    def __init__(self, open_all: Callable[[], list[Database]]) -> None:
        super().__init__()
        self.writers = open_all()
        self.readers = self.writers
        self.model = Model([], ())

    # --- the schema ----------------------------------------------------------------------------------------

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        width = data.draw(st.integers(1, 3), label="key columns")
        others = data.draw(st.integers(0, 4), label="other columns")
        columns = []
        for number, name in enumerate(NAMES[:width] + NAMES[3 : 3 + others]):
            type_ = parse_type(data.draw(st.sampled_from(ORDERABLE if number < width else list(POOL))))
            columns.append(Column(name, type_, data.draw(st.integers(0, 5)) == 0))
        key = tuple(data.draw(st.permutations([c.name for c in columns[:width]])))
        self.model = Model(columns, key)
        for number in range(data.draw(st.integers(0, 3), label="indexes")):
            self.model.indexes.append(self._index(data, f"i{number}"))
        for db in self.writers:
            db.sql(self.model.create)
        self.compare()

    def _index(self, data: st.DataObject, name: str) -> Index:
        orderable = [c.name for c in self.model.columns if c.type.orderable]
        columns = tuple(data.draw(st.lists(st.sampled_from(orderable), min_size=1, max_size=2, unique=True)))
        rest = [n for n in self.model.names if n not in columns and n not in self.model.key]
        cover = tuple(data.draw(st.lists(st.sampled_from(rest), max_size=2, unique=True))) if rest else ()
        return Index(name, columns, cover, data.draw(st.integers(0, 3), label="unique") == 0)

    @precondition(lambda self: len(self.model.columns) < 8)
    @rule(data=st.data())
    def add_column(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([n for n in NAMES if n not in self.model.names]))
        column = Column(name, parse_type(data.draw(st.sampled_from(list(POOL)))))
        self._alter(f"ADD COLUMN {column.definition}")
        self.model.columns.append(column)
        for row in self.model.rows.values():
            row[name] = None
        self.compare()

    def _free_columns(self) -> list[str]:
        used = {n for i in self.model.indexes for n in (*i.columns, *i.cover)} | set(self.model.key)
        return [n for n in self.model.names if n not in used]

    @precondition(lambda self: self._free_columns())
    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._free_columns()))
        self._alter(f"DROP COLUMN {quoted(name)}")
        self.model.columns = [c for c in self.model.columns if c.name != name]
        for row in self.model.rows.values():
            del row[name]
        self.compare()

    @precondition(lambda self: len(self.model.indexes) < 3)
    @rule(data=st.data())
    def add_index(self, data: st.DataObject) -> None:
        index = self._index(
            data, next(n for n in ("i0", "i1", "i2", "i3") if n not in {i.name for i in self.model.indexes})
        )
        try:
            self.model.check_unique(index)
        except Refused:
            for db in self.writers:
                with pytest.raises(PreconditionFailed, match="is unique"):
                    db.sql(f"ALTER TABLE t ADD {index.definition}")
        else:
            self._alter(f"ADD {index.definition}")
            self.model.indexes.append(index)
        self.compare()

    @precondition(lambda self: self.model.indexes)
    @rule(data=st.data())
    def drop_index(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(self.model.indexes))
        self._alter(f"DROP INDEX {quoted(index.name)}")
        self.model.indexes.remove(index)
        self.compare()

    def _alter(self, action: str) -> None:
        for db in self.writers:
            db.sql(f"ALTER TABLE t {action}")

    # --- the rows ------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        statement = data.draw(statements_of(self.model, spark=self.spark), label="statement")
        self._run([statement], transaction=False)

    @rule(data=st.data())
    def change_again(self, data: st.DataObject) -> None:
        """Make changes twice as often as other rules."""
        self.change(data)

    @rule(data=st.data())
    def transaction(self, data: st.DataObject) -> None:
        several = data.draw(
            st.lists(statements_of(self.model, spark=self.spark), min_size=2, max_size=3), label="statements"
        )
        self._run(several, transaction=True)

    def _run(self, statements: list[Statement], *, transaction: bool) -> None:
        after = copy.deepcopy(self.model)
        expected: set[str] = set()
        try:
            for statement in statements:
                statement.on(after)
            after.check_unique(*after.indexes)
        except Refused as refused:
            expected = refused.codes
        for db in self.writers:
            before = db.step
            try:
                if transaction:
                    with db.transaction():
                        for statement in statements:
                            statement.run(db)
                else:
                    statements[0].run(db)
            except StrandlineError as error:
                if error.code not in expected:
                    raise
                assert db.step == before
            else:
                assert not expected, f"{statements} should have been refused with {expected}"
                assert db.step <= before + 1
        if not expected:
            self.model = after
        self.compare()

    @rule()
    def compact(self) -> None:
        for db in self.readers:
            db.compact("/t")
        self.compare()

    # --- the law -------------------------------------------------------------------------------------------

    def compare(self) -> None:
        found = [self._look(db) for db in self.readers]
        assert all(digests == found[0] for digests in found[1:])

    def _look(self, db: Database) -> list[tuple[int, str]]:
        assert comparable(content(db, "/t")) == comparable(self.model.shown())
        paths = ["/t"]
        for index in self.model.indexes:
            paths.append(f"/t/{index.name}/indexImplTable")
            assert comparable(content(db, paths[-1])) == comparable(self.model.entries(index))
        report = db.check("/t")
        assert report.ok, report.problems
        described = [db.describe(path) for path in paths]
        assert all(d["rows"] == len(self.model.rows) for d in described)
        return [(d["rows"], d["digest"]) for d in described]

    def teardown(self) -> None:
        for db in {id(db): db for db in (*self.writers, *self.readers)}.values():
            db.close()


class SparkMachine(Machine):
    """Two databases; one works entirely on Spark, and its rows are read in the process."""

    spark = True

    def __init__(self, open_all: Callable[[], list[Database]]) -> None:
        super().__init__(open_all)
        here, there, reader = self.writers
        self.writers = [here, there]
        self.readers = [here, reader]


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[], Path]:
    """Prepared warehouses: copying one is faster than creating one."""
    strandline.connect(tmp_path / "empty").close()
    numbers = itertools.count(1)

    def make() -> Path:
        path = tmp_path / str(next(numbers))
        shutil.copytree(tmp_path / "empty", path)
        return path

    return make


def profile(examples: int, steps: int) -> settings:
    """A profile with fixed examples and without shrinking, which would take an hour on Spark."""
    return settings(
        max_examples=examples * max(FACTOR, 1),
        stateful_step_count=steps,
        derandomize=FACTOR == 0,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_the_process_does_what_the_model_does(folders: Callable[[], Path]) -> None:
    def open_all() -> list[Database]:
        path = folders()
        return [strandline.connect(path, files=QuickFiles(path), spark=NoSpark(), settings=ARROW)]  # type: ignore[arg-type]

    run_state_machine_as_test(lambda: Machine(open_all), settings=profile(10, 20))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_spark_does_what_the_process_and_the_model_do(folders: Callable[[], Path], spark: Any) -> None:
    def open_all() -> list[Database]:
        here, there = folders(), folders()
        return [
            strandline.connect(here, files=QuickFiles(here), spark=spark, settings=ARROW),
            strandline.connect(there, files=QuickFiles(there), spark=spark, settings=SPARK),
            strandline.connect(there, files=QuickFiles(there), spark=NoSpark(), settings=ARROW),  # type: ignore[arg-type]
        ]

    run_state_machine_as_test(lambda: SparkMachine(open_all), settings=profile(4, 12))  # type: ignore[arg-type]
