"""Any two of backup, increment, restore, DDL and drop at the same time.

Each is done or refused, and the final state is one that the statements give one after the other.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from strandline import Database, names
from strandline.catalog import operations
from strandline.errors import StrandlineError
from tests import catalogs
from tests.backups.branches import Branches
from tests.backups.reading import backups, contents, open_at, records
from tests.backups.test_orders import make
from tests.effort import EVERY

Outcome = str
"""``done``, or the error code."""


class Pair:
    """Two processes on one warehouse, which is reset before each ``run``."""

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._start = branches.keep()
        self._catalogs = branches.connect(), branches.connect()
        self.seen: list[str] = []
        """Inconsistencies that were seen after a transaction."""
        self.turns = [0, 0]
        """Number of transactions of each process in the last run."""

    def alone(self, statements: Iterable[str]) -> tuple[list[Outcome], Any]:
        """Run statements one after the other; return their outcomes and the final state."""
        db, _ = self._begin(lambda: None, lambda: None)
        return [_outcome(db, statement) for statement in statements], self._picture(db)

    def run(self, first: str, second: str, at: int, upto: int | None) -> tuple[list[Outcome], Any]:
        """Run two statements with a given interleaving.

        The second one begins after ``at`` transactions of the first, stops after ``upto`` transactions of its
        own (None: when it is done), and continues when the first is done.
        """
        stopped, go_on = threading.Event(), threading.Event()
        self.turns = [0, 0]
        told = ["", ""]

        def first_has() -> None:
            self._look()
            self.turns[0] += 1
            if self.turns[0] == at:
                other.start()
                assert stopped.wait(300)

        def second_has() -> None:
            self._look()
            self.turns[1] += 1
            if self.turns[1] == upto:
                stopped.set()
                assert go_on.wait(300)

        def follow() -> None:
            try:
                told[1] = _outcome(two, second)
            except BaseException as error:
                told[1] = repr(error)
            finally:
                stopped.set()

        one, two = self._begin(first_has, second_has)
        other = threading.Thread(target=follow, daemon=True)
        told[0] = _outcome(one, first)
        go_on.set()
        if self.turns[0] < at:
            other.start()  # The first one was done before.
        other.join(300)
        return told, self._picture(one)

    def _begin(self, *hooks: Callable[[], None]) -> tuple[Database, Database]:
        self._branches.go_back(self._start)
        one, two = (self._branches.database(catalog) for catalog in self._catalogs)
        for catalog, hook in zip(self._catalogs, hooks, strict=True):
            catalog.after_commit = hook
        return one, two

    def _picture(self, db: Database) -> Any:
        for catalog in self._catalogs:
            catalog.after_commit = lambda: None
        return picture(db)

    def _look(self) -> None:
        """Check all that a reader can see. It changes only with a transaction."""
        with self._branches.catalog.read() as conn:
            self.seen += catalogs.disagreements(conn)


def _outcome(db: Database, statement: str) -> Outcome:
    try:
        db.sql(statement)
    except StrandlineError as error:
        return error.code
    return "done"


def picture(db: Database) -> Any:
    """Return all that users can see: tables with indexes and rows, and the content of each backup.

    It also lists what is left over, locked or inconsistent.
    """
    runtime = db._runtime
    with runtime.catalog.read() as conn:
        every = [p for p in catalogs.all_paths(conn) if not names.is_binned(p.path)]
        there = [p for p in every if p.type == "table" and not p.path.startswith("/.backups")]
        collections = [p.name for p in every if p.type == "backup_collection"]
        wrong = catalogs.leaks(conn) + catalogs.disagreements(conn)
        wrong += [f"{o.kind} is {o.state}" for o in operations.unfinished_operations(conn)]
    tables = {}
    for path in (p.path for p in there if p.name != "indexImplTable"):
        described = db.describe(path)
        rows = sorted(map(repr, db.sql(f"SELECT * FROM `{path}`").rows()))
        indexes = sorted(index["name"] for index in described["indexes"])
        tables[_place(path)] = ([c["name"] for c in described["columns"]], indexes, rows)
        wrong += [f"{p.path}: {p.message}" for p in db.check(path).problems]
    held = {name: [(r.kind, contents(db, r.name, name)) for r in records(db, name)] for name in collections}
    wrong += [f"{p.path}: {p.message}" for name in collections for p in db.verify(name)]
    return tables, held, wrong


def _place(path: str) -> str:
    """Return the path of a table; for a replaced one, without the time."""
    return path if not path.startswith("/.replaced/") else f"/.replaced/{path.split('/', 3)[3]}"


STATEMENTS = {
    "backup": "BACKUP c",
    "incremental": "BACKUP c INCREMENTAL",
    "restore": "RESTORE c INTO 'r'",
    "replace": "RESTORE c TABLE t WITH (REPLACE = 'true')",
    "column": "ALTER TABLE t ADD COLUMN x Int64",
    "index": "ALTER TABLE t ADD INDEX by_both GLOBAL SYNC ON (v, n)",
    "drop table": "DROP TABLE t",
    "drop backup": "DROP BACKUP c 'LAST' CONFIRM",
    "drop collection": "DROP BACKUP COLLECTION c",
}
BUSY = {"UNDER_OPERATION", "CONFLICT"}


class Pairs(Pair):
    def __init__(self, branches: Branches, last: str) -> None:
        super().__init__(branches)
        self.statements = {name: text.replace("LAST", last) for name, text in STATEMENTS.items()}
        self._known: dict[tuple[str, ...], tuple[list[Outcome], Any]] = {}

    def one_after_the_other(self, *names: str) -> tuple[list[Outcome], Any]:
        if names not in self._known:
            self._known[names] = self.alone([self.statements[name] for name in names])
        return self._known[names]

    def check(self, first: str, second: str, at: int, upto: int | None) -> list[Outcome]:
        told, found = self.run(self.statements[first], self.statements[second], at, upto)
        turns = self.turns
        assert self.seen == [], "a reader could see versions that do not fit"
        assert found[2] == [], "something is left over"
        names = {first: told[0], second: told[1]} if first != second else None
        done = [name for name, each in zip((first, second), told, strict=True) if each == "done"]
        assert done, told
        orders = [self.one_after_the_other(*order) for order in set(itertools.permutations(done))]
        assert found in [expected for _, expected in orders], (told, done)
        for name, each in (names or {first: told[1]}).items():
            if each != "done" and each not in BUSY:
                other = second if name == first else first
                assert each == self.one_after_the_other(other, name)[0][1], (
                    f"{name} was refused for no reason"
                )
        self.turns = turns
        return told


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    folder = tmp_path_factory.mktemp("pairs") / "w"
    branches = Branches(folder, make)
    with open_at(folder) as db:
        last = backups(db)[-1]
    yield Pairs(branches, last)
    branches.close()


@pytest.mark.slow
def test_any_two_at_the_same_time(pairs: Pairs) -> None:
    """Run each pair, or a part of them, once, at random places."""
    random_ = random.Random(3)
    told = set()
    for one, two in [*itertools.combinations_with_replacement(STATEMENTS, 2)][:: 1 if EVERY else 4]:
        first, second = random_.sample((one, two), 2)
        told |= set(pairs.check(first, second, random_.randint(1, 12), random_.choice((None, 1, 2, 5, 12))))
    assert {"done", "UNDER_OPERATION"} <= told


@pytest.mark.skipif(not EVERY, reason="takes many minutes; make exhaustive runs it")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", STATEMENTS)
def test_any_two_at_every_place(pairs: Pairs, first: str) -> None:
    """Run the second statement after every transaction of the first.

    If it is not refused at once, it also pauses, after every third of its transactions, until the first is
    done.
    """
    for second in STATEMENTS:
        at, is_over = 1, False
        while not is_over:
            pairs.check(first, second, at, None)
            (turns, others), is_over = pairs.turns, pairs.turns[0] <= at
            for upto in range(1 + at % 3, others, 3):
                pairs.check(first, second, at, upto)
            assert turns >= 1
            at += 1
