"""What a reader, a pin or a suspended process needs is kept; what none of them needs is collected."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import update

import strandline
from strandline import Database
from strandline.catalog import sessions, sqltables
from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.storage.arrow.scan import scan
from strandline.tables.snapshot import Reader
from tests.catalogs import ManualClock, forget
from tests.crash.mortal import DEAD, lost_files, unknown_files
from tests.crash.scenarios import FILES, create, litter, state, verify, write, written
from tests.processes import READY, finish, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder(tmp_path: Path, catalog_url: str | None) -> Path:
    create(tmp_path, catalog_url)
    with strandline.connect(tmp_path, catalog=catalog_url) as db:
        db.sql("ALTER TABLE t DROP INDEX later")  # It would keep the state that it has not followed yet.
    return tmp_path


GRACEFUL = replace(FILES, grace_seconds=60.0)
"""Recently removed files are kept for a minute. Otherwise only what a process declares to read is kept."""


@pytest.fixture
def connect(folder: Path, catalog_url: str | None) -> Iterator[Callable[..., Database]]:
    opened: list[Database] = []

    def make(**options: Any) -> Database:
        opened.append(strandline.connect(folder, catalog=catalog_url, **{"settings": FILES, **options}))
        return opened[-1]

    yield make
    for db in opened:
        db.close()


def replace_all(connect: Callable[..., Database], number: int = 1) -> Database:
    """In another process, change the table, compact it and collect garbage."""
    db = connect()
    write(db, number)
    litter(db, number)
    db.compact("/t")
    return db


def rows_of(reader: Reader) -> set[tuple[Any, ...]]:
    """Return the rows, read as by a process with empty caches."""
    forget(reader.runtime)
    view = reader.view("/t")
    table = scan(reader.runtime.store.cache, view.state)
    return set(zip(*(table.column(name).to_pylist() for name in ("k", "v", "n")), strict=True))


@pytest.fixture
def gently(connect: Callable[..., Database]) -> Callable[..., Database]:
    return partial(connect, settings=GRACEFUL)


def test_an_open_reader_keeps_its_files(gently: Callable[..., Database]) -> None:
    db = gently()
    reader = Reader(db._runtime)
    before = rows_of(reader)
    other = replace_all(gently)
    other.collect()
    assert rows_of(reader) == before
    assert state(other)["t"] != {r[0]: r for r in before}


def test_a_reader_that_is_said_to_be_there_keeps_its_files_without_any_grace(
    connect: Callable[..., Database],
) -> None:
    db = connect()
    reader = Reader(db._runtime)
    before = rows_of(reader)
    wait_until_said(db, reader.snapshot.step)
    other = replace_all(connect)
    other.collect()
    assert rows_of(reader) == before


def wait_until_said(db: Database, step: int) -> None:
    """Wait until the session's thread has recorded what the session reads."""
    for _ in range(6000):
        with db._runtime.catalog.read() as conn:
            if sessions.oldest_read(conn) == step:
                return
        time.sleep(0.05)
    pytest.fail("nothing was said")


@pytest.mark.slow
def test_a_reader_keeps_its_files_for_as_long_as_it_exists(connect: Callable[..., Database]) -> None:
    clock = ManualClock()
    # So long that no thread acts by itself during the test.
    gently = partial(connect, settings=replace(FILES, grace_seconds=6_000.0, session_seconds=60_000.0))
    db = gently(clock=clock)
    reader = Reader(db._runtime)
    before = rows_of(reader)
    for turn in range(1, 5):
        replace_all(lambda: gently(clock=clock), turn).close()
        clock.sleep(4_500.0)
        db._runtime.session.refresh()  # Its thread does this several times per grace period.
        gently(clock=clock).collect()
        assert rows_of(reader) == before
    kept = set(db._runtime.files.names("data"))
    del reader
    gc.collect()
    gently(clock=clock).collect()
    assert set(db._runtime.files.names("data")) == kept  # The session's row still says that it is read.
    db.collect()  # The collecting process knows its own readers without waiting for its thread.
    assert set(db._runtime.files.names("data")) < kept


READER = f"""
import sys
import strandline
from strandline.tables.snapshot import Reader
from strandline.storage.arrow.scan import scan
db = strandline.connect(sys.argv[1], catalog=sys.argv[2] or None)
reader = Reader(db._runtime)
view = reader.view("/t")
{READY}
print(scan(db._runtime.store.cache, view.state).num_rows)
db.close()
"""


@pytest.mark.slow
def test_a_reader_in_another_process_keeps_its_files(
    folder: Path, catalog_url: str | None, gently: Callable[..., Database]
) -> None:
    other = start(READER, str(folder), catalog_url or "")
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    db = replace_all(gently)
    collector = gently()
    collector.collect()
    assert other.stdin is not None
    other.stdin.write("go\n")
    other.stdin.flush()
    assert finish(other) == "40\n"
    assert len(state(db)["t"]) != 40


