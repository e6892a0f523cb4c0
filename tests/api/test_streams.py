"""Change streams: five modes, durable positions, and holds against compaction and garbage collection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from strandline import Database, StreamLag
from strandline.catalog import sqltables
from strandline.errors import InvalidArgument, PathNotFound, PreconditionFailed, UnderOperation
from strandline.operations.streams import StreamRequest, StreamSpec
from strandline.storage.feed import MODES
from tests.catalogs import ManualClock
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW, assert_sound, data_files, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = replace(ARROW, history_seconds=0.0, grace_seconds=0.0, workers=1)
TABLE = "CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"
IMPL = "/t/by_v/indexImplTable"


@pytest.fixture
def db(connect: Callable[..., Database]) -> Database:
    db = connect(settings=HERE)
    db.sql(f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2)")
    return db


def feed(db: Database, mode: str = "NEW_AND_OLD_IMAGES", name: str = "f", table: str = "t") -> str:
    db.sql(f"ALTER TABLE `{table}` ADD CHANGEFEED {name} WITH (MODE = '{mode}', FORMAT = 'JSON')")
    return f"/{table.lstrip('/')}/{name}"


def work(db: Database) -> list[int]:
    """Make four commits of all kinds; return their steps."""
    statements = [
        "UPSERT INTO t (k, v) VALUES (1, 'x'), (3, 'c')",
        "REPLACE INTO t (k, v) VALUES (2, 'b')",
        "DELETE FROM t WHERE k = 1",
        "UPSERT INTO t (k, n) VALUES (1, 9); DELETE FROM t ON (k) VALUES (77)",
    ]
    return [db.sql(statement).step or 0 for statement in statements]


EXPECTED: dict[str, list[dict[str, Any]]] = {
    "KEYS_ONLY": [{}] * 6,
    "NEW_IMAGE": [
        *({"v": "x", "n": 1}, {"v": "c", "n": None}, {"v": "b", "n": None}),
        *({"v": None, "n": None}, {"v": None, "n": 9}, {"v": None, "n": None}),
    ],
    "OLD_IMAGE": [
        *({"v": "a", "n": 1}, {"v": None, "n": None}, {"v": "b", "n": 2}),
        *({"v": "x", "n": 1}, {"v": None, "n": None}, {"v": None, "n": None}),
    ],
    "UPDATES": [
        {"v": "x", "n": None, "changed": ["v"]},
        {"v": "c", "n": None, "changed": ["v", "n"]},
        {"v": None, "n": None, "changed": ["n"]},
        {"v": None, "n": None, "changed": []},
        {"v": None, "n": 9, "changed": ["v", "n"]},
        {"v": None, "n": None, "changed": []},
    ],
}
EXPECTED["NEW_AND_OLD_IMAGES"] = [
    new | {f"old_{name}": value for name, value in old.items()}
    for new, old in zip(EXPECTED["NEW_IMAGE"], EXPECTED["OLD_IMAGE"], strict=True)
]


def expected(mode: str, steps: list[int]) -> list[dict[str, Any]]:
    a, b, c, d = steps
    heads = [(a, "U", 1), (a, "U", 3), (b, "R", 2), (c, "E", 1), (d, "U", 1), (d, "E", 77)]
    return [
        {"step": s, "op": op, "k": k} | shown for (s, op, k), shown in zip(heads, EXPECTED[mode], strict=True)
    ]


def test_a_window_is_shown(db: Database) -> None:
    mode = "NEW_AND_OLD_IMAGES"
    stream = db.stream(feed(db, mode))
    steps = work(db)
    assert stream.records() == expected(mode, steps)
    assert stream.records(after=steps[0]) == expected(mode, steps)[2:]
    assert stream.records(after=steps[0], upto=steps[2]) == expected(mode, steps)[2:4]
    assert stream.records(upto=steps[0]) == expected(mode, steps)[:2]
    assert stream.records(after=steps[-1]) == []
    db.compact("/t")
    db.collect()
    assert stream.records() == expected(mode, steps)
    assert [batch.records for batch in stream.poll()] == [expected(mode, steps)]


@pytest.mark.parametrize("bulk_rows", [0, 10**6])
def test_the_same_as_a_data_frame(
    connect: Callable[..., Database], spark: SparkSession, bulk_rows: int
) -> None:
    quick = connect("w", settings=HERE)
    quick.sql(f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2)")
    paths = {mode: feed(quick, mode, mode.lower()) for mode in MODES}
    steps = work(quick)
    db = connect("w", settings=replace(HERE, bulk_rows=bulk_rows), spark=spark)
    for mode, path in paths.items():
        frame = db.stream(path).read(after=steps[0], upto=steps[3])
        found = sorted((row.asDict() for row in frame.collect()), key=lambda r: (r["step"], r["k"]))
        assert found == expected(mode, steps)[2:]
        assert frame.columns == list(found[0])
    assert db.stream(paths["UPDATES"]).read(after=steps[3]).count() == 0


@pytest.mark.slow
def test_records_are_in_the_order_of_commits_and_keys(db: Database) -> None:
    path = feed(db)
    for i in range(150):
        db.sql(f"UPSERT INTO t (k, n) VALUES ({i % 3}, {i}), ({i % 3 + 10}, {i})")
    found = db.stream(path).records()
    assert [r["n"] for r in found] == [i for i in range(150) for _ in range(2)]
    assert [r["old_n"] for r in found[6:]] == [r["n"] for r in found[:-6]]
    with pytest.raises(PathNotFound):
        db.stream("/t/nothing").records()
    with pytest.raises(InvalidArgument, match="not a stream"):
        db.stream("/t").records()


def test_on_an_asynchronous_index_nothing_is_skipped(connect: Callable[..., Database], spark: object) -> None:
    """A rebuild records no changes, so it is not done while a stream reads the index."""
    db = connect(settings=replace(HERE, bulk_rows=3), spark=spark)
    db.sql("CREATE TABLE t (k Int32, v Int32, PRIMARY KEY (k), INDEX i GLOBAL ASYNC ON (v))")
    path = feed(db, "KEYS_ONLY", table="t/i/indexImplTable")
    for i in range(6):
        db.sql(f"UPSERT INTO t (k, v) VALUES ({i}, {i * 10})")
    db.maintain("/t")
    assert [(r["v"], r["k"]) for r in db.stream(path).records()] == [(i * 10, i) for i in range(6)]


# --- positions --------------------------------------------------------------------------------------------


def test_what_is_committed_does_not_come_again_and_what_is_not_does(
    connect: Callable[..., Database], db: Database
) -> None:
    path = feed(db, "NEW_IMAGE")
    steps = work(db)
    everything = db.stream(path).records()
    seen: list[dict[str, Any]] = []
    for batch in db.stream(path).poll(max_commits=1):
        seen += batch.records
        db.stream(path).commit(batch.step)
        if len(seen) == 3:
            break  # The consumer dies.
    other = connect("warehouse-1", settings=HERE)
    assert other.stream(path).position == steps[1]
    dealt_with = [r for r in seen if r["step"] <= other.stream(path).position]
    lost = next(iter(other.stream(path).poll(max_commits=1)))
    assert lost.records == everything[3:4]  # It dies before its commit.
    again = [r for batch in other.stream(path).poll() for r in batch.records]
    assert dealt_with + again == everything


def test_polling_after_everything_else_was_forgotten(db: Database) -> None:
    """Compaction and garbage collection delete the commits. The logs held by the stream have their steps."""
    path = feed(db, "NEW_IMAGE")
    work(db)
    everything = db.stream(path).records()
    db.compact("/t")
    for _ in range(2):
        db.sql("UPSERT INTO t (k) VALUES (1000)")
        db.compact("/t")
        db.collect()
    found = [batch.records for batch in db.stream(path).poll(max_commits=1)]
    assert [r for records in found for r in records][: len(everything)] == everything
    assert len(found) > 2, "not all of it at once"


def test_polling_waits_for_new_records(connect: Callable[..., Database]) -> None:
    db = connect(settings=HERE)
    db.sql(TABLE)
    path = feed(db, "KEYS_ONLY")
    assert list(db.stream(path).poll(timeout=0.0)) == []
    writer = threading.Timer(0.3, lambda: db.sql("UPSERT INTO t (k) VALUES (5)"))
    writer.start()
    batch = next(iter(db.stream(path).poll(timeout=300.0)))
    assert [r["k"] for r in batch.records] == [5]
    writer.join()


def test_a_poll_ends_when_nothing_comes(connect: Callable[..., Database]) -> None:
    clock = ManualClock()
    db = connect(settings=HERE, clock=clock)
    db.sql(TABLE)
    path = feed(db, "KEYS_ONLY")
    before = clock.now()
    assert list(db.stream(path).poll(timeout=7.0)) == []
    assert 7.0 <= clock.now() - before < 8.0
    with pytest.raises(InvalidArgument):
        next(iter(db.stream(path).poll(max_commits=0)))


def test_positions_that_are_refused(db: Database) -> None:
    path = feed(db)
    created = db.stream(path).position
    steps = work(db)
    db.stream(path).commit(steps[1])
    for step in (steps[0], created, -1, db.step + 1, "3", True, None):
        with refused(db, "INVALID_ARGUMENT"):
            db.stream(path).commit(step)  # type: ignore[arg-type]
    for after, upto in (
        (steps[1], db.step + 1),
        (steps[2], steps[1]),
        ("x", None),
        (None, 1.5),
        (True, None),
    ):
        with refused(db, "INVALID_ARGUMENT"):
            db.stream(path).records(after, upto)  # type: ignore[arg-type]
    with pytest.raises(PreconditionFailed, match="no longer has changes before") as gone:
        db.stream(path).records(after=steps[0])
    assert "begins" not in gone.value.hint
    with pytest.raises(PreconditionFailed, match="no longer has changes before") as never:
        db.stream(path).records(after=created - 1)
    assert f"The changefeed begins at step {created}." in never.value.hint
    db.stream(path).commit(steps[1])
    db.stream(path).commit(db.step)
    assert db.stream(path).records() == []


# --- holds ------------------------------------------------------------------------------------------------


def segments(db: Database) -> int:
    with db._runtime.catalog.read() as conn:
        return len(conn.execute(select(sqltables.segments.c.id)).all())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NEW_IMAGE", "NEW_AND_OLD_IMAGES"])
def test_compaction_and_collection_respect_holds(connect: Callable[..., Database], mode: str) -> None:
    clock = ManualClock()
    db = connect(settings=HERE, clock=clock)
    db.sql(TABLE)
    db.table("t").upsert([{"k": k, "v": f"v{k}"} for k in range(5000)])
    path = feed(db, mode)
    for i in range(5):
        db.table("t").upsert([{"k": k, "n": i} for k in range(5000)])
        db.compact("/t")
        clock.sleep(10_000)
        db.collect()
    stream = db.stream(path)
    found = stream.records()
    assert [r["n"] for r in found] == [i for i in range(5) for _ in range(5000)]
    if mode == "NEW_AND_OLD_IMAGES":
        assert [r["old_n"] for r in found] == [None] * 5000 + [i for i in range(4) for _ in range(5000)]
    described = db.describe(path)
    assert described["held_segments"] >= 5
    before = len(data_files(db))
    stream.commit(db.step)
    clock.sleep(10_000)
    db.collect()
    assert len(data_files(db)) < before
    assert db.describe(path)["held_segments"] == 0
    assert_sound(db, "/t")


def test_lag_is_visible(db: Database) -> None:
    path = feed(db)
    described = db.describe(path)
    assert (described["type"], described["mode"], described["format"], described["owner"]) == (
        "stream",
        "NEW_AND_OLD_IMAGES",
        "JSON",
        None,
    )
    assert described["position"] == described["created_step"]
    assert (described["steps_behind"], described["held_segments"], described["held_bytes"]) == (0, 0, 0)
    work(db)
    db.compact("/t")
    db.collect()
    described = db.describe(path)
    assert described["steps_behind"] == db.describe("/t")["step"] - described["position"] >= 4
    assert described["held_segments"] == 5, "four logs, and what the table was before them"
    assert described["held_bytes"] > 0
    assert {row[0] for row in rows(db, "DESCRIBE `t/f`")} >= {"position", "steps_behind", "held_bytes"}
    db.stream(path).commit(db.step)
    described = db.describe(path)
    assert (described["position"], described["steps_behind"], described["held_segments"]) == (db.step, 0, 0)


def test_a_dropped_stream_and_a_dropped_table_hold_nothing(connect: Callable[..., Database]) -> None:
    clock = ManualClock()
    db = connect(settings=HERE, clock=clock)
    db.sql(TABLE)
    feed(db, name="one")
    feed(db, name="two", table=IMPL)
    work(db)
    db.sql("ALTER TABLE t DROP CHANGEFEED one")
    db.sql("DROP TABLE t PURGE")
    clock.sleep(10_000)
    db.collect()
    with db._runtime.catalog.read() as conn:
        assert conn.execute(select(sqltables.holds)).all() == []
    assert segments(db) == 0


# --- statements -------------------------------------------------------------------------------------------


def test_a_stream_of_a_collection_is_not_for_users(db: Database) -> None:
    db.sql(
        "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true'); BACKUP c"
    )
    (name,) = [e.name for e in db.ls("/t") if e.type == "stream"]
    assert db.describe(f"/t/{name}")["owner"] == "/.backups/collections/c"
    with refused(db, "PRECONDITION_FAILED"):
        db.sql(f"ALTER TABLE t DROP CHANGEFEED `{name}`")
    with refused(db, "PRECONDITION_FAILED"):
        db.stream(f"/t/{name}").commit(db.step)
    (step, *_) = work(db)
    assert [r["k"] for r in db.stream(f"/t/{name}").records(upto=step)] == [1, 3]


def test_a_stream_that_is_still_being_created_says_so(db: Database) -> None:
    engine = db._operations.engine
    operation_id = engine.start("create stream", StreamRequest(table="/t", stream=StreamSpec(name="f")))
    engine.step(operation_id)
    for look in (
        lambda s: s.position,
        lambda s: s.records(),
        lambda s: s.commit(1),
        lambda s: list(s.poll()),
    ):
        with pytest.raises(UnderOperation, match="is creating it"):
            look(db.stream("/t/f"))
    # A thread is at it; whoever met it otherwise would carry it on.
    with engine._driving(operation_id), pytest.raises(UnderOperation, match="is creating it"):
        alter(db, "KEYS_ONLY")
    db.wait(operation_id)
    assert db.stream("/t/f").records() == []


def test_a_window_that_others_let_go_of_and_collect_meanwhile_is_no_damage(
    connect: Callable[..., Database], tmp_path: Path
) -> None:
    """As after a sleep of the process: the files that it was about to read are gone."""

    class Watched(QuickFiles):
        before_read: Callable[[], None] | None = None

        def read(self, name: str) -> bytes:
            act, self.before_read = self.before_read, None
            if act is not None:
                act()
            return super().read(name)

    files = Watched(tmp_path / "w")
    settings = replace(HERE, inline_rows=0)
    db = connect("w", files=files, settings=settings)
    other = connect("w", settings=settings)
    db.sql(f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 1)")
    path = feed(db, "NEW_IMAGE")
    other.sql("UPSERT INTO t (k, v, n) VALUES (2, 'b', 2)")

    def let_go() -> None:
        other.stream(path).commit(other.step)
        other.compact("t")
        other.collect()

    db._runtime.session.close()  # The reader has no lease.
    files.before_read = let_go
    with pytest.raises(PreconditionFailed, match="no longer has changes before"):
        db.stream(path).records(after=db.stream(path).position)


# --- another mode -----------------------------------------------------------------------------------------


def alter(db: Database, mode: str, name: str = "f") -> None:
    db.sql(f"ALTER TABLE t ALTER CHANGEFEED {name} SET (MODE = '{mode}')")


@pytest.mark.parametrize("after", MODES)
def test_an_altered_feed_shows_what_is_not_committed_in_its_new_mode(db: Database, after: str) -> None:
    for number, before in enumerate(MODES):
        feed(db, before, f"f{number}")
    steps = work(db)
    for number, before in enumerate(MODES):
        stream = db.stream(f"/t/f{number}")
        stream.commit(steps[0])
        version = db.describe(stream.path)["version"]
        alter(db, after, f"f{number}")
        described = db.describe(stream.path)
        assert (described["mode"], described["position"]) == (after, steps[0])
        assert described["version"] == version + (before != after)
        assert stream.records() == expected(after, steps)[2:]
    db.compact("/t")
    db.collect()
    for number in range(len(MODES)):
        assert db.stream(f"/t/f{number}").records() == expected(after, steps)[2:]


def test_a_mode_that_shows_what_was_there_needs_a_position_that_is_still_kept(db: Database) -> None:
    stream = db.stream(feed(db, "NEW_IMAGE"))
    steps = work(db)
    db.compact("/t")
    db.collect()  # A feed of new rows holds their changes, not the earlier rows.
    kept = db.describe("/t")["readable_from"]
    assert kept > stream.position
    with refused(db, "PRECONDITION_FAILED", "no longer kept"):
        alter(db, "OLD_IMAGE")
    alter(db, "KEYS_ONLY")
    assert stream.records() == expected("KEYS_ONLY", steps)
    stream.commit(kept)
    alter(db, "OLD_IMAGE")
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'z')")
    db.compact("/t")
    db.collect()  # From now on, the earlier rows are held.
    assert [(r["k"], r["v"]) for r in stream.records()] == [(2, "b")]


def test_a_feed_that_needs_it_no_more_lets_the_past_go(db: Database) -> None:
    feed(db, "OLD_IMAGE")
    work(db)
    db.compact("/t")
    db.collect()
    created = db.describe("/t")["readable_from"]
    alter(db, "NEW_IMAGE")
    db.collect()
    assert db.describe("/t")["readable_from"] > created


# --- how far a reader is behind ---------------------------------------------------------------------------


def test_the_lag_of_a_reader_is_in_steps_rows_and_seconds(db: Database) -> None:
    stream = db.stream(feed(db, "NEW_IMAGE"))
    begin = stream.position
    assert stream.lag() == StreamLag(begin, begin, 0, 0, 0.0)
    steps = work(db)
    lag = stream.lag()
    assert (lag.position, lag.head, lag.steps) == (begin, steps[-1], steps[-1] - begin)
    assert lag.rows == len(stream.records())
    assert lag.age > 0
    stream.commit(steps[0])
    assert stream.lag().rows == stream.lag(after=steps[0]).rows < lag.rows
    assert stream.lag(after=begin).position == steps[0], "what was committed is read"
    ahead = stream.lag(after=steps[-1])
    assert (ahead.position, ahead.steps, ahead.rows, ahead.age) == (steps[-1], 0, 0, 0.0)
    with refused(db, "INVALID_ARGUMENT", "a step is a whole number"):
        stream.lag(after="now")  # type: ignore[arg-type]
