"""Housekeeping changes no rows, keeps everything that is needed, and removes everything else."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

import strandline
from strandline import Database, Settings
from strandline.catalog import sqltables
from strandline.errors import AlreadyExists, Corrupted, InvalidArgument, PathNotFound, PreconditionFailed
from tests.catalogs import ManualClock, is_session
from tests.processes import run
from tests.tables.examples import ARROW, assert_sound, content, data_files, refused, rows

FILES = Settings(inline_rows=0)
TABLE = "CREATE TABLE t (k Int32, v Utf8, n Int64, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (n), INDEX late GLOBAL ASYNC ON (n))"


class Moving:
    """A clock that only ``sleep`` moves."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def now(self) -> float:
        return self.time.timestamp()

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def state(db: Database) -> list[Any]:
    paths = ("/t", "/t/i/indexImplTable")
    return [(content(db, p), db.describe(p)["rows"], db.describe(p)["digest"]) for p in paths]


def test_compaction_changes_no_state(db: Database) -> None:
    db.sql(TABLE)
    for number in range(20):
        db.sql(
            f"UPSERT INTO t (k, v, n) VALUES ({number % 7}, 'v{number}', {number}); DELETE FROM t WHERE k = {(number + 3) % 7}"
        )
    before, step = state(db), db.step
    assert db.compact("/t")
    assert state(db) == before
    assert db.describe("/t")["segments"] == 1
    assert_sound(db, "/t")
    assert not db.compact("/t"), "there is nothing left to do"
    assert rows(db, f"SELECT * FROM t VERSION AS OF {step} ORDER BY k") == before[0][0]
    db.sql("DELETE FROM t")
    assert db.compact("/t")
    assert db.describe("/t")["segments"] == 0
    assert_sound(db, "/t")


def test_compaction_on_spark_gives_the_same(connect: Callable[..., Database], spark: Any) -> None:
    here, there = connect(settings=ARROW), connect(settings=Settings(bulk_rows=10), spark=spark)
    for db in (here, there):
        db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 2)")
        for start in (-6, -2, 2):
            db.table("t").upsert([{"k": n, "v": str(start)} for n in range(start, start + 9)])
        db.sql("DELETE FROM t WHERE k = 0")
        assert db.compact("/t")
        assert db.check("/t").ok
    assert content(here, "/t") == content(connect("warehouse-2", settings=ARROW), "/t")
    assert here.describe("/t")["digest"] == there.describe("/t")["digest"]
    assert here.describe("/t")["segments"] == there.describe("/t")["segments"] == 2


def test_small_commits_are_merged_by_their_writer(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(merge_segments=8, compaction_share=1.0))
    db.sql(TABLE)
    for number in range(50):
        db.sql(f"UPSERT INTO t (k, v, n) VALUES ({number % 11}, 'v{number}', {number})")
    assert db.describe("/t")["segments"] < 20
    assert db.describe("/t/i/indexImplTable")["segments"] < 20
    assert content(db, "/t") == [
        (k, f"v{max(n for n in range(50) if n % 11 == k)}", max(n for n in range(50) if n % 11 == k))
        for k in range(11)
    ]
    assert_sound(db, "/t")
    for step in range(2, db.step, 7):
        assert len(rows(db, f"SELECT k FROM t VERSION AS OF {step}")) <= 11


def test_an_asynchronous_index_follows(db: Database) -> None:
    db.sql(TABLE)
    db.sql("UPSERT INTO t (k, n) VALUES (1, 10), (2, 20), (3, NULL)")
    assert db.maintain().followed == ["/t/late"]
    assert content(db, "/t/late/indexImplTable") == [(None, 3), (10, 1), (20, 2)]
    assert db.maintain().followed == []
    db.sql(
        "UPSERT INTO t (k, n) VALUES (1, 11); UPSERT INTO t (k, n) VALUES (1, 12), (4, 40); DELETE FROM t WHERE k = 2"
    )
    db.sql("UPSERT INTO t (k, v) VALUES (4, 'not in the index')")
    assert content(db, "/t/late/indexImplTable") == [(None, 3), (10, 1), (20, 2)]
    assert db.maintain().followed == ["/t/late"]
    assert content(db, "/t/late/indexImplTable") == [(None, 3), (12, 1), (40, 4)]
    assert db.describe("/t/late")["steps_behind"] == 0
    assert db.check("/t").ok


def test_an_asynchronous_index_follows_over_compaction_and_collection(
    connect: Callable[..., Database],
) -> None:
    clock = ManualClock()
    db = connect(clock=clock, settings=Settings(history_seconds=0))
    db.sql(TABLE)
    for number in range(5):
        db.sql(f"UPSERT INTO t (k, n) VALUES ({number}, {number}), (77, {number})")
        clock.sleep(4000)
        assert db.compact("/t") or number == 0
        db.collect()
    db.maintain()
    assert content(db, "/t/late/indexImplTable") == sorted([(n, n) for n in range(5)] + [(4, 77)])


