"""Chains of segments: commits, reads at any step, merges and compactions."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sqlalchemy import event, select

from strandline.catalog import chains, commits, garbage_collection, live_chains, sqltables, tables
from strandline.catalog.commits import TableChange
from strandline.catalog.conflicts import Stale
from strandline.catalog.connection import Catalog
from strandline.errors import InvalidArgument, PathNotFound, PreconditionFailed
from strandline.model import PENDING, Chain, Digest, Segment
from tests.catalog.conftest import Clock
from tests.catalog.examples import BY_N, checksums, commit, create, segment


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
    with catalog.write() as tx:
        at = commits.replace_segments(tx, table.id, old[1:3], [merged(old[1:3])], "merge")
    assert at == 6
    with catalog.read() as conn:
        by_sum = {s.checksum: (s.after, s.upto) for s in chains.load(conn, table.id, 6).segments}
        assert list(by_sum.values()) == [(1, 2), (2, 4), (4, 5)]
        one, two, three = by_sum
        # The merged segment holds the changes of steps 3 and 4. A reader of either step gets it, and ignores
        # the later changes.
        assert [checksums(conn, table, step) for step in range(1, 7)] == [
            [],
            [one],
            [one, two],
            [one, two],
            [one, two, three],
            [one, two, three],
        ]
        assert tables.digest_at(conn, table.id, 6) == tables.digest_at(conn, table.id, 5)
        assert chains.state(conn, table.id).step == 5, "a merge changes no rows"


def test_merges_of_merges_reach_back_to_the_first(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(4):
        commit(catalog, table, segment())
    for part in (slice(0, 2), slice(1, 3), slice(0, 2)):
        old = live(catalog, table.id, 99)[part]
        with catalog.write() as tx:
            commits.replace_segments(tx, table.id, old, [merged(old)], "merge")
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
    with catalog.write() as tx:
        at = commits.replace_segments(tx, table.id, old, [base], "compact")
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
    with catalog.write() as tx:
        commits.replace_segments(tx, table.id, old[:2], [merged(old[:2])], "merge")
    with pytest.raises(Stale, match="replaced meanwhile"), catalog.write() as tx:
        commits.replace_segments(tx, table.id, old, [merged(old)], "merge")


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
    with catalog.write() as tx:
        commits.replace_segments(tx, table.id, old[1:], [merged(old[1:])], "merge")
    with catalog.read() as conn:
        assert sorted(chains.chain_ids(conn, [table.id], 3)[table.id]) == [s.id for s in old[:2]]
        assert sorted(chains.chain_ids(conn, [table.id], 4)[table.id]) == [s.id for s in old]


def test_a_segment_may_be_in_many_chains(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    step = commit(catalog, a, segment())
    with catalog.write() as tx:
        copied = tx.step
        chains.attach(tx, b.id, chains.chain_ids(tx.conn, [a.id], step)[a.id], copied)
    with catalog.read() as conn:
        assert checksums(conn, b, copied) == checksums(conn, a, step)
        assert checksums(conn, b, step) == []


def test_steps_that_cannot_be_read_are_refused(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(4):
        commit(catalog, table, segment())
    with catalog.write() as tx:
        tx.conn.execute(sqltables.tables.update().values(kept_from=3))
    create(catalog, "/young")
    with catalog.read() as conn:
        for step in (3, 6):
            chains.check_readable(conn, table.id, "/t", step)
        for step in (7, -1, 2**70):
            with pytest.raises(InvalidArgument, match="has not been committed"):
                chains.check_readable(conn, table.id, "/t", step)
        for step in (1, 2):
            with pytest.raises(PreconditionFailed, match="no longer kept"):
                chains.check_readable(conn, table.id, "/t", step)
        with pytest.raises(PathNotFound, match="/t did not exist at step 0"):
            chains.check_readable(conn, table.id, "/t", 0)


def test_what_was_collected_is_not_asked(catalog: Catalog) -> None:
    """Neither for a state nor for later changes: the answer would be wrong without an error."""
    table = create(catalog)
    for _ in range(4):
        commit(catalog, table, segment())
    with catalog.write() as tx:
        tx.conn.execute(sqltables.tables.update().values(kept_from=3))
    with catalog.read() as conn:
        assert len(chains.load_kept(conn, table.id, 3).segments) == 2
        assert len(chains.log_kept(conn, table.id, 3, 5)) == 2
        for ask in (chains.load_kept, lambda conn, table_id, step: chains.log_kept(conn, table_id, step, 5)):
            with pytest.raises(Stale, match="step 2 is no longer kept"):
                ask(conn, table.id, 2)
            with pytest.raises(Stale, match="it was dropped"):
                ask(conn, table.id + 1000, 4)


def test_a_chain_longer_than_an_in_list_is_read_whole(catalog: Catalog) -> None:
    table = create(catalog)
    many = 1201
    with catalog.write() as tx:
        step = commits.commit(
            tx, [TableChange(table.id, 1, 1, tuple(segment() for _ in range(many)), Digest(many, 1))]
        )
    with catalog.read() as conn:
        chain = chains.load(conn, table.id, step)
    assert len(chain.segments) == many
    with catalog.write() as tx:
        commits.replace_segments(tx, table.id, chain.segments, [], "compact")
    assert live(catalog, table.id, 99) == []


def test_the_bytes_of_the_changes_in_between(catalog: Catalog) -> None:
    a, b, c = (create(catalog, path) for path in ("/a", "/b", "/c"))
    for table in (a, b, b):
        commit(catalog, table, segment())
    with catalog.read() as conn:
        assert chains.log_bytes(conn, [a.id, b.id, c.id], 3, 6) == {a.id: 10, b.id: 20}
        assert chains.log_bytes(conn, [a.id, b.id], 4, 5) == {b.id: 10}
        many = [*range(1000, 3000), b.id]
        assert chains.log_bytes(conn, [a.id, *many], 3, 6) == {a.id: 10, b.id: 20}, "in more than one query"


def test_what_tables_of_backups_hold(catalog: Catalog) -> None:
    a, b, c = (create(catalog, path) for path in ("/a", "/b", "/c"))
    ids = {}
    for table in (a, b, b):
        step = commit(catalog, table, segment())
        ids[step] = live(catalog, table.id, step)[-1].id
    with catalog.read() as conn:

        def held(step: int) -> dict[int, list[int]]:
            found = chains.segments_of_backups(conn, [a.id, b.id, c.id], step)
            return {table_id: [s.id for s in segments] for table_id, segments in found.items()}

        assert held(3) == {}
        assert held(4) == {a.id: [ids[4]]}
        assert held(6) == {a.id: [ids[4]], b.id: [ids[5], ids[6]]}
    old = live(catalog, b.id, 6)
    with catalog.write() as tx:
        commits.replace_segments(tx, b.id, old, [], "compact")
    with catalog.read() as conn:
        assert held(6)[b.id] == [ids[5], ids[6]]
        assert held(7) == {a.id: [ids[4]]}


def test_what_gives_way_to_the_very_same_rows_is_needed_by_nobody(catalog: Catalog, clock: Clock) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    for table in (a, b):
        commit(catalog, table, segment())
    clock.sleep(5)
    with catalog.write() as tx:
        chains.supersede(tx, [a.id])
        step = tx.step
    with catalog.read() as conn:
        rows = {row.table_id: row for row in conn.execute(select(sqltables.chains))}
    assert (rows[a.id].removed, rows[a.id].removed_at, rows[a.id].superseded) == (step, clock.now(), True)
    assert (rows[b.id].removed, rows[b.id].removed_at, rows[b.id].superseded) == (None, None, False)


def test_a_merge_and_the_end_of_a_table_are_dated(catalog: Catalog, clock: Clock) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    for table in (a, a, b):
        commit(catalog, table, segment())
    old = live(catalog, a.id, 5)
    clock.sleep(5)
    with catalog.write() as tx:
        commits.replace_segments(tx, a.id, old, [merged(old)], "merge")
    with catalog.write() as tx:
        chains.end(tx, [b.id])
    at = sqltables.chains.c
    with catalog.read() as conn:
        rows = conn.execute(
            select(at.removed, at.removed_at).where(at.removed.is_not(None)).order_by(at.segment_id)
        )
        assert rows.all() == [(6, clock.now()), (6, clock.now()), (7, clock.now())]


def test_a_segment_is_read_once(catalog: Catalog) -> None:
    table = create(catalog)
    commit(catalog, table, segment())
    first = live(catalog, table.id, 2)
    asked: list[str] = []

    def note(conn: object, cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(catalog.database.engine, "before_cursor_execute", note)
    assert live(catalog, table.id, 2) == first
    assert not any("FROM segments" in statement for statement in asked)


def test_a_base_comes_first_then_logs_by_step(catalog: Catalog) -> None:
    table = create(catalog)
    late = replace(segment(role="base", upto=9), stepped=True)
    early, later = segment(after=1, upto=2), segment(after=2, upto=4)
    with catalog.write() as tx:
        ids = chains.insert_segments(tx, [later, early, late], 5)
        chains.attach(tx, table.id, ids, 5)
    assert [s.checksum for s in live(catalog, table.id, 5)] == [late.checksum, early.checksum, later.checksum]


def test_a_pending_chain_has_its_changes_on_top() -> None:
    base, pending = segment(role="base"), segment(upto=PENDING + 1)
    assert Chain((base,), 3).plus((pending,)).segments == (base, pending)


def test_segments_rolled_back_are_not_remembered(catalog: Catalog) -> None:
    """The database may use the id of a segment that was rolled back for another one."""
    table = create(catalog)
    with contextlib.suppress(ZeroDivisionError), catalog.write() as tx:
        chains.attach(tx, table.id, chains.insert_segments(tx, [segment()], 2), 2)
        assert len(chains.load(tx.conn, table.id, 2).segments) == 1
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


# --- long chains --------------------------------------------------------------------------------------------


def load_both(catalog: Catalog, table_id: int, step: int) -> tuple[Chain | None, Chain | None]:
    """Return a chain as the cache has it, and as the catalog has it; None if the step is no longer kept."""
    with catalog.read() as conn:
        found: list[Chain | None] = []
        for load in (
            lambda: live_chains.load_live(conn, [table_id], step)[table_id],
            lambda: chains.load_kept(conn, table_id, step),
        ):
            try:
                found.append(load())
            except Stale:
                found.append(None)
        return found[0], found[1]


def test_of_a_long_chain_only_what_was_added_is_read(catalog: Catalog) -> None:
    table, asked = create(catalog), list[tuple[str, Any]]()

    def note(conn: object, cursor: object, statement: str, values: Any, *_: object) -> None:
        asked.append((statement, values))

    def rows_asked(step: int) -> tuple[bool, bool, int]:
        """Return whether the chain was read, whether what was added was read, and how many segments."""
        asked.clear()
        with catalog.read() as conn:
            live_chains.load_live(conn, [table.id], step)
        of_chain = [text for text, _ in asked if "chains" in text]
        of_segments = [values for text, values in asked if "FROM segments" in text]
        assert len(of_segments) <= 1
        number = len(re.findall(r"\d+", str(of_segments)))
        return bool(of_chain) and "segment_id >" not in of_chain[0], bool(of_chain), number

    step = commit(catalog, table, *(segment() for _ in range(70)))
    event.listen(catalog.database.engine, "before_cursor_execute", note)
    assert rows_asked(step)[:2] == (True, True)
    assert rows_asked(step) == (False, False, 0)
    step = commit(catalog, table, segment())
    assert rows_asked(step) == (False, True, 1)
    short = create(catalog, "/short")
    commit(catalog, short, segment())
    assert rows_asked(step) == (False, False, 0), "other tables do not matter"
    assert rows_asked(step - 1) == (True, True, 0), "an earlier state"
    found, expected = load_both(catalog, table.id, step)
    assert found is not None
    assert found == expected
    assert len(found.segments) == 71


def test_many_tables_are_read_with_as_many_statements_as_one(catalog: Catalog) -> None:
    asked = list[str]()
    event.listen(
        catalog.database.engine, "before_cursor_execute", lambda conn, cursor, text, *_: asked.append(text)
    )

    def count(ids: list[int], step: int) -> int:
        with catalog.read() as conn:
            asked.clear()
            found = live_chains.load_live(conn, ids, step)
            read = len(asked)
            assert found == {i: chains.load_kept(conn, i, step) for i in ids}
        return read

    tables_ = [create(catalog, f"/t{n}") for n in range(5)]
    ids = [table.id for table in tables_]
    step = max(commit(catalog, table, segment()) for table in tables_[:4])
    count(ids, step)
    for new in (tables_, tables_[1:3]):
        step = max(commit(catalog, table, segment()) for table in new)
        few = count([new[0].id], step)
        assert count(ids, step) == few == 3
        assert count(ids, step) == 1


@pytest.mark.parametrize("seed", range(12))
def test_a_known_chain_is_what_the_catalog_has(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, table, step = Random(seed), create(catalog), 1
    for _ in range(40):
        change = random.choice(["commit", "commit", "commit", "merge", "compact", "collect"])
        logs = [s for s in live(catalog, table.id, step) if s.role == "log"]
        if change == "commit":
            step = commit(catalog, table, *(segment() for _ in range(random.randint(1, 3))))
        elif change == "merge" and len(logs) > 2:
            begin = random.randint(0, len(logs) - 2)
            with catalog.write() as tx:
                old = logs[begin : begin + 2]
                step = commits.replace_segments(tx, table.id, old, [merged(old)], "merge")
        elif change == "compact" and logs:
            base = replace(segment(role="base", upto=step), stepped=True)
            with catalog.write() as tx:
                old = live(catalog, table.id, step)
                step = commits.replace_segments(tx, table.id, old, [base], "compact")
        else:
            catalog.clock.sleep(3600)
            with catalog.write() as tx:
                garbage_collection.sweep(tx, history_seconds=random.choice([0, 7200]), grace_seconds=0)
        # Sometimes nothing is read for a while, and sometimes an earlier state.
        for at in {step, random.randint(max(1, step - 5), step)} if random.random() < 0.7 else ():
            found, expected = load_both(catalog, table.id, at)
            assert found == expected
