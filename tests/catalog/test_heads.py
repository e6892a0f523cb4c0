"""Heads of tables: their initial values, after a rebuild or a restore, and of asynchronous indexes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from strandline.catalog import chains, definitions, paths, sqltables, tables
from strandline.catalog.conflicts import Stale
from strandline.catalog.connection import Catalog
from strandline.catalog.tables import Hold, IndexRef, TableInfo
from strandline.errors import PathNotFound
from strandline.model import Digest, IndexDef, TableSchema
from tests.catalog.conftest import Clock
from tests.catalog.examples import BY_N, BY_V, commit, create, segment


def test_what_was_filled_in_secret_begins_when_it_is_seen(catalog: Catalog, clock: Clock) -> None:
    table, other = create(catalog), create(catalog, "/other")
    with catalog.write() as tx:
        chains.attach(tx, table.id, chains.insert_segments(tx, [segment(5)], 1), 1)
        tables.set_first_digests(tx, {})
        tables.set_first_digest(tx, table.id, Digest(5, 55))
    clock.sleep(9)
    with catalog.write() as tx:
        tables.begin_at(tx, [table.id])
        step = tx.step
    with catalog.read() as conn:
        head = chains.state(conn, table.id)
        assert (head.step, head.kept_from, head.digest) == (step, step, Digest(5, 55))
        assert chains.load(conn, table.id, step - 1).segments == ()
        assert [s.rows for s in chains.load(conn, table.id, step).segments] == [5]
        at = sqltables.commits.c
        (first,) = conn.execute(select(sqltables.commits).where(at.table_id == table.id))
        assert (first.step, first.time, first.rows) == (step, clock.now(), 5)
        (row,) = conn.execute(select(sqltables.chains))
        assert (row.added, row.reaches) == (step, step)
        untouched = chains.state(conn, other.id)
        assert (untouched.step, untouched.kept_from, untouched.digest) == (2, 2, Digest())
        assert tables.oldest_kept(conn) == step


def test_nothing_is_kept_before_there_is_a_table(catalog: Catalog) -> None:
    with catalog.read() as conn:
        assert tables.oldest_kept(conn) == 0


def test_a_head_is_set_alone(catalog: Catalog) -> None:
    table, other = create(catalog), create(catalog, "/other")
    with catalog.write() as tx:
        tables.set_digest(tx, table.id, Digest(3, 33))
    with catalog.read() as conn:
        assert chains.state(conn, table.id).digest == Digest(3, 33)
        assert chains.state(conn, other.id).digest == Digest()
        assert tables.digest_at(conn, table.id, 9) == Digest(), "what was recorded stays"


def test_an_asynchronous_index_is_brought_on_by_one(catalog: Catalog) -> None:
    table = create(catalog, indexes=[BY_N, replace(BY_N, name="too")])
    impl, too = (ref.impl_id for ref in table.indexes)
    with catalog.read() as conn:
        assert tables.find_hold(conn, impl) == Hold(impl, table.id, 1, True)
    with catalog.write() as tx:
        tables.move_followed(tx, impl, 1, 4)
    with pytest.raises(Stale, match="another process brought the index up to date"), catalog.write() as tx:
        tables.move_followed(tx, impl, 1, 5)
    with catalog.read() as conn:
        assert [chains.state(conn, i).followed_step for i in (impl, too, table.id)] == [4, 1, None]
        assert tables.find_hold(conn, impl) == Hold(impl, table.id, 4, True)
        assert tables.find_hold(conn, too) == Hold(too, table.id, 1, True)
    with catalog.write() as tx:
        tx.conn.execute(sqltables.holds.delete())
        tables.begin_following(tx, impl, table.id, 7)
    with catalog.read() as conn:
        assert [chains.state(conn, i).followed_step for i in (impl, too)] == [7, 1]
        assert tables.find_hold(conn, impl) == Hold(impl, table.id, 7, True)


def test_digests_of_many_tables_are_those_of_each(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    steps = [commit(catalog, table, segment(rows)) for table, rows in ((a, 1), (b, 2), (a, 4))]
    with catalog.read() as conn:
        for step in (2, *steps):
            each = {table.id: tables.digest_at(conn, table.id, step) for table in (a, b)}
            assert tables.digests_at(conn, [a.id, b.id, 999], step) == each
        assert tables.digests_at(conn, [a.id, *range(1000, 3000), b.id], 9).keys() == {a.id, b.id}
        with pytest.raises(Stale, match="it was dropped"):
            tables.digest_at(conn, 999, 9)


def test_which_change_was_the_last_to_drop_a_column(catalog: Catalog) -> None:
    table = create(catalog)
    fewer = replace(table.schema, columns=table.schema.columns[:2])

    def alter(schema: TableSchema) -> int:
        with catalog.write() as tx:
            info = TableInfo.of(paths.require(tx.conn, "/t"))
            definitions.alter(tx, replace(info, schema=schema))
            return tx.step

    def last_drop() -> int:
        with catalog.read() as conn:
            return tables.last_drop(conn, table.id)

    alter(table.schema)
    assert last_drop() == 0
    dropped = alter(fewer)
    alter(fewer)
    assert last_drop() == dropped
    alter(table.schema)
    assert last_drop() == dropped, "to add one drops none"
    with catalog.read() as conn:
        row = paths.require(conn, "/t")
        for step, version, columns in ((1, 1, 3), (2, 2, 3), (dropped, 3, 2), (dropped + 2, 5, 3)):
            then = tables.at_step(conn, row, step)
            assert (then.version, len(then.schema.columns), then.since) == (version, columns, step)
        with pytest.raises(PathNotFound, match="/t did not exist at step 0"):
            tables.at_step(conn, row, 0)
        assert tables.since(conn, [*range(1000, 3000), table.id]) == {table.id: dropped + 2}


def test_an_index_is_found_by_its_name(catalog: Catalog) -> None:
    table = create(catalog, indexes=[BY_N, BY_V])
    assert table.index("by_v") == table.indexes[1]
    whole = IndexDef(
        name="i", kind="GLOBAL SYNC", columns=("v",), cover=("n",), unique=True, stored=(("v", "w"),)
    )
    ref = IndexRef.of(whole, index_id=1, impl_id=2, version=3, omitted=True)
    assert (ref.definition, ref.omitted) == (whole, True)
