"""Streams: the versions that they change, and what is left after they are dropped."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from strandline.catalog import paths, publication_log, sqltables, tables
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import FAILED
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import Hold
from strandline.catalog.transactions import Writer, current_step
from strandline.errors import (
    AlreadyExists,
    Internal,
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    UnderOperation,
)
from strandline.operations.kind import AnyRun, Body, Handler, Kind, Part, PartPlan, Plan, Planning
from strandline.operations.streams import StreamRequest, StreamSpec, alter_stream, begin_streams
from strandline.records import Nothing, Record
from strandline.storage.feed import MODES
from tests.catalogs import BY_N, BY_V, create, dump, kept, leaks, write
from tests.engines import drop_of, engine_of, execute, stream_on

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
    with orders.read() as conn:
        now = current_step(conn)
    step = kept(execute(engine, "create stream", request(table)).result)
    assert moved(orders, before) == moves
    with orders.read() as conn:
        assert current_step(conn) == now + 1, "all of it happens at one step"
        stream = paths.require(conn, f"{table}/feed", "stream")
        hold = conn.execute(select(sqltables.holds).where(sqltables.holds.c.owner_id == stream.id)).one()
        body = stream.record(StreamBody)
        assert (hold.table_id, hold.step) == (stream.parent_id, body.cursor)
        assert {"step": body.created_step} == step
        assert leaks(conn) == []
    before = versions(orders)
    dropped = execute(engine, "drop streams", drop_of(f"{table}/feed"))
    assert kept(dropped.result) == {}, "a result that has nothing to say is one as well"
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
    with orders.read() as conn:
        (pin,) = conn.execute(select(sqltables.pins))
    assert (pin.name, pin.step) == (operation_id, during - 1), "nobody collects it meanwhile"
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


def test_parts_say_what_they_are_about(orders: Catalog) -> None:
    engine = engine_of(orders)
    execute(engine, "create stream", request("/orders"))
    execute(engine, "drop streams", drop_of("/orders/feed"))
    with orders.read() as conn:
        about = conn.execute(select(sqltables.parts.c.path)).scalars().all()
    assert sorted(about) == ["/orders", "/orders/feed"]


def test_a_stream_keeps_the_state_of_its_table_only_if_it_shows_it(orders: Catalog) -> None:
    engine = engine_of(orders)
    kept_by = {}
    for mode in MODES:
        spec = StreamSpec(name=mode.lower(), mode=mode, format="PARQUET", owner=7)
        execute(engine, "create stream", StreamRequest(table="/orders", stream=spec))
        with orders.read() as conn:
            stream = paths.require(conn, f"/orders/{mode.lower()}")
            hold = tables.find_hold(conn, stream.id)
            at = sqltables.paths.c
            assert conn.execute(select(at.owner_id).where(at.id == stream.id)).scalar_one() == 7
        body = stream.record(StreamBody)
        assert (body.mode, body.format, body.owner, body.table_id) == (mode, "PARQUET", 7, stream.parent_id)
        kept_by[mode] = hold is not None and hold.keeps_state
    assert kept_by == {mode: mode not in ("KEYS_ONLY", "NEW_IMAGE") for mode in MODES}


class Beginning(Handler[AnyRun, Nothing]):
    """Creates streams on two tables, all phases at once."""

    record = Nothing

    def store(self, tx: Writer, run: AnyRun, part: Part[Nothing], made: Any) -> Nothing:
        on = [paths.require(tx.conn, path) for path in ("/orders", IMPL)]
        begin_streams(tx, run, part, on, StreamSpec(name="feed"), step=2)
        return part.body


class Begun(Kind[Nothing, Body, Nothing]):
    name = "begun"
    request, body, progress = Nothing, Body, Nothing

    def __init__(self) -> None:
        self.handlers = {"begin": Beginning()}

    def plan(self, tx: Writer, run: Planning[Nothing]) -> Plan[Body, Nothing]:
        return Plan([PartPlan("begin", Nothing())], Body(), Nothing())


def test_streams_that_begin_at_once_are_seen_at_the_end(orders: Catalog) -> None:
    engine = engine_of(orders, kinds=[Begun()])
    before = versions(orders)
    operation_id = engine.start("begun", Nothing())
    assert engine.step(operation_id)
    with orders.read() as conn:
        assert current_step(conn) == 2
        made = [paths.require(conn, f"{table}/feed") for table in ("/orders", IMPL)]
        for stream in made:
            assert (stream.state, stream.operation_id) == ("creating", operation_id)
            assert (stream.created_step, stream.record(StreamBody).cursor) == (2, 2)
            assert tables.find_hold(conn, stream.id) == Hold(stream.id, stream.parent_id or 0, 2, True)
    assert moved(orders, before) == {}
    assert not engine.step(operation_id)
    assert moved(orders, before) == {"/orders": 1, INDEX: 1, IMPL: 1}
    with orders.read() as conn:
        assert leaks(conn) == []


def test_a_stream_that_is_to_show_what_was_needs_it(orders: Catalog) -> None:
    spec = StreamSpec(name="feed", mode="NEW_IMAGE")
    execute(engine_of(orders), "create stream", StreamRequest(table="/orders", stream=spec))

    def alter(mode: str | None) -> tuple[str, bool, int]:
        with orders.write() as tx:
            alter_stream(tx, paths.require(tx.conn, "/orders/feed"), mode=mode)
        with orders.read() as conn:
            stream = paths.require(conn, "/orders/feed")
            hold = tables.find_hold(conn, stream.id)
            assert hold is not None
            published = max(p.version for p in publication_log.since(conn, 0) if p.path == "/orders/feed")
            assert published == stream.version
            return stream.record(StreamBody).mode, hold.keeps_state, stream.version

    def keep_from(step: int) -> None:
        with orders.write() as tx:
            tx.conn.execute(sqltables.tables.update().values(kept_from=step))

    assert alter(None) == alter("NEW_IMAGE") == ("NEW_IMAGE", False, 1)
    keep_from(2)  # the stream's position
    assert alter("OLD_IMAGE") == ("OLD_IMAGE", True, 2)
    keep_from(3)
    assert alter("UPDATES") == ("UPDATES", True, 3), "it has kept what it needs"
    assert alter("KEYS_ONLY") == ("KEYS_ONLY", False, 4)
    with pytest.raises(PreconditionFailed, match="OLD_IMAGE needs the state of /orders at step 2") as refused:
        alter("OLD_IMAGE")
    assert "commit step 3" in refused.value.hint
    for path in ("/orders", "/orders/feed"):
        with orders.write() as tx:
            paths.set_state(tx, [paths.require(tx.conn, path).id], "altering", "op")
        with pytest.raises(UnderOperation, match=f"{path} is busy: operation op is altering it"):
            alter("NEW_IMAGE")
        with orders.write() as tx:
            paths.set_state(tx, [paths.require(tx.conn, path).id], paths.READY, None)
    with orders.write() as tx:
        tx.conn.execute(sqltables.holds.delete())
    with pytest.raises(Internal, match="has no position"):
        alter("NEW_IMAGE")


def test_a_stream_begins_only_if_its_changes_are_held(orders: Catalog) -> None:
    engine = engine_of(orders)
    operation_id = engine.start("create stream", request("/orders"))
    assert engine.step(operation_id) and engine.step(operation_id)
    with orders.write() as tx:
        stream = paths.require(tx.conn, "/orders/feed", "stream")
        assert stream.record(StreamBody).cursor is None
        tables.move_hold(tx, stream.id, 1)
    assert engine.run(operation_id).state == FAILED
    with orders.read() as conn:
        assert paths.find(conn, "/orders/feed") is None
        assert leaks(conn) == []