def test_an_asynchronous_index_on_a_filled_table_begins_whole(db: Database) -> None:
    db.sql("CREATE TABLE t (k Int32, n Int64, PRIMARY KEY (k)); UPSERT INTO t (k, n) VALUES (1, 10), (2, 20)")
    db.sql("ALTER TABLE t ADD INDEX late GLOBAL ASYNC ON (n)")
    assert content(db, "/t/late/indexImplTable") == [(10, 1), (20, 2)]
    db.sql("DELETE FROM t WHERE k = 1")
    assert db.describe("/t/late")["steps_behind"] == 1
    db.maintain("/t")
    assert content(db, "/t/late/indexImplTable") == [(20, 2)]
    db.sql("ALTER TABLE t DROP INDEX late")
    assert db.maintain().followed == []


def test_an_asynchronous_index_is_rebuilt_after_a_bulk_change(
    connect: Callable[..., Database], spark: Any
) -> None:
    db = connect("shared", settings=Settings(bulk_rows=10), spark=spark)
    here = connect("shared", settings=ARROW)
    db.sql("CREATE TABLE t (k Int32, n Int64, PRIMARY KEY (k), INDEX late GLOBAL ASYNC ON (n))")
    here.table("t").upsert([{"k": k, "n": -k} for k in range(40)])
    here.sql("DELETE FROM t WHERE k >= 30")
    assert db.maintain().followed == ["/t/late"]
    assert content(here, "/t/late/indexImplTable") == sorted((-k, k) for k in range(30))
    here.sql("UPSERT INTO t (k, n) VALUES (1, 1)")
    assert here.maintain().followed == ["/t/late"]
    assert (1, 1) in content(here, "/t/late/indexImplTable")
    assert here.check("/t").ok


def test_history_is_kept_for_its_time_and_then_collected(connect: Callable[..., Database]) -> None:
    clock = ManualClock()
    db = connect(clock=clock, settings=Settings(history_seconds=3600, inline_rows=0))
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'a')")
    old = db.step
    clock.sleep(60)
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'b')")
    assert db.compact("/t")
    assert db.collect().removed_files == 0
    assert rows(db, f"SELECT v FROM t VERSION AS OF {old}") == [("a",)]
    clock.sleep(2 * 3600)
    report = db.collect()
    assert report.removed_files == 2
    assert len(data_files(db)) == 1
    with refused(db, "PRECONDITION_FAILED", "no longer kept"):
        db.sql(f"SELECT v FROM t VERSION AS OF {old}")
    assert rows(db, "SELECT v FROM t") == [("b",)]
    assert db.describe("/t")["readable_from"] > old
    assert_sound(db, "/t")


def test_a_pin_keeps_a_step_readable(connect: Callable[..., Database]) -> None:
    clock = ManualClock()
    db = connect(clock=clock, settings=Settings(history_seconds=0, inline_rows=0))
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'a')")
    step = db.pin("audit")
    assert db.pins() == {"audit": step}
    with pytest.raises(AlreadyExists):
        db.pin("audit")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'b')")
    db.compact("/t")
    clock.sleep(10**6)
    assert db.collect().removed_files == 0
    assert rows(db, f"SELECT v FROM t VERSION AS OF {step}") == [("a",)]
    db.unpin("audit")
    with pytest.raises(PathNotFound):
        db.unpin("audit")
    clock.sleep(10**6)
    assert db.collect().removed_files == 2
    with pytest.raises(PreconditionFailed):
        db.pin("too late", step)
    for bad in (-1, db.step + 1, "1", 1.0, True):
        with pytest.raises(InvalidArgument):
            db.pin("bad", bad)  # type: ignore[arg-type]
    assert db.pins() == {}


def test_a_dropped_table_leaves_no_files(connect: Callable[..., Database]) -> None:
    clock = ManualClock()
    db = connect(clock=clock, settings=Settings(history_seconds=0, inline_rows=0))
    db.sql(TABLE)
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1)")
    db.maintain()
    assert len(data_files(db)) >= 3
    db.sql("DROP TABLE t PURGE")
    clock.sleep(10**6)
    db.collect()
    assert data_files(db) == []
    with db._runtime.catalog.read() as conn:
        for table in (
            sqltables.segments,
            sqltables.chains,
            sqltables.tables,
            sqltables.commits,
            sqltables.holds,
            sqltables.descriptions,
            sqltables.garbage,
        ):
            assert conn.execute(select(func.count()).select_from(table)).scalar_one() == 0, table.name


