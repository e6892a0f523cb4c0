"""Concurrent writers, maintenance and readers in several processes.

Nothing is lost, no process fails, and every snapshot is consistent.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline import Database, Settings
from strandline.storage.arrow.scan import scan
from strandline.tables.snapshot import Reader
from tests.effort import EVERY
from tests.processes import READY, finish, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITERS = 4
SHARED = 8
"""Keys that all writers increment; key 100 + w counts what writer w did."""

WRITER = f"""
import random, sys
import strandline
folder, url, me, commits = sys.argv[1], sys.argv[2] or None, int(sys.argv[3]), int(sys.argv[4])
db = strandline.connect(folder, catalog=url, settings=strandline.Settings(merge_segments=16, inline_rows=20))
rng = random.Random(me)
{READY}
for i in range(commits):
    shared = rng.randrange({SHARED})
    own = 1000 * (me + 1) + i % 50
    text = f"UPDATE t SET n = n + 1, v = 'by{{me}}' WHERE k = {{shared}}; UPDATE t SET n = n + 1 WHERE k = {{100 + me}};"
    if i % 10 == 9:
        text += f"DELETE FROM t WHERE k = {{own}}"
    else:
        text += f"UPSERT INTO t (k, v, n) VALUES ({{own}}, 'v{{i % 3}}', 0)"
    db.sql(text)
db.close()
"""

CARETAKER = """
import sys, threading
import strandline
db = strandline.connect(sys.argv[1], catalog=sys.argv[2] or None, settings=strandline.Settings(history_seconds=0, compact_log_segments=8))
over = threading.Event()
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
rounds = 0
while rounds < 2 or not over.wait(0.2):
    db.maintain()
    with strandline.connect(sys.argv[1], catalog=sys.argv[2] or None, settings=strandline.Settings(history_seconds=0)) as other:
        try:
            other.compact("/t")
        except strandline.errors.UnderOperation:
            pass
        other.collect()
    rounds += 1
print(rounds)
db.close()
"""


def model(commits: int) -> dict[int, tuple[Any, ...]]:
    """Return the final rows, except for which writer was the last to change a shared counter."""
    rows: dict[int, tuple[Any, ...]] = {k: (k, 0) for k in range(SHARED)} | {
        100 + w: (100 + w, commits) for w in range(WRITERS)
    }
    for w in range(WRITERS):
        rng = random.Random(w)
        for i in range(commits):
            shared = rng.randrange(SHARED)
            rows[shared] = (shared, rows[shared][1] + 1)
            own = 1000 * (w + 1) + i % 50
            if i % 10 == 9:
                rows.pop(own, None)
            else:
                rows[own] = (own, 0)
    return rows


def create(folder: Path, url: str | None) -> None:
    with strandline.connect(folder, catalog=url) as db:
        db.sql(
            "CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n),"
            "INDEX by_n GLOBAL SYNC ON (n))"
        )
        db.table("t").insert(
            [{"k": k, "v": "none", "n": 0} for k in [*range(SHARED), *range(100, 100 + WRITERS)]]
        )


def look(db: Database) -> None:
    """Check one snapshot: shared and own counters have the same sum, and the indexes match the table."""
    reader = Reader(db._runtime)
    view = reader.view("/t")
    rows = {r["k"]: r for r in _scan(reader, view)}
    assert sum(rows[k]["n"] for k in range(SHARED)) == sum(rows[100 + w]["n"] for w in range(WRITERS))
    for name, columns in (("by_v", ("v", "k", "n")), ("by_n", ("n", "k"))):
        entries = {
            tuple(e[c] for c in columns) for e in _scan(reader, reader.index(view, view.info.index(name)))
        }
        assert entries == {tuple(r[c] for c in columns) for r in rows.values()}


def _scan(reader: Reader, view: Any) -> list[dict[str, Any]]:
    return scan(reader.runtime.store.cache, view.state).to_pylist()


@contextmanager
def looking(*looks: Callable[[], object], least: int) -> Iterator[None]:
    """Call each of ``looks`` in its own thread, at least ``least`` times; raise the errors at the end."""
    over, errors, counts = threading.Event(), [], [0] * len(looks)

    def watch(number: int) -> None:
        try:
            while not over.wait(0.05):
                looks[number]()
                counts[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=watch, args=(i,)) for i in range(len(looks))]
    for thread in threads:
        thread.start()
    try:
        yield
        while min(counts) < least and not errors:
            time.sleep(0.01)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def work(folder: Path, url: str | None, commits: int) -> int:
    """Run the writers and the maintenance to their end; return the number of maintenance rounds."""
    caretaker = start(CARETAKER, str(folder), url or "")
    writers = [start(WRITER, str(folder), url or "", str(w), str(commits)) for w in range(WRITERS)]
    for process in (caretaker, *writers):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in (caretaker, *writers):
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in writers:
        finish(process)
    return int(finish(caretaker))


def check(folder: Path, url: str | None, commits: int) -> None:
    with strandline.connect(folder, catalog=url, settings=Settings(history_seconds=0)) as db:
        rows = db.sql("SELECT k, n FROM t").rows()
        assert {r[0]: r for r in rows} == model(commits)
        assert db.check("/t").problems == []
        look(db)


@pytest.mark.slow
@pytest.mark.parametrize("commits", [1000 if EVERY else 40])
def test_writers_maintenance_and_readers(tmp_path: Path, catalog_url: str | None, commits: int) -> None:
    create(tmp_path, catalog_url)
    with strandline.connect(tmp_path, catalog=catalog_url) as db:
        with looking(
            lambda: look(db),
            lambda: look(db),
            lambda: db.sql("SELECT k FROM t VIEW by_v WHERE v = 'v1'").rows(),
            least=5,
        ):
            assert work(tmp_path, catalog_url, commits // WRITERS) >= 2
    check(tmp_path, catalog_url, commits // WRITERS)


@pytest.mark.slow
@pytest.mark.parametrize("commits", [50 if EVERY else 8])
def test_readers_on_spark(tmp_path: Path, spark: SparkSession, commits: int) -> None:
    create(tmp_path, None)
    with strandline.connect(tmp_path, spark=spark) as db:

        def sums() -> None:
            df = db.table("t").df()
            shared = df.where(f"k < {SHARED}").selectExpr("sum(n)").collect()[0][0]
            own = df.where("k >= 100 AND k < 1000").selectExpr("sum(n)").collect()[0][0]
            assert shared == own, "one DataFrame shows one step"

        with looking(sums, least=1):
            work(tmp_path, None, commits)
    check(tmp_path, None, commits)
