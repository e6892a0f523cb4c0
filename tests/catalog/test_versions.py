"""Claims: the first fixes a version, siblings join it, and other operations are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, select

from strandline.catalog import paths, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableInfo
from strandline.catalog.versions import Claimed, Joined, Taken, VersionRegistry, Wish, sync_indexes
from strandline.errors import Internal
from tests.catalogs import BY_V, create, disagreements
from tests.engines import claim, move

IMPL = "/orders/by_v/indexImplTable"
registry = VersionRegistry()


@pytest.fixture
def orders(catalog: Catalog) -> Catalog:
    create(catalog, "/orders", [BY_V])
    return catalog


def path(conn: Connection, name: str = "/orders") -> Path:
    return paths.require(conn, name)


def claimed(conn: Connection) -> dict[str, int]:
    """Return the claimed versions of the test's paths."""
    known = {path(conn, name).id: name for name in ("/orders", "/orders/by_v", IMPL)}
    return {known[held.path_id]: held.version for held in registry.list_claims(conn, known).values()}


def test_the_first_claims_and_its_siblings_join(orders: Catalog) -> None:
    with orders.write() as tx:
        assert claim(tx, "op", 1, path(tx.conn)) == Claimed(2)
        assert claim(tx, "op", 2, path(tx.conn)) == Joined(2, writer=1)
        assert claim(tx, "op", 3, path(tx.conn), target=7) == Joined(2, writer=1), (
            "no order of siblings can make it drift"
        )
        assert claim(tx, "op", 1, path(tx.conn)) == Claimed(2), "a repeat by the same part is harmless"
        assert claim(tx, "other", 1, path(tx.conn)) == Taken("op")


def test_who_claims_hears_which_siblings_have_come(orders: Catalog) -> None:
    with orders.write() as tx:
        table, index = path(tx.conn), path(tx.conn, "/orders/by_v")
        claim(tx, "other", 1, index)
        wishes = [Wish(3, index), Wish(2, table), Wish(2, table), Wish(1, table)]
        conflict, *claims = registry.claim_all(tx, "op", wishes)
        assert conflict == Taken("other")
        assert claims == [Claimed(2), Claimed(2), Joined(2, writer=2)]
        assert [claim.siblings for claim in claims] == [(), (), (2,)]  # type: ignore[union-attr]
        again = registry.claim_all(tx, "op", [Wish(1, table), Wish(2, table)])
        assert [claim.siblings for claim in again] == [(2,), (1,)]  # type: ignore[union-attr]
        rows = tx.conn.execute(select(sqltables.claimed).where(sqltables.claimed.c.operation_id == "op"))
        assert {(row.part_id, row.writer) for row in rows} == {(1, 2), (2, 2)}


def test_claims_outlive_the_process(orders: Catalog, open_catalog: Callable[[], Catalog]) -> None:
    with orders.write() as tx:
        claim(tx, "op", 1, path(tx.conn))
    another = open_catalog()
    with another.write() as tx:
        assert claim(tx, "op", 2, path(tx.conn)) == Joined(2, writer=1)
        assert claim(tx, "op", 1, path(tx.conn)) == Claimed(2)
        assert VersionRegistry().apply(tx, "op") == {path(tx.conn).id: 2}
    with orders.read() as conn:
        assert path(conn).version == 2


def test_nothing_is_visible_before_it_is_applied(orders: Catalog) -> None:
    with orders.write() as tx:
        move(tx, "op", 1, path(tx.conn, IMPL))
    with orders.read() as conn:
        assert [path(conn, p).version for p in ("/orders", "/orders/by_v", IMPL)] == [1, 1, 1]
        table = path(conn)
        root = path(conn, "/")
        assert registry.effective(conn, [table.id, root.id], "op") == {table.id: 2, root.id: root.version}
        assert registry.effective(conn, [table.id], "other") == {table.id: 1}
        assert claimed(conn) == {"/orders": 2, "/orders/by_v": 2, IMPL: 2}