ORPHAN = """
import os, sys
import strandline
db = strandline.connect(sys.argv[1])
name = db._runtime.session.file_name(1) + ".parquet"
db._runtime.files.write(name, b"never committed")
print(name)
sys.stdout.flush()
if sys.argv[2] == "die":
    os._exit(0)
db.close()
"""


def test_files_without_a_commit_go_when_their_writer_is_gone(
    connect: Callable[..., Database], tmp_path: Any
) -> None:
    db = connect("shared")
    db.sql("CREATE TABLE t (k Int32, PRIMARY KEY (k))")
    mine = db._runtime.session.file_name(1) + ".parquet"
    db._runtime.files.write(mine, b"about to be committed")
    for how in ("die", "close"):
        theirs = run(ORPHAN, str(tmp_path / "shared"), how).strip()
        assert theirs in data_files(db)
        assert db.collect().removed_orphans == 1
        assert data_files(db) == [mine]


def test_a_reader_keeps_its_files_while_others_tidy_up(connect: Callable[..., Database], spark: Any) -> None:
    db = connect("shared", spark=spark, settings=Settings(history_seconds=0, inline_rows=0))
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k))")
    db.table("t").upsert([{"k": n, "v": "old"} for n in range(10)])
    frame = db.table("t").df()
    db.table("t").upsert([{"k": n, "v": "new"} for n in range(20)])
    other = connect("shared", settings=Settings(history_seconds=0))
    assert other.compact("/t")
    other.maintain()
    assert sorted({r.v for r in frame.collect()}) == ["old"]
    assert frame.count() == 10


@pytest.mark.slow
def test_maintenance_beside_writers(connect: Callable[..., Database]) -> None:
    settings = Settings(
        merge_segments=6, compaction_share=1.0, compact_log_segments=10, history_seconds=0, inline_rows=5
    )
    db, other = connect("shared", settings=settings), connect("shared", settings=settings)
    db.sql(TABLE)
    stop = threading.Event()
    failed: list[BaseException] = []

    def tidy() -> None:
        try:
            while not stop.is_set():
                other.maintain()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=tidy)
    thread.start()
    try:
        expected: dict[Any, Any] = {}
        for number in range(60):
            batch = [{"k": (number * 7 + i) % 50, "v": f"v{i}", "n": number} for i in range(8)]
            db.table("t").upsert(batch)
            expected |= {row["k"]: (row["k"], row["v"], row["n"]) for row in batch}
            if number % 5 == 0:
                db.sql(f"DELETE FROM t WHERE k = {number % 50}")
                expected.pop(number % 50, None)
    finally:
        stop.set()
        thread.join()
    assert failed == []
    assert content(db, "/t") == [expected[k] for k in sorted(expected)]
    db.maintain()
    assert_sound(db, "/t")
    assert content(db, "/t/late/indexImplTable") == sorted((row[2], row[0]) for row in expected.values())


def test_maintenance_of_one_directory(db: Database) -> None:
    for path in ("a/t", "b/t"):
        db.sql(
            f"CREATE TABLE `{path}` (k Int32, n Int32, PRIMARY KEY (k), INDEX late GLOBAL ASYNC ON (n)); UPSERT INTO `{path}` (k, n) VALUES (1, 1)"
        )
    assert db.maintain("/a").followed == ["/a/t/late"]
    assert db.maintain().followed == ["/b/t/late"]


def test_compaction_leaves_out_an_index_that_is_dropped_meanwhile(connect: Callable[..., Database]) -> None:
    """The index is dropped after each transaction of the compaction in turn."""
    db, other = connect("shared"), connect("shared")
    for moment in itertools.count(1):
        db.sql(TABLE + "; UPSERT INTO t (k, v, n) VALUES (1, 'v', 1)")
        happened = _at_transaction(db, moment, lambda: other.sql("ALTER TABLE t DROP INDEX i"))
        assert db.compact("/t") is True
        if not happened():
            return
        assert_sound(db, "/t")
        db.sql("DROP TABLE t")


def test_compaction_of_a_table_that_is_dropped_meanwhile_says_so(connect: Callable[..., Database]) -> None:
    db, other = connect("shared"), connect("shared")
    told = 0
    for moment in itertools.count(1):
        db.sql(TABLE + "; UPSERT INTO t (k, v, n) VALUES (1, 'v', 1)")
        happened = _at_transaction(db, moment, lambda: other.sql("DROP TABLE t"))
        try:
            db.compact("/t")  # The table may be dropped after the compaction of all its parts.
        except PathNotFound as error:
            told += 1
            assert error.message == "there is no table /t"
        if not happened():
            assert told
            return


