"""Commits: checked against the present catalog, published at one step, and recorded."""

from __future__ import annotations

import pytest
from sqlalchemy import event, select

from strandline.catalog import chains, commits, definitions, paths, sqltables, tables
from strandline.catalog.commits import Basis, TableChange
from strandline.catalog.conflicts import RowsChanged, Stale
from strandline.catalog.connection import Catalog
from strandline.catalog.transactions import current_step
from strandline.errors import UnderOperation
from strandline.model import Digest
from tests.catalog.examples import BY_V, commit, create, segment


def test_one_commit_has_one_step_for_all_its_tables(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    with catalog.write() as tx:
        now = current_step(tx.conn)
        parts = [TableChange(t.id, t.version, now, (segment(),), Digest(1, 7)) for t in (a, b)]
        step = commits.commit(tx, parts)
    with catalog.read() as conn:
        for table in (a, b):
            assert chains.state(conn, table.id).step == step
            assert tables.digest_at(conn, table.id, step) == Digest(1, 7)
            assert len(chains.load(conn, table.id, step).segments) == 1
            assert chains.load(conn, table.id, step - 1).segments == ()


def test_digests_are_recorded_for_every_step(catalog: Catalog) -> None:
    table = create(catalog)
    steps = [commit(catalog, table, segment(rows), value=2**127) for rows in (1, 2, 3)]
    with catalog.read() as conn:
        assert [tables.digest_at(conn, table.id, step) for step in (1, *steps, 99)] == [
            Digest(0, 0),
            Digest(1, 2**127),
            Digest(3, 0),
            Digest(6, 2**127),
            Digest(6, 2**127),
        ]
        assert chains.state(conn, table.id).digest == Digest(6, 2**127)


def test_a_commit_that_read_too_early_is_stale_and_leaves_nothing(catalog: Catalog) -> None:
    table = create(catalog)
    commit(catalog, table, segment())
    with pytest.raises(Stale, match="rows were committed"):
        commit(catalog, table, segment(), read_step=1)
    assert commit(catalog, table, segment(), read_step=2) == 3
    with catalog.read() as conn:
        assert len(conn.execute(select(sqltables.segments)).all()) == 2


def test_a_commit_with_an_old_version_is_stale(catalog: Catalog) -> None:
    table = create(catalog)
    with catalog.write() as tx:
        definitions.alter(tx, table)
    with pytest.raises(Stale, match="its version is 2, planned with 1"):
        commit(catalog, table, segment())


def test_a_commit_to_a_dropped_table_is_stale(catalog: Catalog) -> None:
    table = create(catalog)
    with catalog.write() as tx:
        definitions.drop(tx, paths.require(tx.conn, "/t"))
    with pytest.raises(Stale, match="it was dropped"):
        commit(catalog, table, segment())


@pytest.mark.parametrize("state", sorted(paths.CLOSED_STATES))
def test_a_table_that_is_not_open_takes_no_commit(catalog: Catalog, state: str) -> None:
    table = create(catalog)
    with catalog.write() as tx:
        paths.set_state(tx, [table.id], state, "op")
    doing = "restore op is writing to it" if state == "incoming restore" else f"operation op is {state} it"
    with pytest.raises(UnderOperation, match=f"is busy: {doing}"):
        commit(catalog, table, segment())


def test_a_table_that_is_copied_takes_commits(catalog: Catalog) -> None:
    table = create(catalog)
    with catalog.write() as tx:
        paths.set_state(tx, [table.id], "copying", "op")
    commit(catalog, table, segment())


def test_an_index_follows_its_table_whatever_came_between(catalog: Catalog) -> None:
    table = create(catalog, indexes=[BY_V])
    ref = table.indexes[0]
    for _ in range(2):
        with catalog.write() as tx:
            now = current_step(tx.conn)
            main = TableChange(table.id, table.version, now, (segment(),), Digest(1, 1))
            commits.commit(
                tx, [main, TableChange(ref.impl_id, ref.version, None, (segment(),), Digest(1, 2))]
            )
    with catalog.read() as conn:
        assert chains.state(conn, ref.impl_id).digest == Digest(2, 4)


def test_a_change_proves_what_it_was_planned_with(catalog: Catalog) -> None:
    table = create(catalog)
    step = commit(catalog, table, segment())

    def prove(table_id: int = table.id, version: int = table.version, read_step: int | None = step) -> int:
        with catalog.write() as tx:
            return commits.prove(tx, Basis(table_id, version, read_step)).step

    assert prove() == step
    with pytest.raises(Stale, match="its version is 1, planned with 2"):
        prove(version=2)
    with pytest.raises(Stale, match="it was dropped"):
        prove(table_id=table.id + 1000)
    later = commit(catalog, table, segment())
    with pytest.raises(RowsChanged, match="rows were committed since it was read"):
        prove()
    assert prove(read_step=None) == later, "it does not depend on rows"
    with catalog.write() as tx:
        tx.conn.execute(sqltables.tables.update().values(kept_from=later))
    with pytest.raises(Stale, match="no longer kept") as refused:
        prove()
    assert not isinstance(refused.value, RowsChanged), "nobody can tell any more what was committed since"
    assert prove(read_step=later) == later
    with catalog.write() as tx:
        tx.conn.execute(
            sqltables.paths.update()
            .where(sqltables.paths.c.id == table.id)
            .values(state="incoming restore", operation_id="op")
        )
    with pytest.raises(UnderOperation, match="restore op is writing to it"):
        prove(read_step=None)


def test_a_commit_is_refused_when_what_it_only_read_has_changed(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    read = Basis(b.id, b.version, commit(catalog, b, segment()))
    commit(catalog, b, segment())
    with pytest.raises(RowsChanged), catalog.write() as tx:
        commits.commit(tx, [TableChange(a.id, a.version, None, (segment(),), Digest(1, 1))], [read])
    with catalog.read() as conn:
        assert chains.state(conn, a.id).digest == Digest()


def test_the_step_at_a_time_is_the_last_one_before_it(catalog: Catalog) -> None:
    table = create(catalog)
    clock = catalog.clock
    start = clock.now()
    for _ in range(3):
        clock.sleep(10)
        commit(catalog, table, segment())
    with catalog.read() as conn:
        assert commits.step_at(conn, start - 1) is None
        assert [commits.step_at(conn, start + seconds) for seconds in (0, 9, 10, 11, 25, 30, 1000)] == [
            1,
            1,
            2,
            2,
            3,
            4,
            4,
        ]


def test_commits_and_their_steps_are_counted_for_each_table(catalog: Catalog) -> None:
    table, other = create(catalog), create(catalog, "/other")
    steps = [commit(catalog, table, segment()) for _ in range(3)]
    commit(catalog, other, segment())
    with catalog.read() as conn:
        old = chains.load(conn, table.id, steps[-1]).segments
    with catalog.write() as tx:
        compacted = commits.replace_segments(
            tx, table.id, old, [segment(3, role="base", upto=steps[-1])], "compact"
        )
    with catalog.read() as conn:
        since = [commits.commits_since(conn, table.id, step) for step in (0, *steps)]
        assert since == [3, 2, 1, 0], "those of rows"
        assert [commits.stop_after(conn, table.id, steps[0], count) for count in (1, 2, 3, 9)] == [
            *steps[1:],
            compacted,
            compacted,
        ]
        assert commits.stop_after(conn, table.id, compacted, 1) == compacted, "there is none"
    with catalog.write() as tx:  # the states are deleted, the logs are held
        tx.conn.execute(sqltables.commits.delete().where(sqltables.commits.c.table_id == table.id))
    with catalog.read() as conn:
        assert [commits.stop_after(conn, table.id, steps[0], count) for count in (1, 2, 9)] == [
            *steps[1:],
            steps[-1],
        ]
        assert commits.stop_after(conn, table.id, steps[-1], 1) == steps[-1]
    with catalog.write() as tx:
        tx.conn.execute(sqltables.chains.update().values(superseded=True))
    with catalog.read() as conn:
        assert commits.stop_after(conn, table.id, steps[0], 9) == steps[0]


def test_a_rebuild_says_what_the_table_is_from_its_step_on(catalog: Catalog) -> None:
    table = create(catalog)
    step = commit(catalog, table, segment(2))
    with catalog.read() as conn:
        (old,) = chains.load(conn, table.id, step).segments
    with catalog.write() as tx:
        rebuilt = commits.replace_segments(tx, table.id, [old], [segment(5)], "rebuild", digest=Digest(5, 55))
    with catalog.read() as conn:
        assert tables.digest_at(conn, table.id, step) == Digest(2, 1)
        assert tables.digest_at(conn, table.id, rebuilt) == Digest(5, 55)
        head = chains.state(conn, table.id)
        assert (head.step, head.digest) == (rebuilt, Digest(5, 55))


def test_a_commit_takes_as_many_statements_for_many_files_and_tables_as_for_few(catalog: Catalog) -> None:
    made = [create(catalog, f"/t{n}") for n in range(5)]

    def count(tables_: int, segments: int) -> int:
        asked: list[str] = []

        def note(conn: object, cursor: object, statement: str, *_: object) -> None:
            asked.append(statement)

        event.listen(catalog.database.engine, "before_cursor_execute", note)
        parts = [
            TableChange(t.id, t.version, None, tuple(segment() for _ in range(segments)), Digest(segments, 1))
            for t in made[:tables_]
        ]
        with catalog.write() as tx:
            commits.commit(tx, parts)
        event.remove(catalog.database.engine, "before_cursor_execute", note)
        with catalog.read() as conn:
            for t in made[:tables_]:
                found = chains.load(conn, t.id, current_step(conn)).segments
                assert len({s.checksum for s in found}) == len(found) >= segments
        return len(asked)

    few = count(1, 10)
    assert count(1, 2000) <= few
    assert count(5, 400) <= few
    assert few <= 12
