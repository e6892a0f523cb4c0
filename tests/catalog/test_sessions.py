"""Sessions: which processes are alive, what they still read, and which one maintains a table."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import insert, select

from strandline.catalog import maintenance, sessions, sqltables
from strandline.catalog.conflicts import Stale
from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import HOST, Reading, Session
from strandline.errors import AlreadyExists, PathNotFound
from tests.catalog.conftest import Clock
from tests.catalog.examples import create
from tests.processes import READY, finish, run, start

LEASE = 60.0
GRACE = 40.0


def add(
    catalog: Catalog, name: str, *, pid: int | None = None, host: str = HOST, expires: float = 1e12
) -> None:
    with catalog.write() as tx:
        tx.conn.execute(
            insert(sqltables.sessions).values(
                id=name, host=host, pid=os.getpid() if pid is None else pid, expires=expires
            )
        )


def live(catalog: Catalog) -> set[str]:
    with catalog.read() as conn:
        return sessions.live_sessions(conn, catalog.clock.now())


def said(catalog: Catalog) -> list[int | None]:
    """Return the steps that sessions have recorded as read."""
    with catalog.read() as conn:
        return list(conn.execute(select(sqltables.sessions.c.reads_from)).scalars())


def gone_pid() -> int:
    return int(run("import os; print(os.getpid())"))


def test_a_session_costs_nothing_until_it_is_needed(catalog: Catalog) -> None:
    session = Session(catalog, LEASE, GRACE)
    assert live(catalog) == set()
    assert session.ensure() == session.id
    session.ensure()
    assert live(catalog) == {session.id}
    session.close()
    assert live(catalog) == set()
    with catalog.read() as conn:
        assert conn.execute(select(sqltables.sessions)).all() == []


def test_file_names_are_fresh_and_tell_whose_they_are(catalog: Catalog) -> None:
    one, two = Session(catalog, LEASE, GRACE), Session(catalog, LEASE, GRACE)
    found = [session.file_name(7) for session in (one, two) for _ in range(3)]
    assert len(set(found)) == 6
    assert all(name.startswith(f"data/7/{one.id}-") for name in found[:3])
    assert live(catalog) == {one.id, two.id}, "before a file exists, its writer is known to be alive"
    one.close()
    two.close()


def test_threads_of_one_session_get_different_names(catalog: Catalog) -> None:
    session = Session(catalog, LEASE, GRACE)
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
    with catalog.write() as tx:
        sessions.end_dead(tx)
        assert set(tx.conn.execute(select(sqltables.sessions.c.id)).scalars()) == {"far away", "alive"}


HOLD = f"""
import os, sys
from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Reading, Session
catalog = Catalog(sys.argv[1])
catalog.open()
session = Session(catalog, 3600.0, 60.0)
session.readers = lambda: [Reading(0, 0.0)]
session.ensure()
{READY}
os._exit(0)
"""


def test_what_a_dead_process_held_is_free(catalog: Catalog, url: str) -> None:
    holder = start(HOLD, url)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    assert said(catalog) == [0]
    (holder_id,) = live(catalog)
    table = create(catalog)
    with catalog.write() as tx:
        assert maintenance.take(tx, table.id, holder_id)
        assert not maintenance.take(tx, table.id, "me")
    assert holder.stdin is not None
    holder.stdin.write("die\n")
    finish(holder)
    assert live(catalog) == set()
    with catalog.write() as tx:
        assert maintenance.take(tx, table.id, "me")
        sessions.end_dead(tx)
    assert said(catalog) == []


def test_a_session_renews_its_lease(open_catalog: Callable[..., Catalog]) -> None:
    catalog = open_catalog()
    session = Session(catalog, 0.3, GRACE)

    def expires() -> float:
        with catalog.read() as conn:
            return conn.execute(select(sqltables.sessions.c.expires)).scalar_one()

    session.ensure()
    first = expires()  # it may have been renewed already
    for _ in range(30_000):
        if expires() != first:
            break
        time.sleep(0.01)
    assert expires() > first
    session.close()


def renew(session: Session) -> None:
    """Do what the session's thread does regularly."""
    with session._lock:
        if session._is_due():
            session._extend()


