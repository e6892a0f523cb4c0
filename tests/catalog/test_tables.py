"""Descriptions of tables and indexes: created, altered, dropped, and read at past steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import func, select

from strandline import records
from strandline.catalog import chains, definitions, paths, sqltables, tables
from strandline.catalog.conflicts import Stale
from strandline.catalog.connection import Catalog
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import current_step
from strandline.errors import AlreadyExists, Internal, PathNotFound
from strandline.model import Digest
from strandline.types import parse_type
from tests.catalog.examples import BY_N, BY_V, SCHEMA, commit, create, segment


def info_of(catalog: Catalog, path: str = "/t") -> TableInfo:
    with catalog.read() as conn:
        return TableInfo.of(paths.require(conn, path, "table"))


def test_a_table_comes_with_its_indexes_and_directories(catalog: Catalog) -> None:
    made = create(catalog, "/a/b/t", [BY_V, BY_N])
    assert info_of(catalog, "/a/b/t") == made
    with catalog.read() as conn:
        types = {p.path: p.type for p in paths.subtree(conn, paths.require(conn, "/"))}
        assert types == {
            "/": "directory",
            "/a": "directory",
            "/a/b": "directory",
            "/a/b/t": "table",
            "/a/b/t/by_n": "index",
            "/a/b/t/by_n/indexImplTable": "table",
            "/a/b/t/by_v": "index",
            "/a/b/t/by_v/indexImplTable": "table",
        }
        impl = TableInfo.of(paths.require(conn, "/a/b/t/by_v/indexImplTable"))
        assert impl.schema.key == ("v", "k")
        assert impl.schema.names == ("v", "k", "n")
        for table_id in (made.id, *(ref.impl_id for ref in made.indexes)):
            state = chains.state(conn, table_id)
            assert (state.step, state.digest, state.kept_from) == (1, Digest(), 1)
        assert chains.state(conn, made.index("by_v").impl_id).followed_step is None
        assert chains.state(conn, made.index("by_n").impl_id).followed_step == 1


def test_an_index_has_the_version_of_its_implementation_table(catalog: Catalog) -> None:
    made = create(catalog, indexes=[BY_V, BY_N])
    with catalog.read() as conn:
        for ref in made.indexes:
            index, impl = paths.by_id(conn, ref.index_id), paths.by_id(conn, ref.impl_id)
            assert index is not None
            assert impl is not None
            assert ref.version == index.version == impl.version


def test_creating_is_published_under_one_generation(catalog: Catalog) -> None:
    made = create(catalog, "/a/t", [BY_V])
    with catalog.read() as conn:
        posted = conn.execute(select(sqltables.board)).all()
        assert {p.generation for p in posted} == {1}
        assert {p.path for p in posted} == {"/a/t", "/a/t/by_v", "/a/t/by_v/indexImplTable"}
        assert conn.execute(
            select(sqltables.descriptions.c.version).where(sqltables.descriptions.c.path_id == made.id)
        ).scalars().all() == [1]


def test_a_table_is_not_made_twice(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(AlreadyExists):
        create(catalog)
    with catalog.read() as conn:
        assert current_step(conn) == 1


def test_each_alter_is_one_version_and_earlier_ones_stay_readable(catalog: Catalog) -> None:
    made = create(catalog)
    seen = {1: made.schema}
    for number in range(3):
        now = info_of(catalog)
        wider = now.schema.with_column(f"c{number}", parse_type("Int8"))
        with catalog.write() as tx:
            step = tx.step
            definitions.alter(tx, replace(now, schema=wider))
        seen[step] = wider
    assert info_of(catalog).version == 4
    with catalog.read() as conn:
        row = paths.require(conn, "/t")
        for step, expected in seen.items():
            assert tables.at_step(conn, row, step).schema == expected
        with pytest.raises(PathNotFound, match="did not exist at step 0"):
            tables.at_step(conn, row, 0)
        generations = (
            conn.execute(select(sqltables.board.c.generation).where(sqltables.board.c.path_id == made.id))
            .scalars()
            .all()
        )
        assert sorted(generations) == [1, 2, 3, 4]


def test_a_stale_alter_is_refused(catalog: Catalog) -> None:
    made = create(catalog)
    with catalog.write() as tx:
        definitions.alter(tx, made)
    with pytest.raises(Internal, match="would not grow"), catalog.write() as tx:
        definitions.alter(tx, made)


def test_dropping_takes_all_that_is_below(catalog: Catalog) -> None:
    made = create(catalog, "/a/t", [BY_V, BY_N])
    other = create(catalog, "/a/u", [BY_N])
    commit(catalog, made, segment())
    with catalog.write() as tx:
        step = tx.step
        definitions.drop(tx, paths.require(tx.conn, "/a/t"))
    with catalog.read() as conn:
        assert [p.name for p in paths.children(conn, paths.require(conn, "/a"))] == ["u"]
        assert conn.execute(select(func.count()).select_from(sqltables.tables)).scalar_one() == 2
        assert conn.execute(select(sqltables.holds.c.owner_id)).scalars().all() == [other.indexes[0].impl_id]
        assert conn.execute(select(sqltables.chains.c.removed)).scalars().all() == [step]
        assert conn.execute(select(func.count()).select_from(sqltables.segments)).scalar_one() == 1, (
            "a reader may still have it in its plan"
        )
        gone = (
            conn.execute(select(sqltables.board.c.path).where(sqltables.board.c.dropped.is_(True)))
            .scalars()
            .all()
        )
        assert sorted(gone) == sorted(
            ["/a/t", "/a/t/by_n", "/a/t/by_n/indexImplTable", "/a/t/by_v", "/a/t/by_v/indexImplTable"],
        )
        with pytest.raises(Stale, match="it was dropped"):
            chains.state(conn, made.id)


def test_an_unknown_index_comes_with_the_nearest_name(catalog: Catalog) -> None:
    with pytest.raises(PathNotFound) as missing:
        create(catalog, indexes=[BY_V]).index("by_w")
    assert "'by_v'" in missing.value.hint


def test_a_description_survives_the_way_through_the_catalog(catalog: Catalog) -> None:
    made = create(catalog, indexes=[BY_V, BY_N])
    assert TableInfo.of(replace_body(made)) == made
    assert made.schema == SCHEMA


def replace_body(info: TableInfo) -> paths.Path:
    return paths.Path(
        id=info.id,
        parent_id=1,
        path=info.path,
        type="table",
        version=info.version,
        state=info.state,
        operation_id=info.operation_id,
        created_step=info.created_step,
        body=records.to_text(info.body()),
    )
