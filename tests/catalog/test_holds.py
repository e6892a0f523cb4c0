"""Holds: what streams still need of their tables, and what is therefore not collected."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from strandline.catalog import chains, commits, tables
from strandline.catalog.connection import Catalog
from strandline.catalog.tables import Hold
from strandline.model import Segment
from tests.catalog.examples import commit, create, segment

OWNER, OTHER = 1001, 1002


def test_a_hold_moves_and_changes_alone(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    mine, others = Hold(OWNER, a.id, 1, False), Hold(OTHER, b.id, 1, False)
    with catalog.write() as tx:
        tables.add_holds(tx, mine, others)
        tables.move_hold(tx, OWNER, 5)
        tables.keep_held_state(tx, OWNER, True)
    with catalog.read() as conn:
        assert tables.find_hold(conn, OWNER) == Hold(OWNER, a.id, 5, True)
        assert tables.find_hold(conn, OTHER) == others
        assert tables.find_hold(conn, 999) is None


def test_a_table_is_held_by_any_number_of_streams(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    with catalog.write() as tx:
        tables.add_holds(tx, Hold(OWNER, a.id, 1, False), Hold(OTHER, a.id, 1, False))
    with catalog.read() as conn:
        assert (tables.is_held(conn, a.id), tables.is_held(conn, b.id)) == (True, False)


def test_holds_end_with_their_stream_and_with_their_table(catalog: Catalog) -> None:
    a, b = create(catalog, "/a"), create(catalog, "/b")
    with catalog.write() as tx:
        tables.add_holds(tx, Hold(OWNER, a.id, 1, False), Hold(OTHER, b.id, 1, False))
        tables.forget(tx, [])
        assert tables.find_hold(tx.conn, OWNER) is not None
        tables.forget(tx, [OWNER])
        assert (tables.find_hold(tx.conn, OWNER), tables.is_held(tx.conn, b.id)) == (None, True)
        tables.forget(tx, [b.id])
        assert tables.find_hold(tx.conn, OTHER) is None


def test_what_only_a_hold_keeps_is_counted(catalog: Catalog) -> None:
    table, other = create(catalog), create(catalog, "/other")
    steps = [commit(catalog, table, segment()) for _ in range(3)]
    commit(catalog, other, segment())

    def kept(step: int, keeps_state: bool) -> tuple[int, int]:
        with catalog.read() as conn:
            return tables.size_kept_by(conn, Hold(OWNER, table.id, step, keeps_state))

    assert kept(0, True) == (0, 0), "the table needs all of it itself"
    with catalog.read() as conn:
        old = chains.load(conn, table.id, steps[-1]).segments
    base = replace(segment(3, role="base", upto=steps[-1]), stepped=True)
    with catalog.write() as tx:
        compacted = commits.replace_segments(tx, table.id, old, [base], "compact")
    assert [kept(step, False) for step in (0, *steps)] == [(3, 30), (2, 20), (1, 10), (0, 0)]
    assert kept(steps[-1], True) == (3, 30), "the logs are the state as well"
    assert kept(compacted, True) == (0, 0), "whose end is at the compaction"
    with catalog.write() as tx:
        commits.replace_segments(tx, table.id, [chain_base(tx.conn, table.id, compacted)], [], "merge")
    assert kept(0, True) == (3, 30), "what was merged is in what has replaced it"


def chain_base(conn: Connection, table_id: int, step: int) -> Segment:
    (base,) = chains.load(conn, table_id, step).segments
    return base
