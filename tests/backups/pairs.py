"""Two concurrent statements, interleaved as a test decides, and the state after them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from strandline import Database, names
from strandline.catalog import operations
from strandline.errors import StrandlineError
from tests import world
from tests.backups.branches import Branches
from tests.backups.reading import contents, records

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
            self.seen += world.disagreements(conn)


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
        every = [p for p in world.all_paths(conn) if not names.is_binned(p.path)]
        there = [p for p in every if p.type == "table" and not p.path.startswith("/.backups")]
        collections = [p.name for p in every if p.type == "backup_collection"]
        wrong = world.leaks(conn) + world.disagreements(conn)
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
