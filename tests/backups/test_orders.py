"""Whatever the order in which the parts of a backup, of an increment and of a restore come, and wherever
their process dies: they end in the same catalog. Two tables with two indexes each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from strandline import Database
from strandline.backups.collection import CollectionRequest
from strandline.backups.restore_plan import RestoreRequest
from strandline.records import Record
from tests.backups.branches import Branches
from tests.backups.orders import Orders
from tests.backups.reading import CLUSTER
from tests.effort import EVERY

BACKUP = CollectionRequest(collection="c")
FIRST: dict[str, tuple[str, Record, int]] = {
    "first backup": ("backup", CollectionRequest(collection="first"), 10)
}
"""One that has no streams to drop has so few parts that all orders can be followed."""
REQUESTS: dict[str, tuple[str, Record, int]] = {
    "backup": ("backup", BACKUP, 10),
    "incremental backup": ("incremental backup", BACKUP, 12),
    "restore": ("restore", RestoreRequest(collection="c", into="r", verify=True), 12),
    "restore of copies": ("restore", RestoreRequest(collection="c", into="r", verify=True, copy=True), 12),
    "restore in place": ("restore", RestoreRequest(collection="c", replace=True), 12),
    **(FIRST if EVERY else {}),
}
"""What is asked for, and how many parts are planned at least."""
REDUCED = {"backup", "incremental backup"}
"""These have so many parts that of orders which lead to the same, since parts of different tables commute,
one is followed."""


def make(db: Database) -> None:
    """Two backups, and changes after them."""
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
    """The operation has begun; afterwards it never was."""
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
    """Once without any death and once with one after every transition: every set of parts that are done is
    one and the same catalog, by whatever way it was reached.

    The first backup (10 parts, 1,024 sets) and the restores are followed in all orders. What also drops the
    streams of the backup before has 12 parts or 16: that is 4,096 and 65,536 sets, to which half a million
    steps lead. Of these, all orders of the parts of either table are followed, and all in which one part of
    the other table comes in between (``Orders.explore``, ``reduced``)."""
    expected = orders.plain()
    reduced = request.node.callspec.params["orders"] in REDUCED
    assert orders.explore(deaths=False, reduced=reduced) == {expected}
    nodes, edges = len(orders.nodes), orders.edges
    assert orders.explore(deaths=True, reduced=reduced) == {expected}
    again = orders.edges - edges
    assert len(orders.nodes) == nodes
    assert again == edges or (reduced and again >= edges / 4)
    assert orders.deaths >= again
