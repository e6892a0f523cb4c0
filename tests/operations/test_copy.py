"""Consistent copies: every order of the parts gives one result, and no reader ever sees versions that do not fit."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from sqlalchemy import select

from strandline.catalog import chains, collect, paths, schema
from strandline.catalog.engine import Catalog
from strandline.catalog.tables import TableInfo
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, UnderOperation
from strandline.model import Segment
from strandline.operations.engine import Engine
from strandline.operations.scheduler import Explicit
from tests import world
from tests.world import BY_N, BY_V, LATER, STREAM, Template, copy_request, create, disagreements, dump, engine_of, leaks, version, write

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
    """Whatever disagrees after any transaction from now on. What a reader can see changes only with a transaction, so this is every
    moment at which one can look."""
    seen: list[str] = []

    def look() -> None:
        with catalog.read() as conn:
            seen.extend(disagreements(conn))

    catalog.after_commit = look
    return seen


def versions(catalog: Catalog) -> dict[str, int]:
    with catalog.read() as conn:
        return {p.path: p.version for p in paths.subtree(conn, paths.require(conn, "/")) if p.type in ("table", "index")}


def test_all_orders_of_the_three_parts_of_an_indexed_table(catalog: Catalog) -> None:
    make_two_tables(catalog)
    results = []
    for number, order in enumerate(itertools.permutations((1, 2, 3))):
        before = versions(catalog)
        seen = watched(catalog)
        request = copy_request(("/orders", f"/copies{number}/orders"), stream=world.StreamSpec(f"s{number}"))
        ended = engine_of(catalog, scheduler=Explicit(order)).execute("copy", request)
        after = versions(catalog)
        assert ended.parts == ended.parts_done == 3
        assert seen == []
        moved = {path for path in before if after[path] != before[path]}
        assert moved == {"/orders", "/orders/by_v", IMPL}
        assert all(after[path] == before[path] + 1 for path in moved)
        results.append({p.replace(f"copies{number}", "copies"): after[p] - before.get(p, 0) for p in after if f"/copies{number}/" in p})
    assert results == [results[0]] * 6
    with catalog.read() as conn:
        assert leaks(conn) == []


def test_all_orders_of_the_parts_of_two_indexed_tables_give_one_result(tmp_path: Path) -> None:
    """All 720 of them, sharing their beginnings: each node of the tree of orders is a catalog of its own."""
    template = Template(tmp_path, make_two_tables)
    start = template.fresh()
    operation_id = engine_of(start, new_id=lambda: "op").start("copy", TWO)
    with start.read() as conn:
        session = conn.execute(select(schema.operations.c.session_id)).scalar_one()
    ends: dict[str, int] = {}

    def explore(catalog: Catalog, todo: frozenset[int]) -> None:
        for part_id in sorted(todo) or [0]:
            branch = template.branch(catalog)
            engine = Engine(branch, world.Process(branch, session), world.kinds(), scheduler=Explicit([part_id]))
            if part_id:
                while any(p.id == part_id and p.state != "done" for p in engine.parts(operation_id)):
                    (part,) = [p for p in engine.parts(operation_id) if p.id == part_id]
                    engine.advance(engine.get(operation_id), part)
                with branch.read() as conn:
                    assert disagreements(conn) == []
                explore(branch, todo - {part_id})
            else:
                engine.step(operation_id)
                with branch.read() as conn:
                    end = repr(dump(conn))
                ends[end] = ends.get(end, 0) + 1
            branch.close()

    explore(start, frozenset(range(1, 7)))
    assert list(ends.values()) == [720]
