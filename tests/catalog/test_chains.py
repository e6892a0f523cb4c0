"""Chains of segments: commits, reads at any step, merges and compactions."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from sqlalchemy import select

from strandline.catalog import board, chains, commits, paths, sqltables, tables
from strandline.catalog.commits import Basis, TablePart
from strandline.catalog.connection import Catalog
from strandline.catalog.stale import RowsChanged, Stale
from strandline.errors import InvalidArgument, PreconditionFailed, UnderOperation
from strandline.model import PENDING, Chain, Digest, Segment
from tests.catalog.examples import BY_N, BY_V, checksums, commit, create, segment


def test_a_chain_is_what_had_been_committed_at_its_step(catalog: Catalog) -> None:
    table = create(catalog)
    new = [segment() for _ in range(4)]
    steps = [commit(catalog, table, s) for s in new]
    assert steps == [2, 3, 4, 5]
    with catalog.read() as conn:
        for at in range(7):
            assert checksums(conn, table, at) == [
                s.checksum for s, step in zip(new, steps, strict=True) if step <= at
            ]


def test_a_segment_comes_back_as_it_was_given(catalog: Catalog) -> None:
    table = create(catalog)
    given = [segment(3), segment(5, file=True, fresh=True)]
    step = commit(catalog, table, *given)
    with catalog.read() as conn:
        found = chains.load(conn, table.id, step).segments
    for before, after in zip(given, found, strict=True):
        assert after == replace(before, id=after.id, after=step - 1, upto=step)
        assert after.id > 0


@pytest.mark.parametrize("key", [(None, 1), ("a'b", b"\0\xff"), (True, -(2**63)), (2**64 - 1, "日本")])
def test_keys_survive_the_way_through_the_catalog(catalog: Catalog, key: tuple[object, ...]) -> None:
    table = create(catalog)
    step = commit(catalog, table, replace(segment(), min_key=key, max_key=key))
    with catalog.read() as conn:
        assert chains.load(conn, table.id, step).segments[0].min_key == key


def test_one_commit_has_one_step_for_all_its_tables(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    with catalog.write() as conn:
        now = board.current_step(conn)
        parts = [TablePart(t.id, t.version, now, (segment(),), Digest(1, 7)) for t in (a, b)]
        step = commits.commit(conn, 5.0, parts)
    with catalog.read() as conn:
        for table in (a, b):
            assert chains.state(conn, table.id).step == step
            assert commits.digest_at(conn, table.id, step) == Digest(1, 7)
            assert len(chains.load(conn, table.id, step).segments) == 1
            assert chains.load(conn, table.id, step - 1).segments == ()


def test_digests_are_recorded_for_every_step(catalog: Catalog) -> None:
    table = create(catalog)
    steps = [commit(catalog, table, segment(rows), value=2**127) for rows in (1, 2, 3)]
    with catalog.read() as conn:
        assert [commits.digest_at(conn, table.id, step) for step in (1, *steps, 99)] == [
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
    with catalog.write() as conn:
        tables.alter(conn, board.next_step(conn), 0.0, table)
    with pytest.raises(Stale, match="its version is 2, planned with 1"):
        commit(catalog, table, segment())


def test_a_commit_to_a_dropped_table_is_stale(catalog: Catalog) -> None:
    table = create(catalog)
    with catalog.write() as conn:
        tables.drop(conn, board.next_step(conn), 0.0, paths.require(conn, "/t"))
    with pytest.raises(Stale, match="it was dropped"):
        commit(catalog, table, segment())


@pytest.mark.parametrize("state", sorted(paths.CLOSED_STATES))
def test_a_table_that_is_not_open_takes_no_commit(catalog: Catalog, state: str) -> None:
    table = create(catalog)
    with catalog.write() as conn:
        paths.set_state(conn, [table.id], state, "op")
    with pytest.raises(UnderOperation, match=state):
        commit(catalog, table, segment())


def test_a_table_that_is_copied_takes_commits(catalog: Catalog) -> None:
    table = create(catalog)
    with catalog.write() as conn:
        paths.set_state(conn, [table.id], "copying", "op")
    commit(catalog, table, segment())


def test_an_index_follows_its_table_whatever_came_between(catalog: Catalog) -> None:
    table = create(catalog, indexes=[BY_V])
    ref = table.indexes[0]
    for _ in range(2):
        with catalog.write() as conn:
            now = board.current_step(conn)
            main = TablePart(table.id, table.version, now, (segment(),), Digest(1, 1))
            commits.commit(
                conn, 0.0, [main, TablePart(ref.impl_id, ref.version, None, (segment(),), Digest(1, 2))]
            )
    with catalog.read() as conn:
        assert chains.state(conn, ref.impl_id).digest == Digest(2, 4)


def merged(old: list[Segment]) -> Segment:
    return replace(
        segment(sum(s.rows for s in old), file=True, after=old[0].after, upto=old[-1].upto),
        stepped=True,
        fresh=all(s.fresh for s in old),
    )


def live(catalog: Catalog, table_id: int, step: int) -> list[Segment]:
    with catalog.read() as conn:
        return list(chains.load(conn, table_id, step).segments)


def test_a_merge_serves_every_step_that_its_segments_served(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(4):
        commit(catalog, table, segment())
    old = live(catalog, table.id, 5)
    with catalog.write() as conn:
        at = commits.replace_segments(conn, 0.0, table.id, old[1:3], [merged(old[1:3])], "merge")
    assert at == 6
    with catalog.read() as conn:
        by_sum = {s.checksum: (s.after, s.upto) for s in chains.load(conn, table.id, 6).segments}
        assert list(by_sum.values()) == [(1, 2), (2, 4), (4, 5)]
        one, two, three = by_sum
        # The merged segment holds the changes of steps 3 and 4, so whoever asks for either gets it and
        # ignores what is later.
        assert [checksums(conn, table, step) for step in range(1, 7)] == [
            [],
            [one],
            [one, two],
            [one, two],
            [one, two, three],
            [one, two, three],
        ]
        assert commits.digest_at(conn, table.id, 6) == commits.digest_at(conn, table.id, 5)
        assert chains.state(conn, table.id).step == 5, "a merge changes no rows"


def test_merges_of_merges_reach_back_to_the_first(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(4):
        commit(catalog, table, segment())
    for part in (slice(0, 2), slice(1, 3), slice(0, 2)):
        old = live(catalog, table.id, 99)[part]
        with catalog.write() as conn:
            commits.replace_segments(conn, 0.0, table.id, old, [merged(old)], "merge")
    (last,) = live(catalog, table.id, 99)
    assert (last.after, last.upto, last.rows) == (1, 5, 4)
    with catalog.read() as conn:
        assert [checksums(conn, table, step) for step in (1, 2, 3, 4, 5)] == [[], *[[last.checksum]] * 4]
        rows = conn.execute(select(sqltables.chains)).all()
        assert sum(row.superseded for row in rows) == len(rows) - 1


def test_a_compaction_serves_only_from_its_own_step_on(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(3):
        commit(catalog, table, segment())
    old = live(catalog, table.id, 4)
    base = replace(segment(3, file=True, role="base", fresh=True, upto=4), stepped=True)
    with catalog.write() as conn:
        at = commits.replace_segments(conn, 0.0, table.id, old, [base], "compact")
    later = commit(catalog, table, segment())
    with catalog.read() as conn:
        assert checksums(conn, table, at) == [base.checksum]
        assert [checksums(conn, table, step) for step in (2, 3, 4)] == [
            [s.checksum for s in old[:n]] for n in (1, 2, 3)
        ]
        assert chains.load(conn, table.id, later).segments[0].role == "base"
        assert [s.checksum for s in chains.log_between(conn, table.id, 2, 4)] == [s.checksum for s in old[1:]]


def test_what_was_replaced_meanwhile_makes_a_merge_stale(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(3):
        commit(catalog, table, segment())
    old = live(catalog, table.id, 4)
    with catalog.write() as conn:
        commits.replace_segments(conn, 0.0, table.id, old[:2], [merged(old[:2])], "merge")
    with pytest.raises(Stale, match="replaced meanwhile"), catalog.write() as conn:
        commits.replace_segments(conn, 0.0, table.id, old, [merged(old)], "merge")


def test_the_log_between_two_steps_is_every_change_in_it(catalog: Catalog) -> None:
    table = create(catalog)
    new = [segment() for _ in range(4)]
    for s in new:
        commit(catalog, table, s)
    sums = [s.checksum for s in new]
    with catalog.read() as conn:
        for after in range(1, 6):
            for upto in range(after, 6):
                found = [s.checksum for s in chains.log_between(conn, table.id, after, upto)]
                assert found == sums[after - 1 : upto - 1], (after, upto)


def test_a_copy_by_reference_gets_the_very_segments_of_its_step(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(3):
        commit(catalog, table, segment())
    old = live(catalog, table.id, 4)
    with catalog.write() as conn:
        commits.replace_segments(conn, 0.0, table.id, old[1:], [merged(old[1:])], "merge")
    with catalog.read() as conn:
        assert sorted(chains.chain_ids(conn, table.id, 3)) == [s.id for s in old[:2]]
        assert sorted(chains.chain_ids(conn, table.id, 4)) == [s.id for s in old]


def test_a_segment_may_be_in_many_chains(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    step = commit(catalog, a, segment())
    with catalog.write() as conn:
        copied = board.next_step(conn)
        chains.attach(conn, b.id, chains.chain_ids(conn, a.id, step), copied)
    with catalog.read() as conn:
        assert checksums(conn, b, copied) == checksums(conn, a, step)
        assert checksums(conn, b, step) == []


def test_steps_that_cannot_be_read_are_refused(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(4):
        commit(catalog, table, segment())
    with catalog.write() as conn:
        conn.execute(sqltables.tables.update().values(kept_from=3))
    with catalog.read() as conn:
        chains.check_readable(conn, table.id, "/t", 3)
        for step in (6, -1, 2**70):
            with pytest.raises(InvalidArgument, match="has not been committed"):
                chains.check_readable(conn, table.id, "/t", step)
        with pytest.raises(PreconditionFailed, match="no longer kept"):
            chains.check_readable(conn, table.id, "/t", 2)


def test_what_was_collected_is_not_asked(catalog: Catalog) -> None:
    """Neither for a state nor for what has happened since: both would be wrong without a word."""
    table = create(catalog)
    for _ in range(4):
        commit(catalog, table, segment())
    with catalog.write() as conn:
        conn.execute(sqltables.tables.update().values(kept_from=3))
    with catalog.read() as conn:
        assert len(chains.load_kept(conn, table.id, 3).segments) == 2
        assert len(chains.log_kept(conn, table.id, 3, 5)) == 2
        for ask in (chains.load_kept, lambda conn, table_id, step: chains.log_kept(conn, table_id, step, 5)):
            with pytest.raises(Stale, match="step 2 is no longer kept"):
                ask(conn, table.id, 2)
            with pytest.raises(Stale, match="it was dropped"):
                ask(conn, table.id + 1000, 4)


def test_a_change_proves_what_it_was_planned_with(catalog: Catalog) -> None:
    table = create(catalog)
    step = commit(catalog, table, segment())

    def prove(table_id: int = table.id, version: int = table.version, read_step: int | None = step) -> int:
        with catalog.write() as conn:
            return commits.prove(conn, Basis(table_id, version, read_step)).step

    assert prove() == step
    with pytest.raises(Stale, match="its version is 1, planned with 2"):
        prove(version=2)
    with pytest.raises(Stale, match="it was dropped"):
        prove(table_id=table.id + 1000)
    later = commit(catalog, table, segment())
    with pytest.raises(RowsChanged, match="rows were committed since it was read"):
        prove()
    assert prove(read_step=None) == later, "it does not depend on rows"
    with catalog.write() as conn:
        conn.execute(sqltables.tables.update().values(kept_from=later))
    with pytest.raises(Stale, match="no longer kept") as refused:
        prove()
    assert not isinstance(refused.value, RowsChanged), "nobody can tell any more what was committed since"
    assert prove(read_step=later) == later
    with catalog.write() as conn:
        conn.execute(
            sqltables.paths.update()
            .where(sqltables.paths.c.id == table.id)
            .values(state="incoming restore", operation_id="op")
        )
    with pytest.raises(UnderOperation, match="incoming restore by operation op"):
        prove(read_step=None)


def test_a_commit_is_refused_when_what_it_only_read_has_changed(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    read = Basis(b.id, b.version, commit(catalog, b, segment()))
    commit(catalog, b, segment())
    with pytest.raises(RowsChanged), catalog.write() as conn:
        commits.commit(conn, 0.0, [TablePart(a.id, a.version, None, (segment(),), Digest(1, 1))], [read])
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


def test_a_chain_longer_than_an_in_list_is_read_whole(catalog: Catalog) -> None:
    table = create(catalog)
    many = 1201
    with catalog.write() as conn:
        step = commits.commit(
            conn, 0.0, [TablePart(table.id, 1, 1, tuple(segment() for _ in range(many)), Digest(many, 1))]
        )
    with catalog.read() as conn:
        chain = chains.load(conn, table.id, step)
    assert len(chain.segments) == many
    with catalog.write() as conn:
        commits.replace_segments(conn, 0.0, table.id, chain.segments, [], "compact")
    assert live(catalog, table.id, 99) == []


def test_a_base_comes_first_then_logs_by_step(catalog: Catalog) -> None:
    table = create(catalog)
    late = replace(segment(role="base", upto=9), stepped=True)
    early, later = segment(after=1, upto=2), segment(after=2, upto=4)
    with catalog.write() as conn:
        ids = chains.insert_segments(conn, [later, early, late], 5)
        chains.attach(conn, table.id, ids, 5)
    assert [s.checksum for s in live(catalog, table.id, 5)] == [late.checksum, early.checksum, later.checksum]


def test_a_pending_chain_has_its_changes_on_top() -> None:
    base, pending = segment(role="base"), segment(upto=PENDING + 1)
    assert Chain((base,), 3).plus((pending,)).segments == (base, pending)


def test_segments_rolled_back_are_not_remembered(catalog: Catalog) -> None:
    """The number of a segment that was rolled back may be given out again, to another one."""
    table = create(catalog)
    with contextlib.suppress(ZeroDivisionError), catalog.write() as conn:
        chains.attach(conn, table.id, chains.insert_segments(conn, [segment()], 2), 2)
        assert len(chains.load(conn, table.id, 2).segments) == 1
        raise ZeroDivisionError
    kept = segment()
    commit(catalog, table, kept)
    assert [s.checksum for s in live(catalog, table.id, 2)] == [kept.checksum]


def test_an_asynchronous_index_remembers_how_far_it_has_come(catalog: Catalog) -> None:
    table = create(catalog, indexes=[BY_N])
    commit(catalog, table, segment())
    with catalog.read() as conn:
        assert chains.state(conn, table.indexes[0].impl_id).followed_step == 1
        assert chains.state(conn, table.id).step == 2
