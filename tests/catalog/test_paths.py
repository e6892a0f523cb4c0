"""The tree of paths, and its publications."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, event, select

from strandline import names
from strandline.catalog import bulk_paths, paths, sqltables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.connection import Catalog
from strandline.catalog.transactions import FEW_ROWS, current_step
from strandline.errors import (
    AlreadyExists,
    Internal,
    InvalidArgument,
    PathNotFound,
    StrandlineError,
    UnderOperation,
)
from strandline.records import Nothing

NAMES = [
    "plain",
    "two words",
    "it's",
    'a "b"',
    "back`tick",
    "ünïcødé",
    "日本",
    "a.b",
    "a=b",
    "100%",
    "[x]{y}",
    "\\",
    ".hidden",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_is_found_under_the_name_it_was_given(catalog: Catalog, name: str) -> None:
    with catalog.write() as tx:
        parent = bulk_paths.make_parent(tx, f"/{name}/{name}/x")
        made = bulk_paths.add_one(tx, NewPath(parent, "x", "table", Nothing()), step=1)
    with catalog.read() as conn:
        found = paths.require(conn, f"{name}/{name}/x")
        assert found == made
        assert found.path == f"/{name}/{name}/x"
        assert found.name == "x"
        assert paths.by_id(conn, made.id) == made
        assert paths.by_ids(conn, [made.id, 999, made.id]) == [made]
        assert [p.path for p in paths.subtree(conn, paths.require(conn, "/"))] == [
            "/",
            f"/{name}",
            f"/{name}/{name}",
            made.path,
        ]


@pytest.mark.parametrize("depth", [1, 2, 5, 6, 7, 12, 13, 30])
def test_a_path_is_found_however_deep_and_only_where_it_is(catalog: Catalog, depth: int) -> None:
    path = "/same" * depth
    with catalog.write() as tx:
        made = bulk_paths.add_one(tx, NewPath(bulk_paths.make_parent(tx, path), "same", "table", Nothing()))
        other = bulk_paths.add_one(tx, NewPath(paths.require(tx.conn, "/"), "other", "table", Nothing()))
    with catalog.read() as conn:
        asked = _asked(conn)
        assert paths.find(conn, path) == made
        assert len(asked) == -(-depth // 6)  # six names per statement
        del asked[:]
        assert paths.by_id(conn, made.id) == made
        assert paths.by_ids(conn, [other.id, made.id]) == [other, made]
        assert len(asked) == 4  # the rows, and those above them
        assert paths.find(conn, f"{path}/same") is None
        assert paths.find(conn, f"{path}/other") is None
        assert paths.find(conn, f"/none{path}") is None
        assert paths.find(conn, f"{path[:-1]}E") is None


def _asked(conn: Connection) -> list[str]:
    """Return a list that collects the statements from now on."""
    said: list[str] = []

    @event.listens_for(conn, "before_cursor_execute")
    def note(_: Any, cursor: Any, statement: str, *more: Any) -> None:
        said.append(statement)

    return said


def test_children_come_by_name_whatever_the_database_collates(catalog: Catalog) -> None:
    given_ = ["b", "B", "a", "_", "é", "Z", "10", "9", "~"]
    with catalog.write() as tx:
        root = paths.require(tx.conn, "/")
        for name in given_:
            bulk_paths.add_one(tx, NewPath(root, name, "directory", Nothing()), step=1)
    with catalog.read() as conn:
        assert [p.name for p in paths.children(conn, paths.require(conn, "/"))] == sorted(given_)


def test_names_are_case_sensitive(catalog: Catalog) -> None:
    with catalog.write() as tx:
        root = paths.require(tx.conn, "/")
        bulk_paths.add_one(tx, NewPath(root, "T", "directory", Nothing()), step=1)
        assert paths.find(tx.conn, "/t") is None
        bulk_paths.add_one(tx, NewPath(root, "t", "directory", Nothing()), step=1)


def test_what_is_there_is_not_made_again(catalog: Catalog) -> None:
    with catalog.write() as tx:
        root = paths.require(tx.conn, "/")
        bulk_paths.add_one(tx, NewPath(root, "t", "table", Nothing()), step=1)
        with pytest.raises(AlreadyExists, match="/t already exists"):
            bulk_paths.add_one(tx, NewPath(root, "t", "directory", Nothing()), step=1)
        with pytest.raises(InvalidArgument, match="/t is a table"):
            bulk_paths.make_parent(tx, "/t/below")


def test_a_path_that_is_not_there_comes_with_the_nearest_name(catalog: Catalog) -> None:
    with catalog.write() as tx:
        parent = bulk_paths.make_parent(tx, "/shop/orders")
        bulk_paths.add_one(tx, NewPath(parent, "orders", "table", Nothing()), step=1)
        with pytest.raises(PathNotFound) as missing:
            paths.require(tx.conn, "/shop/order")
        assert "'orders'" in missing.value.hint
        with pytest.raises(PathNotFound) as missing:
            paths.require(tx.conn, "/shap/orders")
        assert "'shop'" in missing.value.hint
        with pytest.raises(InvalidArgument, match="/shop is a directory, not a table"):
            paths.require(tx.conn, "/shop", "table")
        with pytest.raises(InvalidArgument, match="/shop is a directory, not an index") as refused:
            paths.require(tx.conn, "/shop", "index")
        assert refused.value.hint == "Name an index."


def test_a_version_only_grows(catalog: Catalog) -> None:
    with catalog.write() as tx:
        made = bulk_paths.add_one(tx, NewPath(paths.require(tx.conn, "/"), "t", "table", Nothing()), step=1)
        paths.set_version(tx, made.id, 2)
        for stale in (2, 1, 0):
            with pytest.raises(Internal, match="would not grow"):
                paths.set_version(tx, made.id, stale)
        paths.set_version(tx, made.id, 5)
        found = paths.by_id(tx.conn, made.id)
        assert found is not None
        assert found.version == 5


def test_a_path_under_operation_is_only_for_its_own_operation(catalog: Catalog) -> None:
    with catalog.write() as tx:
        made = bulk_paths.add_one(tx, NewPath(paths.require(tx.conn, "/"), "t", "table", Nothing()), step=1)
        paths.set_state(tx, [made.id], "altering", "op-1")
        locked = paths.require(tx.conn, "/t")
        with pytest.raises(UnderOperation, match="/t is busy: operation op-1 is altering it"):
            paths.check_ready(locked)
        with pytest.raises(UnderOperation):
            paths.check_ready(locked, "op-2")
        paths.check_ready(locked, "op-1")


def test_an_id_is_not_given_twice(catalog: Catalog) -> None:
    with catalog.write() as tx:
        root = paths.require(tx.conn, "/")
        first = bulk_paths.add_one(tx, NewPath(root, "t", "table", Nothing()), step=1)
        paths.remove(tx, [first.id])
        assert paths.find(tx.conn, "/t") is None
        assert bulk_paths.add_one(tx, NewPath(root, "t", "table", Nothing()), step=1).id > first.id


def test_a_publication_has_one_generation_for_all_its_paths(catalog: Catalog) -> None:
    with catalog.write() as tx:
        root = paths.require(tx.conn, "/")
        a, b = (
            bulk_paths.add_one(tx, NewPath(root, name, "table", Nothing()), step=1) for name in ("a", "b")
        )
        first = paths.publish(tx, [a, b])
        time = tx.now
    catalog.clock.sleep(1.0)
    with catalog.write() as tx:
        paths.set_version(tx, b.id, 2)
        changed = paths.by_id(tx.conn, b.id)
        assert changed is not None
        second = paths.publish(tx, [changed], [a])
    assert second == first + 1
    with catalog.read() as conn:
        posted = conn.execute(
            select(sqltables.board).order_by(sqltables.board.c.generation, sqltables.board.c.path_id)
        ).all()
        assert [(p.generation, p.path, p.version, p.dropped, p.time) for p in posted] == [
            (first, "/a", 1, False, time),
            (first, "/b", 1, False, time),
            (second, "/a", 1, True, time + 1.0),
            (second, "/b", 2, False, time + 1.0),
        ]
        described = conn.execute(
            select(
                sqltables.descriptions.c.path_id,
                sqltables.descriptions.c.version,
                sqltables.descriptions.c.step,
            )
        ).all()
        assert sorted(map(tuple, described)) == [(a.id, 1, 1), (b.id, 1, 1), (b.id, 2, 2)]


def test_generations_that_roll_back_are_given_out_again(catalog: Catalog) -> None:
    with contextlib.suppress(ZeroDivisionError), catalog.write() as tx:
        paths.publish(tx, [paths.require(tx.conn, "/")])
        raise ZeroDivisionError
    with catalog.write() as tx:
        assert paths.publish(tx, [paths.require(tx.conn, "/")]) == 1


def test_steps_grow_by_one(catalog: Catalog) -> None:
    for expected in (1, 2, 3):
        with catalog.write() as tx:
            assert tx.step == expected
            assert current_step(tx.conn) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("t", "/t"),
        ("/t", "/t"),
        ("a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("/", "/"),
        ("", "/"),
        ("a b/c'd", "/a b/c'd"),
        ("/.x", "/.x"),
    ],
)
def test_a_path_has_one_form(path: str, expected: str) -> None:
    assert names.normalize(path) == expected
    assert names.normalize(expected) == expected


@pytest.mark.parametrize(
    "path",
    [
        "//",
        "a//b",
        "///t",
        "/a/../b",
        ".",
        "..",
        "a/.",
        "a\0",
        "a\nb",
        "a\x7fb",
        "\ud800",
        "x" * 256,
        "é" * 128,
    ],
)
def test_a_path_that_cannot_be(path: str) -> None:
    with pytest.raises(InvalidArgument):
        names.normalize(path)


@given(st.lists(st.text(min_size=1, max_size=20), max_size=4))
def test_splitting_undoes_joining(parts: list[str]) -> None:
    try:
        for part in parts:
            names.check_name(part)
    except InvalidArgument:
        return
    assert names.split(names.join(parts)) == tuple(parts)


ODD = ["plain", "a'b", 'a"b', "a\\b", "tab\tnew\nline", "ü € 語", "{1,2}", "NULL", "%s ? :x"]


@pytest.mark.parametrize("count", [1, FEW_ROWS - 1, FEW_ROWS, 3 * FEW_ROWS])
def test_rows_by_the_thousand_are_what_they_were(catalog: Catalog, count: int) -> None:
    """For every kind of value that drivers handle differently: text, numbers, booleans and NULL."""
    columns = ("generation", "path_id", "path", "version", "dropped", "time", "step", "operation_id")
    rows = [(7, i, ODD[i % len(ODD)], 2**40 + i, i % 2 == 0, i / 3, i, f"op{i}") for i in range(count)]
    states = [(i, 1, i, "00", 1, None if i % 2 else i) for i in range(count)]
    with catalog.write() as tx:
        tx.insert(sqltables.board, columns, [])
        tx.insert(sqltables.board, columns, rows)
        kept = ("path_id", "step", "rows", "digest", "kept_from", "followed_step")
        tx.insert(sqltables.tables, kept, states)
    with catalog.read() as conn:
        told = conn.execute(select(sqltables.board).where(sqltables.board.c.generation == 7)).all()
        followed = conn.execute(select(sqltables.tables.c.path_id, sqltables.tables.c.followed_step)).all()
    assert sorted(tuple(row) for row in told) == rows
    assert sorted(map(tuple, followed)) == [(row[0], row[5]) for row in states]


def test_rows_by_the_thousand_go_with_their_transaction(catalog: Catalog) -> None:
    rows = [(i, 1, 1, False) for i in range(2 * FEW_ROWS)]
    with contextlib.suppress(ZeroDivisionError), catalog.write() as tx:
        tx.insert(sqltables.holds, ("owner_id", "table_id", "step", "keeps_state"), rows)
        raise ZeroDivisionError
    with catalog.read() as conn:
        assert conn.execute(select(sqltables.holds)).all() == []


def test_rows_that_are_refused_are_refused_as_others_are(catalog: Catalog) -> None:
    rows = [(1, 1, i, "00", 1) for i in range(2 * FEW_ROWS)]  # the same table again and again
    with pytest.raises(StrandlineError, match="refused a request"), catalog.write() as tx:
        tx.insert(sqltables.tables, ("path_id", "step", "rows", "digest", "kept_from"), rows)
    with catalog.write() as tx:
        assert tx.conn.execute(select(sqltables.tables)).all() == []


def test_what_is_among_a_list_is_found(catalog: Catalog) -> None:
    with catalog.write() as tx:
        root = paths.require(tx.conn, "/")
        wanted = [name for name in ODD if "/" not in name and name.isprintable()]
        made = bulk_paths.add(tx, [NewPath(root, name, "directory", Nothing()) for name in wanted], step=1)
    at = sqltables.paths.c
    by_id = select(at.id).where(sqltables.among(at.id, "ids"))
    by_name = select(at.name).where(sqltables.among(at.name, "names"))
    with catalog.read() as conn:
        ids = [path.id for path in made]
        assert sorted(conn.execute(by_id, {"ids": [*ids, 10**12]}).scalars()) == sorted(ids)
        assert conn.execute(by_id, {"ids": []}).all() == []
        for name in wanted:
            assert conn.execute(by_name, {"names": [name, "not there"]}).scalars().all() == [name]
