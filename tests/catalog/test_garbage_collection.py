"""Garbage collection: which segments are kept, and which are removed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import func, insert, select, update

from strandline.catalog import (
    chains,
    commits,
    definitions,
    garbage_collection,
    paths,
    sessions,
    sqltables,
    tables,
)
from strandline.catalog.connection import Catalog
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import current_step
from strandline.errors import PreconditionFailed
from strandline.model import Segment
from tests.catalog.conftest import Clock
from tests.catalog.examples import checksums, commit, create, segment

HOUR = 3600.0
GRACE = 60.0


def sweep(catalog: Catalog, history: float = 0.0) -> set[str]:
    """Collect, and return the files that may be removed."""
    with catalog.write() as tx:
        garbage_collection.sweep(tx, history_seconds=history, grace_seconds=GRACE)
    with catalog.read() as conn:
        return set(garbage_collection.garbage(conn))


def stored(catalog: Catalog) -> set[str]:
    with catalog.read() as conn:
        return set(conn.execute(select(sqltables.segments.c.file)).scalars())


def compact(catalog: Catalog, table: TableInfo) -> Segment:
    with catalog.write() as tx:
        now = current_step(tx.conn)
        old = chains.load(tx.conn, table.id, now).segments
        base = replace(segment(file=True, role="base", fresh=True, upto=now), stepped=True)
        commits.replace_segments(tx, table.id, old, [base], "compact")
    return base


def merge(catalog: Catalog, table: TableInfo) -> Segment:
    with catalog.write() as tx:
        old = [s for s in chains.load(tx.conn, table.id, current_step(tx.conn)).segments if s.role == "log"]
        one = replace(segment(file=True, after=old[0].after, upto=old[-1].upto), stepped=True)
        commits.replace_segments(tx, table.id, old, [one], "merge")
    return one


def fill(catalog: Catalog, number: int = 3) -> tuple[TableInfo, list[Segment]]:
    table = create(catalog)
    new = [segment(file=True) for _ in range(number)]
    for s in new:
        catalog.clock.sleep(HOUR)
        commit(catalog, table, s)
    return table, new


def files(*given: Segment) -> set[str | None]:
    return {s.file for s in given}


def test_what_the_state_is_made_of_stays(catalog: Catalog) -> None:
    _, logs = fill(catalog)
    assert sweep(catalog) == set()
    assert stored(catalog) == files(*logs)


def test_what_compaction_replaced_goes_with_its_history(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    clock.sleep(HOUR)
    base = compact(catalog, table)
    assert sweep(catalog, history=10 * HOUR) == set(), "all steps are young"
    clock.sleep(2 * HOUR)
    assert sweep(catalog, history=HOUR) == files(*logs)
    assert stored(catalog) == files(base)
    with catalog.read() as conn:
        now = current_step(conn)
        assert chains.state(conn, table.id).kept_from == now
        assert checksums(conn, table, now) == [base.checksum]
        with pytest.raises(PreconditionFailed, match="no longer kept"):
            chains.check_readable(conn, table.id, "/t", now - 1)


def test_young_steps_stay_readable(catalog: Catalog, clock: Clock) -> None:
    table, _ = fill(catalog)
    with catalog.read() as conn:
        before = {step: checksums(conn, table, step) for step in (2, 3, 4)}
    compact(catalog, table)
    assert sweep(catalog, history=1.5 * HOUR) == set()
    with catalog.read() as conn:
        # The step that was current at the beginning of the window, and all later ones.
        for step in (3, 4):
            chains.check_readable(conn, table.id, "/t", step)
            assert checksums(conn, table, step) == before[step]


def test_a_pin_keeps_its_step(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    with catalog.write() as tx:
        sessions.add_pin(tx, "audit", 3)
    compact(catalog, table)
    clock.sleep(100 * HOUR)
    assert sweep(catalog) == set()
    with catalog.read() as conn:
        assert checksums(conn, table, 3) == [s.checksum for s in logs[:2]]
        chains.check_readable(conn, table.id, "/t", 3)
    with catalog.write() as tx:
        sessions.remove_pin(tx, "audit")
    assert sweep(catalog) == files(*logs)


def say(catalog: Catalog, step: int | None, session_id: str = "s", host: str = "elsewhere") -> None:
    """Record the step that a process reads which lives for an hour."""
    until = catalog.clock.now() + HOUR
    with catalog.write() as tx:
        sessions.end(tx, [session_id])
        values = {"id": session_id, "host": host, "pid": 1, "expires": until, "reads_from": step}
        tx.conn.execute(insert(sqltables.sessions).values(**values))


def test_what_was_just_removed_is_left_for_those_who_have_it_in_their_plan(
    catalog: Catalog, clock: Clock
) -> None:
    table, logs = fill(catalog)
    compact(catalog, table)
    clock.sleep(GRACE - 1)
    assert sweep(catalog) == set()
    with catalog.read() as conn:
        chains.check_readable(conn, table.id, "/t", current_step(conn) - 1)
    clock.sleep(1)
    assert sweep(catalog) == files(*logs)


def test_a_table_keeps_exactly_what_was_not_forgotten(catalog: Catalog, clock: Clock) -> None:
    """Of two compactions, only the older one is past its grace period."""
    table, logs = fill(catalog)
    first = compact(catalog, table)
    clock.sleep(GRACE)
    commit(catalog, table, segment(file=True))
    before = compact_and_remember(catalog, table)
    assert sweep(catalog) == files(*logs)
    with catalog.read() as conn:
        assert chains.state(conn, table.id).kept_from == 5, "the step of the first compaction"
        assert {step: checksums(conn, table, step) for step in before} == before
    clock.sleep(GRACE)
    assert files(first) < sweep(catalog)
    with catalog.read() as conn:
        assert chains.state(conn, table.id).kept_from == 7


def compact_and_remember(catalog: Catalog, table: TableInfo) -> dict[int, list[str]]:
    """Compact the table, and return its states at the steps since the last compaction."""
    with catalog.read() as conn:
        before = {step: checksums(conn, table, step) for step in (5, 6)}
    compact(catalog, table)
    return before


def test_what_a_session_says_it_reads_is_kept_while_it_lives(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    say(catalog, 4)
    merged = merge(catalog, table)
    clock.sleep(HOUR - 1)
    assert sweep(catalog) == set()
    assert stored(catalog) == files(*logs, merged)
    clock.sleep(1)
    assert sweep(catalog) == files(*logs), "its lease is over"
    assert stored(catalog) == files(merged)


def test_a_session_that_reads_nothing_keeps_nothing(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    say(catalog, None)
    compact(catalog, table)
    clock.sleep(GRACE)
    assert sweep(catalog) == files(*logs)


def test_the_oldest_of_several_readers_counts(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    compact(catalog, table)
    say(catalog, 4, "old")
    say(catalog, 5, "young")
    clock.sleep(GRACE)
    assert sweep(catalog) == set()
    say(catalog, 5, "old")
    assert sweep(catalog) == files(*logs), "at step 5 the table was compacted"


def test_what_an_older_version_removed_counts_from_the_first_look(catalog: Catalog, clock: Clock) -> None:
    """Older versions did not note the time of the removal."""
    table, logs = fill(catalog)
    compact(catalog, table)
    with catalog.write() as tx:
        tx.conn.execute(update(sqltables.chains).values(removed_at=None))
    clock.sleep(HOUR)
    assert sweep(catalog) == set()
    clock.sleep(GRACE)
    assert sweep(catalog) == files(*logs)


def hold(catalog: Catalog, table: TableInfo, step: int, *, keeps_state: bool = False) -> None:
    with catalog.write() as tx:
        tx.conn.execute(
            insert(sqltables.holds).values(owner_id=1, table_id=table.id, step=step, keeps_state=keeps_state)
        )


def test_a_hold_on_changes_keeps_logs_but_not_bases(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    first = compact(catalog, table)
    hold(catalog, table, 3)
    later = segment(file=True)
    commit(catalog, table, later)
    compact(catalog, table)
    clock.sleep(HOUR)
    # The stream is at step 3: it has read the first two logs, and needs no state.
    assert sweep(catalog) == files(*logs[:2], first)
    with catalog.read() as conn:
        found = chains.log_between(conn, table.id, 3, current_step(conn))
        assert [s.file for s in found] == [logs[2].file, later.file]


def test_a_hold_on_a_state_keeps_all_of_it(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    hold(catalog, table, 3, keeps_state=True)
    compact(catalog, table)
    clock.sleep(HOUR)
    assert sweep(catalog) == set()
    with catalog.read() as conn:
        assert checksums(conn, table, 3) == [s.checksum for s in logs[:2]]


def test_a_hold_on_one_table_keeps_nothing_of_another(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    other = create(catalog, "/u")
    hold(catalog, other, 1, keeps_state=True)
    compact(catalog, table)
    clock.sleep(HOUR)
    assert sweep(catalog) == files(*logs)


def test_merged_logs_go_even_while_history_is_kept(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    one = merge(catalog, table)
    clock.sleep(GRACE)
    assert sweep(catalog, history=1000 * HOUR) == files(*logs)
    with catalog.read() as conn:
        assert [checksums(conn, table, step) for step in (2, 3, 4)] == [[one.checksum]] * 3
        chains.check_readable(conn, table.id, "/t", 2)


def drop_superseded(catalog: Catalog, table: TableInfo) -> set[str]:
    with catalog.write() as tx:
        garbage_collection.drop_superseded(tx, table.id, grace_seconds=GRACE)
        return set(garbage_collection.garbage(tx.conn))


def test_a_merge_removes_what_an_earlier_one_replaced(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    merged = merge(catalog, table)
    other = create(catalog, "/u")
    commit(catalog, other, segment(file=True))
    assert drop_superseded(catalog, table) == set()
    clock.sleep(GRACE)
    assert drop_superseded(catalog, table) == files(*logs)
    assert files(merged) <= stored(catalog)


def test_a_merge_leaves_what_a_reader_has_in_its_plan(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    with catalog.write() as tx:
        sessions.add_pin(tx, "reader", current_step(tx.conn))
    merge(catalog, table)
    clock.sleep(GRACE)
    assert drop_superseded(catalog, table) == set()
    assert files(*logs) <= stored(catalog)


def test_a_segment_in_two_chains_stays_while_one_needs_it(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    copy = create(catalog, "/copy")
    with catalog.write() as tx:
        step = tx.step
        chains.attach(tx, copy.id, chains.chain_ids(tx.conn, [table.id], 4)[table.id], step)
        definitions.drop(tx, paths.require(tx.conn, "/t"))
    clock.sleep(HOUR)
    assert sweep(catalog) == set()
    assert stored(catalog) == files(*logs)
    with catalog.write() as tx:
        definitions.drop(tx, paths.require(tx.conn, "/copy"))
    clock.sleep(HOUR)
    assert sweep(catalog) == files(*logs)
    with catalog.read() as conn:
        assert conn.execute(select(func.count()).select_from(sqltables.chains)).scalar_one() == 0
        assert conn.execute(select(func.count()).select_from(sqltables.segments)).scalar_one() == 0


def test_a_dropped_table_leaves_no_rows_behind(catalog: Catalog, clock: Clock) -> None:
    fill(catalog)
    with catalog.write() as tx:
        definitions.drop(tx, paths.require(tx.conn, "/t"))
    clock.sleep(HOUR)
    sweep(catalog)
    with catalog.read() as conn:
        for table in (
            sqltables.tables,
            sqltables.chains,
            sqltables.segments,
            sqltables.commits,
            sqltables.holds,
            sqltables.descriptions,
        ):
            assert conn.execute(select(func.count()).select_from(table)).scalar_one() == 0, table.name


def test_a_dropped_table_is_freed_although_nothing_is_committed_after_it(
    catalog: Catalog, clock: Clock
) -> None:
    """Without a description the past of a table cannot be read, so its history is not kept."""
    _, logs = fill(catalog)
    with catalog.write() as tx:
        sessions.add_pin(tx, "reader", current_step(tx.conn))
        definitions.drop(tx, paths.require(tx.conn, "/t"))
    clock.sleep(GRACE)
    assert sweep(catalog, history=1000 * HOUR) == set(), "a reader has it in its plan"
    with catalog.write() as tx:
        sessions.remove_pin(tx, "reader")
    assert sweep(catalog, history=1000 * HOUR) == files(*logs)


def test_garbage_is_noted_until_its_files_are_gone(catalog: Catalog, clock: Clock) -> None:
    table, logs = fill(catalog)
    base = compact(catalog, table)
    clock.sleep(HOUR)
    garbage = sweep(catalog)
    assert garbage == files(*logs)
    assert sweep(catalog) == garbage, "a crash before the files were removed loses nothing"
    with catalog.read() as conn:
        assert garbage_collection.list_known_files(conn) == files(*logs, base)
    with catalog.write() as tx:
        garbage_collection.forget_garbage(tx, list(garbage))
        assert garbage_collection.garbage(tx.conn) == []
        assert garbage_collection.list_known_files(tx.conn) == files(base)


def test_inline_segments_are_no_files(catalog: Catalog, clock: Clock) -> None:
    table = create(catalog)
    commit(catalog, table, segment())
    compact(catalog, table)
    clock.sleep(HOUR)
    assert sweep(catalog) == set()
    with catalog.read() as conn:
        assert conn.execute(select(func.count()).select_from(sqltables.segments)).scalar_one() == 1


def test_old_digests_go_with_the_steps_they_are_of(catalog: Catalog, clock: Clock) -> None:
    table, _ = fill(catalog)
    compact(catalog, table)
    clock.sleep(HOUR)
    with catalog.read() as conn:
        now = current_step(conn)
        digest = tables.digest_at(conn, table.id, now)
    sweep(catalog)
    with catalog.read() as conn:
        assert conn.execute(select(func.count()).select_from(sqltables.commits)).scalar_one() == 1
        assert tables.digest_at(conn, table.id, now) == digest
