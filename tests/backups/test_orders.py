"""Parts of a backup, an increment and a restore in all orders, with deaths at every transition.

All of them end in the same catalog. There are two tables with two indexes each.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator

import pytest
from sqlalchemy import select

from strandline import Database
from strandline.backups.collection import CollectionRequest
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.catalog import operations, sqltables
from strandline.catalog.operations import DONE, PartRow
from strandline.records import Record
from tests import engines
from tests.backups.branches import Branches
from tests.backups.reading import CLUSTER
from tests.effort import EVERY


class Orders:
    """One started operation, and all orders of its parts."""

    def __init__(self, branches: Branches, kind: str, request: Record) -> None:
        self.branches = branches
        self.engine = branches.process()
        self.engine.start(kind, request)
        self.start = branches.keep()
        self._planned = [self._name(part) for part in self.engine.transitions.runnable("op")[1]]
        self.nodes: dict[frozenset[str], str] = {}
        self.edges = self.deaths = 0

    def plain(self) -> str:
        """Return the end state if the parts run as planned."""
        self._again(self.start)
        assert self.engine.run("op").state == DONE
        return self.branches.canonical()

    def shuffled(self, random_: random.Random, *, whole: bool, dies: float) -> str:
        """Return the end state of a random order of parts.

        Args:
            whole: Run one part after the other; otherwise mix their phases.
            dies: Probability that the process dies after a transition.
        """
        self._again(self.start)
        while runnable := self.engine.transitions.runnable("op")[1]:
            part = random_.choice(runnable)
            while True:
                part = self._transition(part)
                if random_.random() < dies:
                    self._die()
                if not whole or part.state == DONE:
                    break
        self.engine.step("op")
        return self.branches.canonical()

    def explore(self, *, deaths: bool, reduced: bool = False) -> set[str]:
        """Return all end states.

        A node is a set of finished parts. All orders that lead to a node must give the same catalog, so only
        one of them is followed further; then all orders give the same end state.

        Args:
            deaths: After each transition the process dies, and another one takes over.
            reduced: Parts of different tables commute, so it is enough to follow the orders in which all
                parts of the first table
            come before those of the others. That they commute is checked in every state of the first table,
                with each part of
            another table: before and after each part of the first table, both orders give the same catalog.
                With deaths, no part
            follows such a part.
        """
        level = {frozenset[str](): self.start}
        ends = set()
        while level:
            following: dict[frozenset[str], sqlite3.Connection] = {}
            for done, here in level.items():
                self._again(here)
                runnable = self.engine.transitions.runnable("op")[1]
                for part in self._followed(done, runnable, deaths=deaths) if reduced else runnable:
                    self._again(here)
                    self._carry_out(part, deaths=deaths)
                    node, state = done | {self._name(part)}, self.branches.canonical()
                    assert state == self.nodes.setdefault(node, state), sorted(node)
                    if node not in following:
                        following[node] = self.branches.keep()
                if not runnable:
                    self.engine.step("op")
                    ends.add(self.branches.canonical())
                if here is not self.start:
                    here.close()
            level = following
        return ends

    def _name(self, part: PartRow) -> str:
        """Return a name that does not depend on the order; the table comes first."""
        at = sqltables.parts.c
        path = select(at.path).where(at.operation_id == "op", at.id == part.id)
        with self.branches.catalog.read() as conn:
            table = str(conn.execute(path).scalar_one()).split("/")[1]
        return f"{table} {part.kind} {part.stage} {part.body}"

    def _followed(self, done: frozenset[str], runnable: list[PartRow], *, deaths: bool) -> list[PartRow]:
        """Return the parts of the first table. When it is done, return all others, otherwise one of them."""
        names = {part.id: self._name(part) for part in runnable}
        first = min({name.split()[0] for name in self._planned})
        mine = [part for part in runnable if names[part.id].split()[0] == first]
        has_other = any(name.split()[0] != first for name in done)
        if mine and has_other:
            return [] if deaths else mine
        return runnable

    def _again(self, kept: sqlite3.Connection) -> None:
        """Continue from a saved state, as the process that owns the operation."""
        self.branches.go_back(kept)
        self.engine = self.branches.process()
        owner = self.engine.get("op").session_id
        self.engine.lease = self.engine.transitions.lease = engines.Process(self.branches.catalog, owner)

    def _carry_out(self, part: PartRow, *, deaths: bool) -> None:
        self.edges += 1
        while part.state != DONE:
            part = self._transition(part)
            if deaths:
                self._die()

    def _transition(self, part: PartRow) -> PartRow:
        assert self.engine.transitions.advance(self.engine.get("op"), part)
        with self.branches.catalog.read() as conn:
            return operations.present_parts(conn, "op", [part.id])[part.id]

    def _die(self) -> None:
        self.deaths += 1
        self.branches.bury()
        self.engine = self.branches.process()
        assert self.engine.take_over() == ["op"]


BACKUP = CollectionRequest(collection="c")
FIRST: dict[str, tuple[str, Record, int]] = {
    "first backup": ("backup", CollectionRequest(collection="first"), 10)
}
"""A backup without streams to drop has few parts, so all orders can be followed."""
REQUESTS: dict[str, tuple[str, Record, int]] = {
    "backup": ("backup", BACKUP, 10),
    "incremental backup": ("incremental backup", BACKUP, 12),
    "restore": ("restore", RestoreRequest(collection="c", into="r", verify=True), 12),
    "restore of copies": ("restore", RestoreRequest(collection="c", into="r", verify=True, copy=True), 12),
    "restore in place": ("restore", RestoreRequest(collection="c", replace=True), 12),
    **(FIRST if EVERY else {}),
}
"""Kind, request, and minimum number of planned parts."""
REDUCED = {"backup", "incremental backup"}
"""These have so many parts that equal orders are followed only once.