@pytest.mark.parametrize("kind", ["SYNC", "ASYNC"])
def test_an_index_build_whose_table_is_dropped_meanwhile_is_no_damage(
    connect: Callable[..., Database],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    """The files of the table are also gone when the build reads them."""
    db, other = connect("shared", settings=FILES), connect("shared", settings=FILES)
    other.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX late GLOBAL ASYNC ON (v))")
    other.table("t").upsert([{"k": k, "v": "v"} for k in range(20)])
    entries = db._runtime.store.entries

    def drop_first(state: Any, *args: Any) -> Any:
        other.sql("DROP TABLE t PURGE")
        other._runtime.store.discard(state.chain.segments)
        return entries(state, *args)

    monkeypatch.setattr(db._runtime.store, "entries", drop_first)
    with pytest.raises(PathNotFound, match="there is no table /t"):
        db.sql(f"ALTER TABLE t ADD INDEX i GLOBAL {kind} ON (v)")
    assert not [record for record in caplog.records if record.levelname != "INFO"]


def test_maintenance_of_an_index_whose_table_is_dropped_meanwhile_logs_no_error(
    connect: Callable[..., Database], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    db, other = connect("shared", settings=FILES), connect("shared", settings=FILES)
    other.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX late GLOBAL ASYNC ON (v))")
    other.table("t").upsert([{"k": k, "v": "v"} for k in range(20)])
    follow = db._runtime.store.follow

    def drop_first(before: Any, after: Any, logs: Any, *args: Any, **options: Any) -> Any:
        other.sql("DROP TABLE t PURGE")
        other._runtime.store.discard(logs)
        return follow(before, after, logs, *args, **options)

    monkeypatch.setattr(db._runtime.store, "follow", drop_first)
    assert db.maintain().followed == []
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def _at_transaction(db: Database, number: int, act: Callable[[], object]) -> Callable[[], bool]:
    """Run something right after the n-th next write transaction; return a function that says if it ran."""
    left = [number]

    def hook() -> None:
        if is_session():
            return
        left[0] -= 1
        if left[0] == 0:
            act()

    db._runtime.catalog.after_commit = hook
    return lambda: left[0] <= 0


def test_a_compaction_whose_turn_was_taken_by_others_loses_nothing(connect: Callable[..., Database]) -> None:
    """The compaction slept past its lease. Others commit and merge meanwhile.

    The merged log replaces the one to compact, and has later changes.
    """
    db, other = (
        connect("shared"),
        connect("shared", settings=Settings(merge_segments=2, compaction_share=1.0)),
    )
    db.sql(
        "CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'old'), (2, 'old')"
    )
    catalog, read = db._runtime.catalog, db._runtime.catalog.read
    looks: list[Any] = []

    def sleepy() -> Any:
        with other._runtime.catalog.read() as conn:
            looks.extend(
                conn.execute(
                    select(sqltables.tables).where(sqltables.tables.c.maintained_by == db._runtime.session.id)
                ).all()
            )
        if len(looks) == 2:  # It has the maintenance lock and its snapshot.
            looks.append(None)
            with other._runtime.catalog.write() as tx:
                tx.conn.execute(
                    update(sqltables.sessions)
                    .where(sqltables.sessions.c.id == db._runtime.session.id)
                    .values(expires=0.0)
                )
            other.sql("UPSERT INTO t (k, v) VALUES (1, 'new')")
            assert other.describe("/t")["segments"] == 1, "they were merged"
        return read()

    catalog.read = sleepy  # type: ignore[method-assign]
    assert not db.compact("/t")
    assert len(looks) > 2
    assert content(other, "/t") == [(1, "new"), (2, "old")]
    assert_sound(other, "/t")


def test_the_policy_compacts_by_itself(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(compact_log_segments=5, merge_segments=1000, compaction_share=1.0))
    db.sql(TABLE)
    for number in range(7):
        db.sql(f"UPSERT INTO t (k, v, n) VALUES (1, 'v', {number})")
    assert set(db.maintain().compacted) >= {"/t", "/t/i/indexImplTable"}
    assert db.maintain().compacted == []
    assert_sound(db, "/t")


@pytest.mark.parametrize("folder", ["data", "staged", "data/7"])
def test_the_collector_follows_no_link(tmp_path: Path, folder: str) -> None:
    """A link to a foreign folder in place of an own one is left alone, whatever the names of its files."""
    home, root = tmp_path / "home", tmp_path / "w"
    names = ("thesis.txt", "1-aaaaaaaaaaaaaaaa/x.parquet", "7/gone-1/x.parquet", "gone-1/x.parquet")
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("years of work")
    with strandline.connect(root, settings=Settings(grace_seconds=0.0, history_seconds=0.0)) as db:
        (root / folder).parent.mkdir(exist_ok=True)
        (root / folder).symlink_to(home)
        with contextlib.suppress(Corrupted):
            db.collect()
    assert all((home / name).read_text() == "years of work" for name in names)