def test_a_dataframe_keeps_its_files(tmp_path: Path, spark: SparkSession) -> None:
    create(tmp_path, None)
    with strandline.connect(tmp_path, settings=FILES, spark=spark) as db:
        df = db.table("t").df()
        gc.collect()
        wait_until_said(db, db.step)

        def connect() -> Database:
            return strandline.connect(tmp_path, settings=FILES)

        with replace_all(connect), connect() as collector:
            collector.collect()
            collector.collect()
        assert df.count() == 40
        assert db.table("t").df().count() != 40


# --- pins and history -------------------------------------------------------------------------------------


def at(db: Database, step: int) -> set[tuple[Any, ...]]:
    forget(db._runtime)
    return set(db.sql(f"SELECT k, v, n FROM t VERSION AS OF {step}").rows())


def test_a_named_pin_keeps_a_step_readable(connect: Callable[..., Database]) -> None:
    db = connect()
    step = db.pin("audit")
    before = at(db, step)
    db.close()
    replace_all(connect).close()
    with connect() as db:
        db.collect()
        assert at(db, step) == before
        db.unpin("audit")
    with connect() as db:
        db.collect()
        for read in (at, lambda db, step: db.pin("late", step)):
            with pytest.raises(PreconditionFailed, match="no longer kept"):
                read(db, step)
        with pytest.raises(InvalidArgument, match="not been committed yet"):
            at(db, 10**6)


def test_a_reader_of_the_past_keeps_it(connect: Callable[..., Database]) -> None:
    db = connect()
    step = db.pin("audit")
    db.close()
    replace_all(connect).close()
    reading = connect()
    before = at(reading, step)
    result = reading.sql(f"SELECT k, v, n FROM t VERSION AS OF {step}")
    wait_until_said(reading, step)
    with connect() as db:
        db.unpin("audit")
    with connect() as db:
        db.collect()
    assert at(reading, step) == before
    assert set(result.rows()) == before
    reading.close()
    with connect() as db:
        db.collect()
        with pytest.raises(PreconditionFailed, match="no longer kept"):
            at(db, step)


# --- a process wrongly taken for dead ---------------------------------------------------------------------


def bury_alive(db: Database, other: Database) -> str:
    """Other processes take this one for dead, and collect its files."""
    session_id = db._runtime.session.id
    with other._runtime.catalog.write() as tx:
        tx.conn.execute(
            update(sqltables.sessions).where(sqltables.sessions.c.id == session_id).values(pid=DEAD)
        )
    other.collect()
    with other._runtime.catalog.read() as conn:
        assert session_id not in sessions.all_sessions(conn)
    return session_id


def test_a_sleeper_that_was_thought_dead_commits_again(connect: Callable[..., Database]) -> None:
    """Its files were collected while it slept between writing and committing, so it must write new ones."""
    db, other = connect(), connect()
    before = state(db)
    catalog = db._runtime.catalog
    fallen_asleep: list[Any] = []
    publish = catalog.write

    def sleepy() -> Any:
        if unknown_files(db) and not fallen_asleep:
            fallen_asleep.append(bury_alive(db, other))
            db._runtime.session._expires = 1.0  # It slept for longer than its lease.
        return publish()

    catalog.write = sleepy  # type: ignore[method-assign]
    write(db, 1)
    assert fallen_asleep
    assert db._runtime.session.id not in fallen_asleep
    assert lost_files(db) == set()
    verify(db, written(before, 1))


def test_a_compaction_that_was_thought_dead_changes_nothing(connect: Callable[..., Database]) -> None:
    db, other = connect(), connect()
    write(db, 1)
    before = state(db)
    catalog = db._runtime.catalog
    fallen_asleep: list[Any] = []
    publish = catalog.write

    def sleepy() -> Any:
        if unknown_files(db) and not fallen_asleep:
            fallen_asleep.append(bury_alive(db, other))
        return publish()

    catalog.write = sleepy  # type: ignore[method-assign]
    db.compact("/t")
    catalog.write = publish  # type: ignore[method-assign]
    assert fallen_asleep
    assert lost_files(db) == set()
    with connect() as fresh:
        verify(fresh, before)


def test_a_renewal_finds_out_that_the_session_has_ended(connect: Callable[..., Database]) -> None:
    db, other = connect(), connect()
    write(db, 1)
    old = bury_alive(db, other)
    db._runtime.session._extend()
    assert db._runtime.session.id != old
    write(db, 2)
    assert lost_files(db) == set()
