"""Streams move the version of their table, and of all that moves with it, by exactly one; when they go,
nothing of them is left."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from strandline.catalog import paths, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.streams import StreamBody
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, UnderOperation
from strandline.operations.streams import StreamRequest
from strandline.records import Record
from tests.world import BY_N, BY_V, create, drop_of, dump, engine_of, execute, kept, leaks, stream_on, write

IMPL = "/orders/by_v/indexImplTable"
INDEX = "/orders/by_v"


@pytest.fixture
def orders(catalog: Catalog) -> Catalog:
    create(catalog, "/orders", [BY_V, BY_N])
    write(catalog, "/orders", 1)
    return catalog


def request(table: str, name: str = "feed") -> StreamRequest:
    return stream_on(table, name)


def moved(catalog: Catalog, before: dict[str, int]) -> dict[str, int]:
    after = versions(catalog)
    return {p: after[p] - v for p, v in before.items() if after.get(p, v) != v}


def versions(catalog: Catalog) -> dict[str, int]:
    with catalog.read() as conn:
        return {p.path: p.version for p in paths.subtree(conn, paths.require(conn, "/orders"))}


@pytest.mark.parametrize(
    ("table", "moves"), [("/orders", {"/orders": 1}), (IMPL, {"/orders": 1, INDEX: 1, IMPL: 1})]
)
def test_creating_and_dropping_moves_exactly_what_it_should(
    orders: Catalog, table: str, moves: dict[str, int]
) -> None:
    engine = engine_of(orders)
    before = versions(orders)
    step = kept(execute(engine, "create stream", request(table)).result)
    assert moved(orders, before) == moves
    with orders.read() as conn:
        stream = paths.require(conn, f"{table}/feed", "stream")
        hold = conn.execute(select(sqltables.holds).where(sqltables.holds.c.owner_id == stream.id)).one()
        body = stream.record(StreamBody)
        assert (hold.table_id, hold.step) == (stream.parent_id, body.cursor)
        assert {"step": body.created_step} == step
        assert leaks(conn) == []
    before = versions(orders)
    execute(engine, "drop streams", drop_of(f"{table}/feed"))
    assert moved(orders, before) == moves
    with orders.read() as conn:
        assert conn.execute(select(sqltables.holds)).all() == []
        assert paths.find(conn, f"{table}/feed") is None
        assert leaks(conn) == []


def test_many_streams_of_one_table_move_it_once(orders: Catalog) -> None:
    engine = engine_of(orders)
    streams = []
    for table in ("/orders", IMPL, "/orders/by_n/indexImplTable"):
        for name in ("one", "two"):
            execute(engine, "create stream", request(table, name))
            streams.append(f"{table}/{name}")
    before = versions(orders)
    execute(engine, "drop streams", drop_of(*streams))
    assert moved(orders, before) == dict.fromkeys(
        ("/orders", INDEX, IMPL, "/orders/by_n", "/orders/by_n/indexImplTable"), 1
    )


@pytest.mark.parametrize(("kind", "stream_is"), [("create stream", "creating"), ("drop streams", "dropping")])
@pytest.mark.parametrize("table", ["/orders", IMPL])
def test_nobody_else_gets_at_a_stream_and_its_table_before_the_end(
    orders: Catalog, kind: str, stream_is: str, table: str
) -> None:
    engine, other = engine_of(orders), engine_of(orders)
    if kind == "drop streams":
        execute(engine, "create stream", request(table))
    before = versions(orders)
    asked: Record = request(table) if kind == "create stream" else drop_of(f"{table}/feed")
    operation_id = engine.start(kind, asked)
    while True:
        for refused in (request("/orders", "other"), request(IMPL, "other")):
            with pytest.raises(UnderOperation, match=operation_id):
                other.start("create stream", refused)
        assert versions(orders).items() >= before.items(), "nothing is published before the end"
        with orders.read() as conn:
            stream = paths.find(conn, f"{table}/feed")
            assert stream is None or (stream.state, stream.operation_id) == (stream_is, operation_id)
            assert paths.require(conn, table).state == "altering"
        if not engine.step(operation_id):
            break
    with orders.read() as conn:
        stream = paths.find(conn, f"{table}/feed")
        assert (None if stream is None else stream.state) == ("ready" if stream_is == "creating" else None)
    execute(other, "create stream", request(table, "other"))


def test_a_change_after_the_step_of_a_stream_belongs_to_it(orders: Catalog) -> None:
    engine = engine_of(orders)
    operation_id = engine.start("create stream", request("/orders"))
    during = write(orders, "/orders", 2)
    engine.run(operation_id)
    with orders.read() as conn:
        assert paths.require(conn, "/orders/feed").record(StreamBody).cursor == during - 1


@pytest.mark.parametrize(
    ("kind", "body", "error"),
    [
        ("create stream", request("/nowhere"), PathNotFound),
        ("create stream", request(INDEX), InvalidArgument),
        ("create stream", request("/orders", "by_v"), AlreadyExists),
        ("create stream", request("/orders", "taken"), AlreadyExists),
        ("drop streams", drop_of("/orders/missing"), PathNotFound),
        ("drop streams", drop_of("/orders/taken", "/orders/by_v"), InvalidArgument),
        ("drop streams", drop_of(), InvalidArgument),
    ],
)
def test_a_refused_request_leaves_nothing(
    orders: Catalog, kind: str, body: Record, error: type[Exception]
) -> None:
    engine = engine_of(orders)
    execute(engine, "create stream", request("/orders", "taken"))
    with orders.read() as conn:
        before = dump(conn)
    with pytest.raises(error):
        engine.start(kind, body)
    with orders.read() as conn:
        assert dump(conn) == before


def test_a_table_that_looks_like_an_implementation_table_moves_alone(orders: Catalog) -> None:
    create(orders, "/by_v/indexImplTable", ())
    execute(engine_of(orders), "create stream", request("/by_v/indexImplTable"))
    with orders.read() as conn:
        assert (
            paths.require(conn, "/by_v").version,
            paths.require(conn, "/by_v/indexImplTable").version,
        ) == (1, 2)