def test_a_reader_is_said_to_be_there_when_he_has_become_old(catalog: Catalog, clock: Clock) -> None:
    session = Session(catalog, LEASE, GRACE)
    readers = [Reading(3, clock.now())]
    session.readers = lambda: readers
    clock.sleep(GRACE / 4 - 1)
    readers.append(Reading(5, clock.now()))
    renew(session)
    assert said(catalog) == [], "who reads for a moment writes nothing, nor does anybody for him"
    clock.sleep(1)
    renew(session)
    assert said(catalog) == [3]
    del readers[0]
    clock.sleep(GRACE / 4)
    renew(session)
    assert said(catalog) == [5]
    readers.clear()
    renew(session)
    assert said(catalog) == [None]
    session.close()
    assert said(catalog) == []


def test_what_is_lent_is_kept_for_its_time(catalog: Catalog, clock: Clock) -> None:
    session = Session(catalog, LEASE, GRACE)
    session.lend(3, clock.now(), 100.0)
    clock.sleep(GRACE / 4)
    renew(session)
    assert said(catalog) == [3]
    clock.sleep(100.0 - GRACE / 4)
    renew(session)
    assert said(catalog) == [None]
    session.close()


def test_whoever_reads_the_past_is_said_to_be_there_at_once(open_catalog: Callable[..., Catalog]) -> None:
    catalog = open_catalog()
    session = Session(catalog, LEASE, GRACE)
    written = threading.Event()
    catalog.after_commit = written.set
    session.readers = lambda: [Reading(3, 0.0)]
    session.watch(at_once=True)
    assert written.wait(300), "its thread has done it, nobody else"
    assert said(catalog) == [3]
    session.close()


def test_a_reader_does_not_wait_for_a_writer(open_catalog: Callable[..., Catalog]) -> None:
    catalog, other = open_catalog(), open_catalog()
    session = Session(catalog, 0.1, 0.1)
    session.readers = lambda: [Reading(0, 0.0)]
    with other.write():
        session.watch(at_once=True)
        session.lend(0, 0.0, 10.0)
        assert said(other) == []
    session.close()


def test_a_session_that_others_ended_is_not_used_again(catalog: Catalog) -> None:
    """Its own clock may say that the lease has not expired; the catalog decides."""
    session = Session(catalog, LEASE, GRACE)
    session.readers = lambda: [Reading(2, 0.0)]
    before = session.ensure()
    session.confirm()
    assert session.id == before
    with catalog.write() as tx:
        sessions.end(tx, [before])
    session.confirm()
    assert session.id != before
    assert live(catalog) == {session.id}
    assert said(catalog) == [2], "what is still there of what is read shall stay"
    session.close()


def test_files_of_an_ended_session_are_refused(catalog: Catalog, clock: Clock) -> None:
    one, two = Session(catalog, LEASE, GRACE), Session(catalog, LEASE, GRACE)
    files = [f"{session.file_name(1)}.parquet" for session in (one, two)]
    clock.sleep(3600)
    with catalog.read() as conn:
        assert sessions.find_ended_writer(conn, files) is None, "they are late, but nobody has noticed"
    with catalog.write() as tx:
        sessions.end(tx, [two.id])
        assert sessions.find_ended_writer(tx.conn, files) == files[1]
        assert sessions.find_ended_writer(tx.conn, files[:1]) is None
    one.close()
    two.close()


def test_a_named_pin_stays_until_it_is_removed(catalog: Catalog, clock: Clock) -> None:
    with catalog.write() as tx:
        sessions.add_pin(tx, "audit", 3)
        with pytest.raises(AlreadyExists, match="already a pin 'audit'"):
            sessions.add_pin(tx, "audit", 4)
    clock.sleep(10**9)
    with catalog.write() as tx:
        sessions.end_dead(tx)
        assert tx.conn.execute(select(sqltables.pins.c.step)).scalars().all() == [3]
        sessions.remove_pin(tx, "audit")
        with pytest.raises(PathNotFound, match="no pin 'audit'"):
            sessions.remove_pin(tx, "audit")


def test_one_session_maintains_a_table_at_a_time(catalog: Catalog) -> None:
    table, other = create(catalog, "/a"), create(catalog, "/b")
    add(catalog, "one")
    add(catalog, "two")
    with catalog.write() as tx:
        assert maintenance.take(tx, table.id, "one")
        assert not maintenance.take(tx, table.id, "two")
        assert not maintenance.take(tx, table.id, "one"), "one thread of it is at work already"
        assert maintenance.take(tx, other.id, "two")
        maintenance.release(tx, table.id, "two")
        assert not maintenance.take(tx, table.id, "two"), "only who took it can give it back"
        maintenance.release(tx, table.id, "one")
        assert maintenance.take(tx, table.id, "two")
        with pytest.raises(Stale, match="it was dropped"):
            maintenance.take(tx, 999, "one")
