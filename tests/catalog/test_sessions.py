"""Sessions: who is alive, what it still reads, and who maintains what."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import insert, select

from strandline.catalog import board, maintenance, sessions, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import HOST, Session
from strandline.catalog.stale import Ended, Stale
from strandline.errors import AlreadyExists, PathNotFound
from tests.catalog.conftest import Clock
from tests.catalog.examples import create
from tests.processes import READY, finish, run, start

LEASE = 60.0


def add(
    catalog: Catalog, name: str, *, pid: int | None = None, host: str = HOST, expires: float = 1e12
) -> None:
    with catalog.write() as conn:
        conn.execute(
            insert(sqltables.sessions).values(
                id=name, host=host, pid=os.getpid() if pid is None else pid, expires=expires
            )
        )


def live(catalog: Catalog) -> set[str]:
    with catalog.read() as conn:
        return sessions.live_sessions(conn, catalog.clock.now())


def gone_pid() -> int:
    return int(run("import os; print(os.getpid())"))


def test_a_session_costs_nothing_until_it_is_needed(catalog: Catalog) -> None:
    session = Session(catalog, LEASE)
    assert live(catalog) == set()
    assert session.ensure() == session.id
    session.ensure()
    assert live(catalog) == {session.id}
    session.close()
    assert live(catalog) == set()
    with catalog.read() as conn:
        assert conn.execute(select(sqltables.sessions)).all() == []


def test_file_names_are_fresh_and_tell_whose_they_are(catalog: Catalog) -> None:
    one, two = Session(catalog, LEASE), Session(catalog, LEASE)
    found = [session.file_name(7) for session in (one, two) for _ in range(3)]
    assert len(set(found)) == 6
    assert all(name.startswith(f"data/7/{one.id}-") for name in found[:3])
    assert live(catalog) == {one.id, two.id}, "before a file exists, its writer is known to be alive"
    one.close()
    two.close()


def test_threads_of_one_session_get_different_names(catalog: Catalog) -> None:
    session = Session(catalog, LEASE)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(session.file_name(1) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 80
    with catalog.read() as conn:
        assert len(conn.execute(select(sqltables.sessions)).all()) == 1
    session.close()


def test_a_lease_that_ran_out_is_over(catalog: Catalog, clock: Clock) -> None:
    add(catalog, "here", expires=clock.now() + 10)
    add(catalog, "there", host="elsewhere", expires=clock.now() + 10)
    assert live(catalog) == {"here", "there"}
    clock.sleep(11)
    assert live(catalog) == set()


def test_a_process_of_this_machine_that_is_gone_is_dead_at_once(catalog: Catalog) -> None:
    pid = gone_pid()
    add(catalog, "dead", pid=pid)
    add(catalog, "far away", pid=pid, host="elsewhere")
    add(catalog, "alive")
    assert live(catalog) == {"far away", "alive"}
    with catalog.write() as conn:
        sessions.end_dead(conn, catalog.clock.now())
        assert set(conn.execute(select(sqltables.sessions.c.id)).scalars()) == {"far away", "alive"}


HOLD = f"""
import os, sys
from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
catalog = Catalog(sys.argv[1])
catalog.open()
session = Session(catalog, 3600.0)
session.pin(3600.0)
{READY}
os._exit(0)
"""


def test_what_a_dead_process_held_is_free(catalog: Catalog, url: str) -> None:
    holder = start(HOLD, url)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    with catalog.read() as conn:
        assert len(conn.execute(select(sqltables.pins)).all()) == 1
    (holder_id,) = live(catalog)
    table = create(catalog)
    with catalog.write() as conn:
        assert maintenance.take(conn, catalog.clock.now(), table.id, holder_id)
        assert not maintenance.take(conn, catalog.clock.now(), table.id, "me")
    assert holder.stdin is not None
    holder.stdin.write("die\n")
    finish(holder)
    assert live(catalog) == set()
    with catalog.write() as conn:
        assert maintenance.take(conn, catalog.clock.now(), table.id, "me")
        sessions.end_dead(conn, catalog.clock.now())
        assert conn.execute(select(sqltables.pins)).all() == []


def test_a_session_renews_its_lease(open_catalog: Callable[..., Catalog]) -> None:
    catalog = open_catalog()
    session = Session(catalog, 0.3)
    session.ensure()
    with catalog.read() as conn:
        first = conn.execute(select(sqltables.sessions.c.expires)).scalar_one()
    renewed = threading.Event()
    catalog.after_commit = renewed.set
    assert renewed.wait(300)
    with catalog.read() as conn:
        assert conn.execute(select(sqltables.sessions.c.expires)).scalar_one() > first
    session.close()


def test_a_pin_covers_later_reads_for_half_of_its_time(catalog: Catalog, clock: Clock) -> None:
    session = Session(catalog, LEASE)

    def pinned() -> list[int]:
        with catalog.read() as conn:
            return list(conn.execute(select(sqltables.pins.c.step).order_by(sqltables.pins.c.id)).scalars())

    def advance() -> None:
        with catalog.write() as conn:
            board.next_step(conn)

    assert session.pin(60).step == 0
    advance()
    clock.sleep(29)
    assert session.pin(60).step == 1
    assert pinned() == [0], "the older pin keeps all later steps as well"
    clock.sleep(2)
    assert session.pin(60).step == 1
    assert pinned() == [0, 1]
    session.close()
    assert pinned() == []


def test_what_began_in_the_name_of_an_ended_session_is_refused(catalog: Catalog, clock: Clock) -> None:
    session = sessions.Session(catalog, 60)
    pin = session.pin()
    with catalog.read() as conn:
        sessions.require(conn, pin.session_id)
    clock.sleep(3600)
    with catalog.read() as conn:
        sessions.require(
            conn, pin.session_id
        )  # It is late, but nobody has noticed, so nothing of it is gone.
    with catalog.write() as conn:
        sessions.end_dead(conn, clock.now())
        with pytest.raises(Ended, match="taken for dead"):
            sessions.require(conn, pin.session_id)
    session.close()


def test_a_session_that_others_ended_is_not_used_again(catalog: Catalog) -> None:
    """Its own clock may say that it has time left: what counts is what others think."""
    session = sessions.Session(catalog, 60)
    pin = session.pin()
    assert session.confirm() == pin.session_id
    with catalog.write() as conn:
        sessions.end(conn, [pin.session_id])
    assert session.confirm() != pin.session_id
    assert session.pin().session_id == session.id
    with catalog.read() as conn:
        sessions.require(conn, session.id)
    session.close()


def test_a_pin_lasts_as_long_as_its_session(catalog: Catalog, clock: Clock) -> None:
    """However short a read was meant to be: what a live session reads is not collected."""
    session = sessions.Session(catalog, 600)
    session.pin(1.0)
    clock.sleep(500)
    with catalog.write() as conn:
        sessions.end_dead(conn, clock.now())
        assert conn.execute(select(sqltables.pins.c.step)).scalars().all() == [0]
    session.close()


def test_a_named_pin_stays_until_it_is_removed(catalog: Catalog, clock: Clock) -> None:
    with catalog.write() as conn:
        sessions.add_pin(conn, "audit", 3)
        with pytest.raises(AlreadyExists, match="already a pin 'audit'"):
            sessions.add_pin(conn, "audit", 4)
    clock.sleep(10**9)
    with catalog.write() as conn:
        sessions.end_dead(conn, clock.now())
        assert conn.execute(select(sqltables.pins.c.step)).scalars().all() == [3]
        sessions.remove_pin(conn, "audit")
        with pytest.raises(PathNotFound, match="no pin 'audit'"):
            sessions.remove_pin(conn, "audit")


def test_one_session_maintains_a_table_at_a_time(catalog: Catalog) -> None:
    table, other = create(catalog, "/a"), create(catalog, "/b")
    add(catalog, "one")
    add(catalog, "two")
    now = catalog.clock.now()
    with catalog.write() as conn:
        assert maintenance.take(conn, now, table.id, "one")
        assert not maintenance.take(conn, now, table.id, "two")
        assert not maintenance.take(conn, now, table.id, "one"), "one thread of it is at work already"
        assert maintenance.take(conn, now, other.id, "two")
        maintenance.release(conn, table.id, "two")
        assert not maintenance.take(conn, now, table.id, "two"), "only who took it can give it back"
        maintenance.release(conn, table.id, "one")
        assert maintenance.take(conn, now, table.id, "two")
        with pytest.raises(Stale, match="it was dropped"):
            maintenance.take(conn, now, 999, "one")