def test_apply_moves_all_of_them_and_the_table_lists_its_index_anew(orders: Catalog) -> None:
    with orders.write() as tx:
        move(tx, "op", 1, path(tx.conn, IMPL))
        applied = registry.apply(tx, "op")
        assert sorted(applied) == sorted(path(tx.conn, p).id for p in ("/orders", "/orders/by_v", IMPL))
        assert [path(tx.conn, p).version for p in ("/orders", "/orders/by_v", IMPL)] == [2, 2, 2]
        assert TableInfo.of(path(tx.conn)).indexes[0].version == 2
        assert disagreements(tx.conn) == []
        assert claimed(tx.conn) == {}
        assert registry.apply(tx, "op") == {}, "there is nothing left to apply"


def test_apply_lets_go_of_what_the_operation_holds_and_of_nothing_else(orders: Catalog) -> None:
    with orders.write() as tx:
        held = {"/orders": ("altering", "op"), "/orders/by_v": ("dropping", "op"), IMPL: ("copying", "other")}
        for name, (state, operation_id) in held.items():
            paths.set_state(tx, [path(tx.conn, name).id], state, operation_id)
        move(tx, "op", 1, path(tx.conn, IMPL))
        registry.apply(tx, "op")
        found = {name: (path(tx.conn, name).state, path(tx.conn, name).operation_id) for name in held}
    assert found == {**held, "/orders": (paths.READY, None)}


def test_rollback_leaves_the_published_versions(orders: Catalog) -> None:
    with orders.write() as tx:
        move(tx, "op", 1, path(tx.conn, IMPL))
        registry.rollback(tx, "op")
        assert [path(tx.conn, p).version for p in ("/orders", "/orders/by_v", IMPL)] == [1, 1, 1]
        assert claim(tx, "other", 1, path(tx.conn)) == Claimed(2)


@pytest.mark.parametrize("order", list(itertools.permutations(["/orders", IMPL, IMPL])))
def test_every_order_of_siblings_gives_the_same_versions(orders: Catalog, order: tuple[str, ...]) -> None:
    with orders.write() as tx:
        paths.set_version(tx, path(tx.conn).id, 5)  # the table was altered more often than its index
        for part, name in enumerate(order):
            for _ in range(2):
                move(tx, "op", part, path(tx.conn, name))
        registry.apply(tx, "op")
        assert [path(tx.conn, p).version for p in ("/orders", "/orders/by_v", IMPL)] == [6, 2, 2]
        assert disagreements(tx.conn) == []


def test_a_move_stops_at_a_conflict(orders: Catalog) -> None:
    with orders.write() as tx:
        claim(tx, "other", 1, path(tx.conn))
        claims = move(tx, "op", 1, path(tx.conn, IMPL))
        assert [type(made) for made in claims] == [Claimed, Claimed, Taken]
        registry.rollback(tx, "op")
        claim(tx, "other", 1, path(tx.conn, IMPL))
        assert move(tx, "op", 1, path(tx.conn, IMPL)) == [Taken("other")]


def test_versions_only_grow(orders: Catalog) -> None:
    with orders.write() as tx, pytest.raises(Internal, match="cannot be claimed at 1"):
        claim(tx, "op", 1, path(tx.conn), target=1)
    for version in (0, 1):
        with pytest.raises(Internal, match="would not grow"), orders.write() as tx:
            paths.set_version(tx, path(tx.conn).id, version)


@pytest.mark.parametrize(("what", "now"), [("moved", "it has version 4"), ("dropped", "it was dropped")])
def test_a_path_that_changed_under_its_claim_is_a_defect(orders: Catalog, what: str, now: str) -> None:
    with orders.write() as tx:
        claim(tx, "op", 1, path(tx.conn))
        if what == "moved":
            paths.set_version(tx, path(tx.conn).id, 4)
        else:
            paths.remove(tx, [path(tx.conn).id])
        with pytest.raises(Internal, match=f"was claimed at version 1 by op, but {now}"):
            registry.apply(tx, "op")


def test_an_implementation_table_never_moves_alone(orders: Catalog) -> None:
    with orders.write() as tx:
        claim(tx, "op", 1, path(tx.conn, IMPL))
        with pytest.raises(Internal, match="without its index and its table"):
            registry.apply(tx, "op")


def test_an_index_out_of_step_is_never_listed(orders: Catalog) -> None:
    with orders.write() as tx:
        paths.set_version(tx, path(tx.conn, IMPL).id, 2)
        with pytest.raises(Internal, match="do not have the same version"):
            sync_indexes(tx, [path(tx.conn).id], {})