Orders are equal if they differ only in parts of different tables, which commute.
"""


def make(db: Database) -> None:
    """Create two backups, and changes after them."""
    for table in "tu":
        db.sql(
            f"""CREATE TABLE {table} (k Int64, v Utf8, n Int64, PRIMARY KEY (k),
                    INDEX by_v GLOBAL SYNC ON (v), INDEX by_n GLOBAL SYNC ON (n) COVER (v));
                UPSERT INTO {table} (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)"""
        )
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t, TABLE u) {CLUSTER}; BACKUP c")
    change(db, 4)
    db.sql("BACKUP c INCREMENTAL")
    change(db, 5)


def change(db: Database, number: int) -> None:
    for table in "tu":
        db.sql(
            f"UPSERT INTO {table} (k, v, n) VALUES (1, 'x', {number}); DELETE FROM {table} WHERE k = {number - 2}"
        )


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Branches]:
    def make_all(db: Database) -> None:
        make(db)
        db.sql(f"CREATE BACKUP COLLECTION first (TABLE t, TABLE u) {CLUSTER}")

    made = Branches(tmp_path_factory.mktemp("orders") / "w", make_all)
    yield made
    made.close()


@pytest.fixture(params=REQUESTS)
def orders(request: pytest.FixtureRequest, branches: Branches) -> Iterator[Orders]:
    """Begin the operation; afterwards restore the state before it."""
    before = branches.keep()
    kind, asked, parts = REQUESTS[request.param]
    made = Orders(branches, kind, asked)
    assert made.engine.get("op").parts >= parts
    yield made
    branches.go_back(before)


@pytest.mark.slow
def test_orders_and_deaths_at_random_give_one_result(orders: Orders) -> None:
    expected = orders.plain()
    assert json.loads(expected)["leaks"] == 0
    random_ = random.Random(7)
    for number in range(40 if EVERY else 4):
        found = orders.shuffled(random_, whole=number % 2 == 0, dies=(0.0, 0.3, 1.0)[number % 3])
        assert found == expected
    assert orders.deaths > 10


@pytest.mark.skipif(not EVERY, reason="takes many minutes; make exhaustive runs it")
@pytest.mark.timeout(7200)
def test_all_orders_with_a_death_after_every_transition_give_one_result(
    orders: Orders, request: pytest.FixtureRequest
) -> None:
    """Follow the orders once without deaths, and once with a death after every transition.

    Every set of finished parts gives one catalog, in whatever order it was reached.

    The first backup (10 parts, 1,024 sets) and the restores are followed in all orders. Operations that also
    drop the streams of an earlier backup have 12 or 16 parts: that is 4,096 and 65,536 sets, with half a
    million transitions. Of these, all orders of the parts of each table are followed, and all in which one
    part of the other table comes in between (``Orders.explore``, ``reduced``).
    """
    expected = orders.plain()
    reduced = request.node.callspec.params["orders"] in REDUCED
    assert orders.explore(deaths=False, reduced=reduced) == {expected}
    nodes, edges = len(orders.nodes), orders.edges
    assert orders.explore(deaths=True, reduced=reduced) == {expected}
    again = orders.edges - edges
    assert len(orders.nodes) == nodes
    assert again == edges or (reduced and again >= edges / 4)
    assert orders.deaths >= again
