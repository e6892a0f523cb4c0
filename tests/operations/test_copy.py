"""Consistent copies: the order of the parts does not matter, and readers never see unfitting versions."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select

from strandline import records
from strandline.catalog import (
    chains,
    commits,
    definitions,
    garbage_collection,
    operations,
    paths,
    sqltables,
    tables,
)
from strandline.catalog.cache import Loader, SchemeCache
from strandline.catalog.commits import TableChange
from strandline.catalog.connection import Catalog
from strandline.catalog.definitions import TableDefinition
from strandline.catalog.operations import DONE
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import TableBody, TableInfo
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, UnderOperation
from strandline.model import Digest, Segment, TableSchema
from strandline.operations.copy import CopiedIndex
from strandline.operations.engine import Engine
from strandline.operations.streams import StreamSpec
from strandline.records import Record
from tests import catalogs, engines
from tests.catalogs import (
    BY_N,
    BY_V,
    LATER,
    ManualClock,
    Template,
    create,
    disagreements,
    drop,
    dump,
    kept,
    leaks,
    open_catalog,
    planned,
    segment,
    version,
    write,
)
from tests.effort import EVERY
from tests.engines import (
    STREAM,
    Explicit,
    Shuffled,
    copy_request,
    engine_of,
    execute,
    listed,
    parts_of,
    stream_on,
)

ONE = copy_request(("/orders", "/copies/orders"), stream=STREAM)
TWO = copy_request(("/orders", "/copies/orders"), ("/dir/users", "/copies/users"), stream=STREAM)
IMPL = "/orders/by_v/indexImplTable"


def make_two_tables(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    create(catalog, "/dir/users", [BY_N])
    for number in range(3):
        write(catalog, "/orders", number)
        write(catalog, "/dir/users", 10 + number)


def watched(catalog: Catalog) -> list[str]:
    """Collect all disagreements after each transaction from now on.

    What a reader can see changes only with a transaction, so no state is missed.
    """
    seen: list[str] = []

    def look() -> None:
        with catalog.read() as conn:
            seen.extend(disagreements(conn))

    catalog.after_commit = look
    return seen


def versions(catalog: Catalog) -> dict[str, int]:
    with catalog.read() as conn:
        return {
            p.path: p.version
            for p in paths.subtree(conn, paths.require(conn, "/"))
            if p.type in ("table", "index")
        }


def test_all_orders_of_the_three_parts_of_an_indexed_table(catalog: Catalog) -> None:
    make_two_tables(catalog)
    results = []
    for number, order in enumerate(itertools.permutations((1, 2, 3))):
        before = versions(catalog)
        seen = watched(catalog)
        request = copy_request(("/orders", f"/copies{number}/orders"), stream=StreamSpec(name=f"s{number}"))
        ended = execute(engine_of(catalog, scheduler=Explicit(order)), "copy", request)
        after = versions(catalog)
        assert ended.parts == ended.parts_done == 3
        assert seen == []
        moved = {path for path in before if after[path] != before[path]}
        assert moved == {"/orders", "/orders/by_v", IMPL}
        assert all(after[path] == before[path] + 1 for path in moved)
        results.append(
            {
                p.replace(f"copies{number}", "copies"): after[p] - before.get(p, 0)
                for p in after
                if f"/copies{number}/" in p
            }
        )
    assert results == [results[0]] * 6
    with catalog.read() as conn:
        assert leaks(conn) == []


class Orders:
    """The possible orders of an operation's parts, as a graph.

    A node is a set of parts that are done, in a catalog of its own. An edge runs one more part. ``merged``:
    all ways to a node must lead to the same catalog, so only one of them is continued. Otherwise each way is
    followed to its end, which takes minutes.
    """

    def __init__(self, folder: Path, request: Record, *, merged: bool) -> None:
        self.template = Template(folder, make_two_tables)
        self.merged = merged
        self.edges = 0
        self.ends: dict[str, int] = {}
        self.nodes: dict[frozenset[int], str] = {}
        start = self.template.fresh()
        starter = engine_of(start, new_id=lambda: "op")
        self.session = starter.lease.id
        starter.start("copy", request)
        self.explore(start, frozenset(p.id for p in parts_of(starter, "op")))

    def explore(self, catalog: Catalog, todo: frozenset[int]) -> None:
        for part_id in todo:
            branch = self.template.branch(catalog)
            engine = self.engine(branch)
            while (part := parts_of(engine, "op")[part_id - 1]).state != "done":
                engine.transitions.advance(engine.get("op"), part)
            self.edges += 1
            rest = todo - {part_id}
            if not self.merged or self.is_new(rest, canonical(branch)):
                self.explore(branch, rest)
            branch.close()
        if not todo:
            self.engine(catalog).step("op")
            end = canonical(catalog)
            self.ends[end] = self.ends.get(end, 0) + 1

    def is_new(self, todo: frozenset[int], state: str) -> bool:
        known = self.nodes.setdefault(todo, state)
        assert state == known
        return known is state

    def engine(self, catalog: Catalog) -> Engine:
        return engines.engine_of(catalog, lease=engines.Process(catalog, self.session))


def canonical(catalog: Catalog) -> str:
    """Return the content of a catalog that matters, with the claims, but not which sibling was first."""
    with catalog.read() as conn:
        assert disagreements(conn) == []
        named = {p.id: p.path for p in paths.subtree(conn, paths.require(conn, "/"))}
        claims = sorted(
            (named[c.path_id], c.operation_id, c.published, c.version)
            for c in conn.execute(select(sqltables.claims))
        )
        parts = [
            (p.id, p.state) for p in conn.execute(select(sqltables.parts).order_by(sqltables.parts.c.id))
        ]
        state = dump(conn)
        state["leaks"] = len(state["leaks"])  # they name paths by ids
        return json.dumps([state, claims, parts], sort_keys=True)


@pytest.mark.slow
def test_all_720_orders_of_the_parts_of_two_indexed_tables_give_one_result(tmp_path: Path) -> None:
    """If two orders have run the same parts, the catalogs are equal: so all orders have the same end."""
    orders = Orders(tmp_path, TWO, merged=True)
    assert orders.edges == 6 * 2**5
    (end,) = orders.ends
    assert json.loads(end)[0]["leaks"] == 0


@pytest.mark.skipif(not EVERY, reason="takes minutes; make exhaustive runs it")
@pytest.mark.timeout(3600)
def test_all_720_orders_one_by_one(tmp_path: Path) -> None:
    orders = Orders(tmp_path, TWO, merged=False)
    assert list(orders.ends.values()) == [720]


@pytest.mark.slow
def test_orders_and_interleavings_of_two_tables(catalog: Catalog) -> None:
    """Complete runs in random orders, with the phases of the parts mixed, checked after each transaction."""
    make_two_tables(catalog)
    random_ = random.Random(1)
    for number in range(24 if catalog.database.is_sqlite else 4):
        before = versions(catalog)
        seen = watched(catalog)
        order = random_.sample(range(1, 7), 6)
        scheduler = Explicit(order) if number % 2 else Shuffled(random_)
        pairs = [("/orders", f"/c{number}/orders"), ("/dir/users", f"/c{number}/users")]
        execute(
            engine_of(catalog, scheduler=scheduler),
            "copy",
            copy_request(*pairs, stream=StreamSpec(name=f"s{number}")),
        )
        after = versions(catalog)
        assert seen == []
        assert {after[p] - before[p] for p in before} == {1}
        for _, target in pairs:
            drop(catalog, target)
    with catalog.read() as conn:
        assert leaks(conn) == []


def test_a_copy_holds_the_state_of_one_step_and_moves_no_data(catalog: Catalog) -> None:
    make_two_tables(catalog)
    engine = engine_of(catalog)
    operation_id = engine.start("copy", TWO)
    step = kept(engine.get(operation_id).body)["step"]
    before = {p: describe(catalog, p, step) for p in ("/orders", IMPL, "/dir/users")}
    while engine.step(operation_id):
        write(catalog, "/orders", 99)
        write(catalog, "/dir/users", 99)
    assert describe(catalog, "/copies/orders", step) == before["/orders"]
    assert describe(catalog, "/copies/orders/by_v/indexImplTable", step) == before[IMPL]
    assert describe(catalog, "/copies/users", step) == before["/dir/users"]
    with catalog.read() as conn:
        loaded = chains.load(conn, paths.require(conn, "/copies/users").id, step).segments
    assert sorted(s.id for s in loaded) == before["/dir/users"][0], "whoever reads it finds them"
    assert kept(engine.get(operation_id).result) == {"step": step, "tables": 2}
    with catalog.read() as conn:
        segments = conn.execute(select(sqltables.segments.c.id)).scalars().all()
        attached = (
            conn.execute(select(sqltables.chains.c.segment_id).where(sqltables.chains.c.added == step))
            .scalars()
            .all()
        )
        assert set(attached) <= set(segments)
        assert chains.state(conn, paths.require(conn, "/orders").id).digest.rows > before["/orders"][1].rows


def describe(catalog: Catalog, path: str, step: int) -> tuple[list[int], Digest]:
    with catalog.read() as conn:
        table_id = paths.require(conn, path).id
        return sorted(chains.chain_ids(conn, [table_id], step)[table_id]), tables.digest_at(
            conn, table_id, step
        )


def test_compaction_and_collection_during_a_copy_take_nothing_from_it(
    catalog: Catalog, clock: ManualClock
) -> None:
    make_two_tables(catalog)
    engine = engine_of(catalog)
    operation_id = engine.start("copy", ONE)
    step = kept(engine.get(operation_id).body)["step"]
    before = describe(catalog, "/orders", step)
    with catalog.write() as tx:
        table_id = paths.require(tx.conn, "/orders").id
        chain = chains.load(tx.conn, table_id, step)
        commits.replace_segments(tx, table_id, chain.segments, [base_segment(step)], "compact")
    clock.sleep(catalogs.GRACE_SECONDS + 1)
    for _ in range(20):
        with catalog.write() as tx:
            garbage_collection.sweep(tx, history_seconds=0.0, grace_seconds=60.0)
            tx.conn.execute(
                insert(sqltables.sessions).values(
                    id=f"other{_}", host="elsewhere", pid=1, expires=clock.now() + 10**7
                )
            )
        if not engine.step(operation_id):
            break
    assert describe(catalog, "/copies/orders", step) == before
    with catalog.read() as conn:
        stream = paths.require(conn, f"/orders/{STREAM.name}")
        assert stream.record(StreamBody).cursor == step
        assert leaks(conn) == []


def base_segment(upto: int) -> Segment:
    return replace(segment(), role="base", upto=upto, after=0, stepped=True)


def test_without_streams_a_copy_changes_no_version(catalog: Catalog) -> None:
    make_two_tables(catalog)
    before = versions(catalog)
    execute(engine_of(catalog), "copy", copy_request(("/orders", "/copies/orders")))
    after = versions(catalog)
    assert {p: after[p] for p in before} == before
    assert {after[p] for p in after.keys() - before.keys()} == {1}


def test_streams_of_a_copy_have_one_name_and_hold_its_step(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V, LATER])
    write(catalog, "/orders", 1)
    step = kept(execute(engine_of(catalog), "copy", ONE).body)["step"]
    with catalog.read() as conn:
        streams = [p for p in paths.subtree(conn, paths.require(conn, "/")) if p.type == "stream"]
        assert [p.path for p in streams] == [f"/orders/{STREAM.name}", f"{IMPL}/{STREAM.name}"]
        assert {(b.cursor, b.created_step, b.mode) for b in (p.record(StreamBody) for p in streams)} == {
            (step, step, STREAM.mode)
        }
        ids = [p.id for p in streams]
        holds = {
            (h.owner_id, h.table_id, h.step)
            for h in conn.execute(select(sqltables.holds).where(sqltables.holds.c.owner_id.in_(ids)))
        }
        assert holds == {(p.id, p.record(StreamBody).table_id, step) for p in streams}


def test_omitted_indexes_are_defined_but_have_no_data(catalog: Catalog) -> None:
    make_two_tables(catalog)
    before = versions(catalog)
    execute(
        engine_of(catalog),
        "copy",
        copy_request(("/orders", "/copies/orders"), stream=STREAM, omit_indexes=True),
    )
    after = versions(catalog)
    assert {p for p in before if after[p] != before[p]} == {"/orders"}, (
        "no stream on the index, so only the table moves"
    )
    with catalog.read() as conn:
        (ref,) = TableInfo.of(paths.require(conn, "/copies/orders")).indexes
        assert (ref.definition, ref.omitted) == (BY_V, True)
        assert chains.chain_ids(conn, [ref.impl_id], 10**9) == {}
        head = chains.state(conn, ref.impl_id)
        assert (head.digest, head.followed_step) == (Digest(), None)
        assert chains.state(conn, paths.require(conn, "/copies/orders").id).digest.rows == 3


def test_an_asynchronous_index_is_defined_only_and_gets_no_stream(catalog: Catalog) -> None:
    create(catalog, "/orders", [LATER, BY_V])
    write(catalog, "/orders", 1)
    execute(engine_of(catalog), "copy", ONE)
    with catalog.read() as conn:
        later, by_v = TableInfo.of(paths.require(conn, "/copies/orders")).indexes
        assert (later.definition, later.omitted, by_v.omitted) == (LATER, True, False)
        assert chains.state(conn, later.impl_id).followed_step == 0
        assert paths.find(conn, f"/orders/later/indexImplTable/{STREAM.name}") is None
        assert version(conn, "/orders/later") == version(conn, "/orders/later/indexImplTable") == 1


def test_no_implementation_table_is_copied_twice(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V, BY_N])
    engine = engine_of(catalog)
    operation_id = engine.start("copy", ONE)
    sources = [kept(p.body)["table_id"] for p in parts_of(engine, operation_id) if p.kind == "table"]
    assert len(sources) == len(set(sources)) == 3
    engine.run(operation_id)
    for bad in (IMPL, "/orders/by_n/indexImplTable"):
        with pytest.raises(InvalidArgument, match=f"{bad} is the implementation table of an index"):
            engine.start("copy", copy_request(("/orders", "/c/orders"), (bad, "/c/impl")))


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        ([], InvalidArgument),
        ([("/orders", "/a"), ("orders", "/b")], InvalidArgument),
        ([("/orders", "/a"), ("/dir/users", "a")], InvalidArgument),
        ([("/missing", "/a")], PathNotFound),
        ([("/orders", "/new/a"), ("/dir/users", "/orders")], AlreadyExists),
        ([("/orders", "/new/a"), ("/missing", "/b")], PathNotFound),
        ([("/orders", "/new/a"), ("/dir/users", "/orders/below")], InvalidArgument),
        ([("/orders/by_v", "/a")], InvalidArgument),
    ],
)
def test_a_refused_copy_leaves_nothing(
    tmp_path: Path, pairs: list[tuple[str, str]], error: type[Exception]
) -> None:
    catalog = Template(tmp_path, make_two_tables).fresh()
    engine = engine_of(catalog)
    engine.lease.ensure()
    with catalog.read() as conn:
        before = dump(conn)
    with pytest.raises(error):
        engine.start("copy", copy_request(*pairs, stream=STREAM))
    with catalog.read() as conn:
        assert dump(conn) == before
    assert listed(engine) == []


def test_a_target_that_is_there_is_told_from_one_that_is_being_made(catalog: Catalog) -> None:
    make_two_tables(catalog)
    engine = engine_of(catalog)
    with pytest.raises(AlreadyExists, match="/orders already exists") as refused:
        engine.start("copy", copy_request(("/dir/users", "/orders")))
    assert refused.value.hint == "Choose another target, or drop it first."
    running = engine.start("copy", copy_request(("/orders", "/copies/same")))
    with pytest.raises(UnderOperation, match=f"/copies/same is busy: operation {running} is creating it"):
        engine.start("copy", copy_request(("/dir/users", "/copies/same")))
    with catalog.write() as tx:
        paths.set_state(tx, [paths.require(tx.conn, "/dir").id], "dropping", "somebody")
    with pytest.raises(UnderOperation, match="/dir is busy: operation somebody is dropping it"):
        engine.start("copy", copy_request(("/dir/users", "/dir/more")))


def test_a_copy_that_does_not_hold_what_its_source_holds_fails(catalog: Catalog) -> None:
    make_two_tables(catalog)
    engine = engine_of(catalog)
    operation_id = engine.start("copy", ONE)
    while parts_of(engine, operation_id)[0].state != "wait":
        engine.step(operation_id)
    with catalog.write() as tx:
        target = paths.require(tx.conn, "/copies/orders").id
        tx.conn.execute(delete(sqltables.chains).where(sqltables.chains.c.table_id == target))
    ended = engine.run(operation_id)
    assert "does not hold the same segments" in kept(ended.error)["message"]


def shards_of(catalog: Catalog, shard_bytes: int) -> list[tuple[Any, ...]]:
    """Copy /orders in shards, check the copy, and return the shards of its parts."""
    engine = engine_of(catalog)
    target = f"/copies/by{shard_bytes}"
    operation_id = engine.start("copy", copy_request(("/orders", target), shard_bytes=shard_bytes))
    step = kept(engine.get(operation_id).body)["step"]
    assert engine.run(operation_id).state == DONE
    for below in ("", "/by_v/indexImplTable"):
        assert describe(catalog, target + below, step) == describe(catalog, "/orders" + below, step)
    at = sqltables.parts.c
    with catalog.read() as conn:
        rows = conn.execute(select(sqltables.parts).where(at.operation_id == operation_id).order_by(at.id))
        return [(row.kind, row.path, row.stage, row.shard, row.bytes) for row in rows]


def test_what_is_large_is_copied_shard_by_shard(tmp_path: Path, clock: ManualClock) -> None:
    catalog = open_catalog(tmp_path, clock=clock)
    cut = replace(catalogs.SCHEMA, bounds=((10,),))
    with catalog.write() as tx:
        info = definitions.create(tx, TableDefinition("/orders", cut, (BY_V,)))
    for key in (1, 20):
        ids = [(info.id, info.version), (info.indexes[0].impl_id, info.indexes[0].version)]
        with catalog.write() as tx:
            commits.commit(
                tx, [TableChange(i, version, None, (at_key(key),), Digest(1, key)) for i, version in ids]
            )

    def cut_at(schema: TableSchema) -> None:
        with catalog.write() as tx:
            body = paths.require(tx.conn, "/orders").record(TableBody)
            paths.set_body(tx, info.id, replace(body, schema=schema))

    table, index = "/orders", "/orders/by_v"
    whole = [
        ("table", table, 0, None, None),
        ("index", index, 0, None, None),
        ("table", index, 0, None, None),
    ]
    shards = [("table shard", path, 0, number, 7) for path in (table, index) for number in (0, 1)]
    last = [("table", table, 1, None, None), ("index", index, 0, None, None), ("table", index, 1, None, None)]
    assert shards_of(catalog, 10**6) == shards + last, "at its bounds, and an index into as many"
    cut_at(catalogs.SCHEMA)
    assert shards_of(catalog, 14) == whole
    assert shards_of(catalog, 7) == shards + last, "at the first keys of segments"
    cut_at(replace(cut, bounds=((99,),)))
    assert shards_of(catalog, 15)[2:] == [whole[0], *last[1:]], "all of it begins in one shard"
    catalog.close()


def at_key(key: int) -> Segment:
    return replace(segment(), min_key=(key,), max_key=(key,), bytes=7)


def test_a_stream_name_that_is_taken_is_found_before_anything_happens(catalog: Catalog) -> None:
    make_two_tables(catalog)
    engine = engine_of(catalog)
    execute(engine, "create stream", stream_on(IMPL))
    with pytest.raises(AlreadyExists, match=STREAM.name):
        engine.start("copy", ONE)


def test_old_streams_are_replaced_in_the_same_operation(catalog: Catalog) -> None:
    make_two_tables(catalog)
    engine = engine_of(catalog)
    execute(engine, "copy", ONE)
    old = (f"/orders/{STREAM.name}", f"{IMPL}/{STREAM.name}")
    seen, before = watched(catalog), versions(catalog)
    execute(
        engine,
        "copy",
        copy_request(("/orders", "/again/orders"), stream=StreamSpec(name="new"), drop_streams=old),
    )
    after = versions(catalog)
    assert seen == []
    assert {p: after[p] - before[p] for p in ("/orders", "/orders/by_v", IMPL)} == {
        "/orders": 1,
        "/orders/by_v": 1,
        IMPL: 1,
    }
    with catalog.read() as conn:
        streams = {p.path for p in paths.subtree(conn, paths.require(conn, "/")) if p.type == "stream"}
        assert streams == {"/orders/new", f"{IMPL}/new"}
        assert leaks(conn) == []


def test_a_target_is_not_there_before_the_end(catalog: Catalog) -> None:
    make_two_tables(catalog)
    cache = SchemeCache(catalog)
    loader = Loader(cache, catalog.clock)
    engine = engine_of(catalog)
    operation_id = engine.start("copy", ONE)
    while True:
        with pytest.raises(
            UnderOperation, match=f"/copies/orders is busy: operation {operation_id} is creating it"
        ):
            planned(loader, ["/copies/orders"])
        with pytest.raises(UnderOperation, match="creating"):
            write(catalog, "/copies/orders", 1)
        if not engine.step(operation_id):
            break
        if engine.get(operation_id).parts_done == 3:
            break
    engine.run(operation_id)
    assert planned(loader, ["/copies/orders"])[0].table.version == 1


def test_an_index_that_an_earlier_version_left_between_two_phases_is_listed(catalog: Catalog) -> None:
    """Earlier versions claimed its table in a phase of its own."""
    create(catalog, "/orders", [BY_V])
    engine = engine_of(catalog)
    operation_id = engine.start("copy", ONE)
    while any(part.state != DONE for part in parts_of(engine, operation_id)):
        assert engine.step(operation_id)
    (index,) = (part for part in parts_of(engine, operation_id) if part.kind == "index")
    with catalog.write() as tx:
        target = paths.by_ids(tx.conn, [records.from_text(CopiedIndex, index.body, "it").target_id])[0]
        paths.set_body(tx, target.id, replace(target.record(TableBody), indexes=()))
        operations.save_parts(tx, [replace(index, state="configure")])
    assert engine.run(operation_id).state == DONE
    with catalog.read() as conn:
        listed_ = TableInfo.of(paths.require(conn, "/copies/orders", "table")).indexes
        assert [ref.name for ref in listed_] == ["by_v"]
        assert leaks(conn) == []
