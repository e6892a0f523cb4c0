"""Parts of a backup, an increment and a restore in all orders, with deaths at every transition.

All of them end in the same catalog. There are two tables with two indexes each.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from strandline import Database
from strandline.backups.collection import CollectionRequest
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.records import Record
from tests.backups.branches import Branches
from tests.backups.orders import Orders
from tests.backups.reading import CLUSTER
from tests.effort import EVERY

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
