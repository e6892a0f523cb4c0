"""Backups during concurrent writes and reads: these do not fail, and each backup is exact at its step."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from strandline import Database
from strandline.catalog import paths
from strandline.errors import Conflict, UnderOperation
from strandline.model import IndexDef, TableSchema
from strandline.types import parse_type
from tests.backups.reading import (
    CLUSTER,
    State,
    backups,
    changes,
    contents,
    leaks,
    projected,
    records,
    streams,
)
from tests.effort import EVERY
from tests.tables.examples import assert_sound, content

KEYS = 40
BY_V = IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",), cover=("n",))
BY_N = IndexDef(name="by_n", kind="GLOBAL SYNC", columns=("n",))
SCHEMA = TableSchema.of(
    [("k", parse_type("Int32"), False), ("v", parse_type("Utf8"), False), ("n", parse_type("Int64"), False)],
    ("k",),
)
TABLES = ("/t", "/u")
RESTORES = 6 if EVERY else 3
"""Number of restores that replace the tables while other threads read and write them."""


@dataclass
class Crowd:
    """Threads that repeat an action until they are stopped; their errors, and what writers committed."""

    stop: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)
    commits: list[tuple[int, str, int, tuple[Any, ...] | None]] = field(default_factory=list)
    """Step, table, key and new row of each change."""
    rounds: dict[str, int] = field(default_factory=dict)
    pause: float = 0.0 if EVERY else 0.01
    """Pause of a thread between two rounds, so that concurrent work ends sooner."""

    def again_and_again(self, name: str, act: Callable[[random.Random], None]) -> threading.Thread:
        def loop() -> None:
            rng = random.Random(name)
            while not self.stop.is_set():
                try:
                    act(rng)
                except BaseException as error:
                    self.errors.append(error)
                    return
                self.rounds[name] = self.rounds.get(name, 0) + 1
                self.stop.wait(self.pause)

        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        return thread

    def state_at(self, table: str, step: int) -> State:
        state: State = {}
        for at, path, key, row in sorted(self.commits, key=lambda c: c[0]):
            if path == table and at <= step:
                state.pop((key,), None)
                if row is not None:
                    state[(key,)] = row
        return state

    def touched(self, table: str, after: int, upto: int) -> set[int]:
        return {key for at, path, key, _ in self.commits if path == table and after < at <= upto}


@contextmanager
def running(crowd: Crowd, threads: list[threading.Thread]) -> Iterator[None]:
    try:
        yield
    finally:
        crowd.stop.set()
        for thread in threads:
            thread.join(300)
    assert not any(thread.is_alive() for thread in threads)
    assert crowd.errors == []


def writer(db: Database, crowd: Crowd, number: int) -> Callable[[random.Random], None]:
    """Return an action that writes or deletes rows of one or both tables in one commit.

    All writers share the keys.
    """

    def act(rng: random.Random) -> None:
        table, key = rng.choice(TABLES), rng.randrange(KEYS)
        if rng.random() < 0.2:
            step = db.table(table).delete([key])
            assert step is not None
            crowd.commits.append((step, table, key, None))
            return
        rows = {
            k: (k, f"v{rng.randrange(6)}", number * 10**9 + rng.randrange(10**6))
            for k in {key, rng.randrange(KEYS)}
        }
        step = db.table(table).upsert([dict(zip(SCHEMA.names, row, strict=True)) for row in rows.values()])
        assert step is not None
        crowd.commits += [(step, table, k, row) for k, row in rows.items()]

    return act


def reader(db: Database) -> Callable[[random.Random], None]:
    def act(rng: random.Random) -> None:
        table, value = rng.choice(TABLES), f"v{rng.randrange(6)}"
        for row in db.sql(f"SELECT k, v, n FROM `{table}` VIEW by_v WHERE v = '{value}'").rows():
            assert row[1] == value
        described = db.describe(table)
        assert len(described["indexes"]) == 2

    return act


def make(db: Database) -> None:
    for path in TABLES:
        db.sql(
            f"CREATE TABLE `{path}` (k Int32, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"
        )
        db.sql(f"ALTER TABLE `{path}` ADD INDEX by_n GLOBAL SYNC ON (n)")
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t, TABLE u) {CLUSTER}")


@pytest.mark.slow
def test_writers_and_readers_notice_nothing_and_nothing_is_lost_or_doubled(
    connect: Callable[..., Database], catalog_url: str | None
) -> None:
    options = {
        "workers": 4,
        "history_seconds": 3600.0,
        "merge_segments": 16,
        "compaction_share": 1.0,
        "compact_log_segments": 30,
        "inline_rows": 1,
    }
    db, others, watching = (connect(catalog_url, settings=options) for _ in range(3))
    make(db)
    crowd = Crowd()
    threads = [crowd.again_and_again(f"writer {i}", writer(others, crowd, i)) for i in range(4)]
    threads.append(crowd.again_and_again("reader", reader(watching)))
    threads.append(crowd.again_and_again("care", lambda rng: (watching.maintain(), time.sleep(0.05))[1]))
    with running(crowd, threads):
        for statement in (
            "BACKUP c",
            "BACKUP c INCREMENTAL",
            "BACKUP c INCREMENTAL",
            "BACKUP c",
            "BACKUP c INCREMENTAL",
        ):
            target = len(crowd.commits) + (25 if EVERY else 10)
            while len(crowd.commits) < target and not crowd.errors:
                time.sleep(0.01)
            db.sql(statement)
        while not all(thread.name in crowd.rounds for thread in threads) and not crowd.errors:
            time.sleep(0.01)
    known = {record.name: record for record in records(db)}
    assert len(known) == 5
    for name, record in known.items():
        found = contents(db, name)
        for path in TABLES:
            expected = crowd.state_at(path, record.step)
            assert found[path] == expected
            assert found[f"{path}/by_v"] == projected(SCHEMA, expected, BY_V)
            assert found[f"{path}/by_n"] == projected(SCHEMA, expected, BY_N)
            past = db.sql(f"SELECT k, v, n FROM `{path}` VERSION AS OF {record.step}").rows()
            assert {(row[0],): tuple(row) for row in past} == expected
            if record.parent is not None:
                parent = known[record.parent]
                assert record.after_step == parent.step
                assert {row[0] for row in changes(db, name, path)} == crowd.touched(
                    path, parent.step, record.step
                )
    for path in TABLES:
        assert {(row[0],): row for row in content(db, path)} == crowd.state_at(path, db.step)
        assert_sound(db, path)
    db.collect()
    assert leaks(db) == []


@pytest.mark.slow
def test_two_collections_of_the_same_tables(
    connect: Callable[..., Database], catalog_url: str | None
) -> None:
    """One of them may be refused while the other runs; neither changes what belongs to the other."""
    one, two = (connect(catalog_url, settings={"workers": 2}) for _ in range(2))
    make(one)
    one.sql(f"CREATE BACKUP COLLECTION d (TABLE u, TABLE t) {CLUSTER}")
    crowd = Crowd()

    def back_up(db: Database, collection: str) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            first = not backups(db, collection)
            try:
                db.sql(f"BACKUP {collection}{'' if first or rng.random() < 0.2 else ' INCREMENTAL'}")
            except UnderOperation:
                time.sleep(0.01)

        return act

    threads = [crowd.again_and_again("c", back_up(one, "c")), crowd.again_and_again("d", back_up(two, "d"))]
    threads.append(crowd.again_and_again("writer", writer(one, crowd, 1)))
    with running(crowd, threads):
        deadline = time.monotonic() + 300
        while (
            min(len(backups(one, "c")), len(backups(one, "d"))) < 3
            and time.monotonic() < deadline
            and not crowd.errors
        ):
            time.sleep(0.05)
    for collection in ("c", "d"):
        for record in records(one, collection):
            found = contents(one, record.name, collection)
            for path in TABLES:
                assert found[path] == crowd.state_at(path, record.step)
    for path in TABLES:
        names = sorted(str(records(one, collection)[-1].stream) for collection in ("c", "d"))
        assert streams(one, path) == streams(one, f"{path}/by_v/indexImplTable") == names
        assert_sound(one, path)
    assert len(backups(one, "c")) >= 3
    assert len(backups(one, "d")) >= 3


@pytest.mark.parametrize("pace", [0.0, 0.01])
def test_a_window_with_the_writer_right_at_its_edge(connect: Callable[..., Database], pace: float) -> None:
    """Every commit is in exactly one increment: the one whose steps include it."""
    db, other = connect(), connect()
    db.sql(
        f"CREATE TABLE t (k Int32, PRIMARY KEY (k)); CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c"
    )
    crowd = Crowd(pause=pace)

    def act(_: random.Random) -> None:
        key = len(crowd.commits)
        step = other.table("t").upsert([{"k": key}])
        crowd.commits.append((step or 0, "/t", key, (key,)))

    with running(crowd, [crowd.again_and_again("writer", act)]):
        for _ in range(8):
            db.sql("BACKUP c INCREMENTAL")
    db.sql("BACKUP c INCREMENTAL")
    seen = [row[0] for name in backups(db)[1:] for row in changes(db, name, "/t")]
    assert sorted(seen) == list(range(len(crowd.commits)))
    assert leaks(db) == []


@pytest.mark.slow
def test_restores_over_tables_that_others_read_and_write(
    connect: Callable[..., Database], catalog_url: str | None
) -> None:
    """A reader sees all of one restore or all of another, in tables and indexes.

    A write is in the table that existed at its step, wherever that table is kept now.
    """
    db, other, watching = (connect(catalog_url, settings={"workers": 2, "inline_rows": 1}) for _ in range(3))
    make(db)
    db.sql(f"CREATE BACKUP COLLECTION d (TABLE t, TABLE u) {CLUSTER}")
    for age in ("young", "old"):
        for path in TABLES:
            db.table(path).upsert([{"k": k, "v": age, "n": k} for k in range(KEYS)])
        db.sql("BACKUP c" if age == "young" else "BACKUP c INCREMENTAL; BACKUP d")
    crowd, written = Crowd(), itertools.count(KEYS)

    def write(rng: random.Random) -> None:
        table, key = rng.choice(TABLES), next(written)
        step = other.table(table).upsert([{"k": key, "v": "mine", "n": key}])
        crowd.commits.append((step or 0, table, key, (key, "mine", key)))

    def look(rng: random.Random) -> None:
        ages = [f"SELECT v FROM `{path}` WHERE k < {KEYS}" for path in TABLES]
        ages += [f"SELECT v FROM `{path}` VIEW by_n WHERE n < {KEYS}" for path in TABLES]
        try:
            with watching.transaction():
                seen = [row[0] for query in ages for row in watching.sql(query).rows()]
        except (Conflict, UnderOperation):
            return
        assert len(seen) == 4 * KEYS
        assert len(set(seen)) == 1, "young and old at once"

    def restore_too(rng: random.Random) -> None:
        with contextlib.suppress(UnderOperation):
            watching.sql("RESTORE d WITH (REPLACE = 'true')")
        time.sleep(0.05)

    threads = [crowd.again_and_again(f"writer {i}", write) for i in range(2)]
    threads += [crowd.again_and_again("reader", look), crowd.again_and_again("another", restore_too)]
    young, old = backups(db)
    done = 0
    with running(crowd, threads):
        while done < RESTORES and not crowd.errors:
            target = len(crowd.commits) + 5
            while len(crowd.commits) < target and not crowd.errors:
                time.sleep(0.01)
            with contextlib.suppress(UnderOperation):
                db.sql(f"RESTORE c AT '{(young, old)[done % 2]}' WITH (REPLACE = 'true')")
                done += 1
    for path in TABLES:
        kept = [f"{entry.path}{path}" for entry in db.ls("/.replaced")]
        assert len(kept) >= RESTORES
        lives = sorted((_begin(db, at), at) for at in (path, *kept))
        for (begin, at), (end, _) in itertools.pairwise([*lives, (2**62, "")]):
            mine = {k for step, table, k, _ in crowd.commits if table == path and begin <= step < end}
            assert {row[0] for row in content(db, at) if row[1] == "mine"} == mine
            assert_sound(db, at)
    db.collect()
    assert leaks(db) == []


def _begin(db: Database, path: str) -> int:
    """Return the step at which this table was created."""
    with db._runtime.catalog.read() as conn:
        return paths.require(conn, path).created_step
