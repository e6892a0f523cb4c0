"""Operations in the catalog: locks that keep others off, and ends that leave nothing."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from strandline.catalog import board, chains, operations, paths, sessions, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import DONE, RUNNING, Operation
from strandline.catalog.versions import VersionRegistry
from strandline.errors import OperationNotFound, PreconditionFailed, StrandlineError, UnderOperation
from tests.world import BY_V, create, disagreements, dump, leaks, write

STATES = ["creating", "altering", "copying", "dropping", "incoming restore", "outgoing restore"]
registry = VersionRegistry()


def operation(operation_id: str = "op", **body: object) -> Operation:
    return Operation(
        operation_id, "kind", RUNNING, {"asked": 1}, dict(body), {}, None, None, "session", 1.0, None
    )


@pytest.fixture
def orders(catalog: Catalog) -> Catalog:
    create(catalog, "/orders", [BY_V])
    write(catalog, "/orders", 1)
    return catalog


@pytest.mark.parametrize("state", STATES)
def test_a_locked_path_lets_only_its_own_operation_through(orders: Catalog, state: str) -> None:
    with orders.write() as conn:
        operations.lock(conn, "op", [paths.require(conn, "/orders")], state)
        table = paths.require(conn, "/orders")
        assert (table.state, table.operation_id) == (state, "op")
        operations.lock(conn, "op", [table], "altering")
        assert paths.require(conn, "/orders").state == state, "what it holds already stays as it is"
        with pytest.raises(
            UnderOperation, match=f"path is under operation: /orders is {state} by operation op"
        ):
            operations.lock(conn, "other", [paths.require(conn, "/orders/by_v"), table], "copying")
        assert paths.require(conn, "/orders/by_v").state == "ready", "all of them or none"


def test_an_operation_comes_back_as_it_was_stored(catalog: Catalog) -> None:
    with catalog.write() as conn:
        operations.add(conn, operation(step=3))
        operations.add_parts(
            conn, "op", 2.0, [("table", 0, "propose", {"a": [1]}), ("index", 1, "configure", {})]
        )
        operations.save(conn, "op", progress={"half": True}, state=DONE, ended=9.0, result={"rows": 1})
    with catalog.read() as conn:
        found = operations.get(conn, "op", counted=True)
        assert (found.request, found.body, found.progress, found.result) == (
            {"asked": 1},
            {"step": 3},
            {"half": True},
            {"rows": 1},
        )
        assert (found.state, found.ended, found.is_over, found.parts, found.parts_done) == (
            DONE,
            9.0,
            True,
            2,
            0,
        )
        assert [
            (p.id, p.kind, p.stage, p.state, p.attempt, p.body) for p in operations.parts(conn, "op")
        ] == [
            (1, "table", 0, "propose", 0, {"a": [1]}),
            (2, "index", 1, "configure", 0, {}),
        ]
        assert operations.unfinished(conn) == []
        with pytest.raises(OperationNotFound):
            operations.get(conn, "missing")


def test_an_error_is_raised_again_as_it_was() -> None:
    told = {"code": "PRECONDITION_FAILED", "message": "not now", "hint": "Later."}
    stored = operation()
    assert stored.failure() is None
    failed = Operation(**{**stored.__dict__, "error": told})
    failure = failed.failure()
    assert type(failure) is PreconditionFailed
    assert (failure.message, failure.hint) == ("not now", "Later.")
    unknown = Operation(**{**stored.__dict__, "error": {**told, "code": "FROM_THE_FUTURE"}}).failure()
    assert type(unknown) is StrandlineError


def test_the_end_publishes_all_of_it_under_one_generation(orders: Catalog) -> None:
    with orders.write() as conn:
        table = paths.require(conn, "/orders")
        gone = paths.add(conn, table, "old", "stream", {}, 1)
        operations.lock(conn, "op", [table], "altering")
        operations.lock(conn, "op", [gone], "dropping")
        made = paths.add(conn, table, "new", "stream", {}, 1, state="creating", operation_id="op")
        registry.move(conn, "op", 1, paths.require(conn, "/orders/by_v/indexImplTable"))
        sessions.add_pin(conn, "op", 1)
        before = board.present(conn).generation
        step = board.next_step(conn)
        operations.complete(conn, "op", registry, step, 5.0)
        assert board.present(conn).generation == before + 1
        news = board.since(conn, before)
        assert {(p.path, p.version, p.dropped) for p in news} == {
            ("/orders", 2, False),
            ("/orders/by_v", 2, False),
            ("/orders/by_v/indexImplTable", 2, False),
            ("/orders/new", 1, False),
            ("/orders/old", 1, True),
        }
        assert paths.require(conn, "/orders/new").created_step == step
        assert paths.by_id(conn, made.id) is not None
        assert paths.find(conn, "/orders/old") is None
        conn.execute(
            sqltables.holds.insert().values(owner_id=made.id, table_id=table.id, step=1, keeps_state=False)
        )
        paths.set_body(conn, made.id, {"cursor": 1})
        assert leaks(conn) == []
        assert disagreements(conn) == []


def test_a_rollback_leaves_the_catalog_as_it_was(orders: Catalog) -> None:
    with orders.read() as conn:
        before = dump(conn)
    with orders.write() as conn:
        table = paths.require(conn, "/orders")
        operations.lock(conn, "op", [table], "outgoing restore")
        directory = paths.make_parents(conn, "/new/deep/t", 1)
        outer = paths.require(conn, "/new")
        made = paths.add(conn, directory, "t", "table", {}, 1, state="incoming restore", operation_id="op")
        registry.move(conn, "op", 1, paths.require(conn, "/orders/by_v/indexImplTable"))
        sessions.add_pin(conn, "op", 1)
        chains.attach(conn, made.id, conn.execute(select(sqltables.segments.c.id)).scalars().all(), 1)
        operations.roll_back(conn, operation(directories=[outer.id, directory.id]), registry)
    with orders.read() as conn:
        assert dump(conn) == before


def test_nothing_is_announced_when_nothing_changed(orders: Catalog) -> None:
    with orders.write() as conn:
        operations.lock(conn, "op", [paths.require(conn, "/orders")], "copying")
        before = board.present(conn).generation
        operations.complete(conn, "op", registry, board.next_step(conn), 5.0)
        assert board.present(conn).generation == before
        assert leaks(conn) == []


def test_forgetting_removes_the_parts_as_well(catalog: Catalog) -> None:
    with catalog.write() as conn:
        operations.add(conn, operation())
        operations.add_parts(conn, "op", 1.0, [("table", 0, "propose", {})])
        operations.forget(conn, "op")
        assert conn.execute(select(sqltables.parts)).all() == []
        assert operations.listed(conn) == []
