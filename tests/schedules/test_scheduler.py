"""The scheduler: what is due runs once, whoever runs it, and what happens if it cannot."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from strandline import Database, ScheduleRun
from strandline.api.schedules import scheduler_of
from strandline.catalog import schedules
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound
from strandline.schedules.schedule import ScheduleRecord
from strandline.schedules.scheduler import LATE_SECONDS, BackupScheduler
from tests.backups.reading import CLUSTER
from tests.catalogs import ManualClock

HOUR, DAY = 3600.0, 86400.0
MAKE = f"CREATE TABLE t (k Int64, PRIMARY KEY (k)); CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}"
START = datetime(2026, 3, 20, 12, tzinfo=timezone.utc).timestamp()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def db(connect: Callable[..., Database], clock: ManualClock) -> Database:
    db = connect("w", clock=clock)
    db.sql(MAKE)
    return db


def scheduler(db: Database) -> BackupScheduler:
    """Return a scheduler that runs each operation to its end before it starts the next one."""
    found = scheduler_of(db, db._operations.loaded)
    found._launch = lambda operation_id: db._operations.engine.run(operation_id)
    return found


def go_to(clock: ManualClock, hour: float) -> None:
    """Move the clock to an hour after the start."""
    clock.sleep(START + hour * HOUR - clock.now())


def told(runs: list[ScheduleRun]) -> list[tuple[Any, ...]]:
    """Return the runs, oldest first: task, hours after the start when it was due, and state."""
    return [(run.task, (run.due - START) / HOUR, run.state) for run in reversed(runs)]


def kinds(db: Database) -> list[str]:
    return [row[1] for row in db.sql("SHOW BACKUPS IN c").rows()]


def test_what_is_due_runs_once(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 14 * * *", incremental="0 15-23 * * *")
    run = scheduler(db)
    assert run.tick() == []
    go_to(clock, 2)
    assert [each.task for each in run.tick()] == ["full"]
    assert run.tick() == []
    go_to(clock, 3.01)
    db.sql("UPSERT INTO t (k) VALUES (1)")
    assert [each.task for each in run.tick()] == ["incremental"]
    run.tick()
    assert told(made.runs()) == [("full", 2.0, "done"), ("incremental", 3.0, "done")]
    assert kinds(db) == ["full", "incremental"]
    info = made.info()
    assert (info.next_task, info.next_run) == ("incremental", START + 4 * HOUR)
    assert info.last_run is not None and info.last_run.operation_id is not None
    assert db.operation(info.last_run.operation_id).state == "done"
    assert run.next_time() == START + 4 * HOUR


def test_the_first_increment_is_a_full_backup(db: Database, clock: ManualClock) -> None:
    db.create_schedule("s", "c", incremental="0 * * * *")
    go_to(clock, 1)
    scheduler(db).tick()
    assert kinds(db) == ["full"]


def test_a_full_backup_replaces_the_increment_that_is_due_with_it(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 14 * * *", incremental="0 * * * *")
    go_to(clock, 2)
    scheduler(db).tick()
    assert [run.task for run in made.runs()] == ["full"]
    assert kinds(db) == ["full"]


@pytest.mark.parametrize("missed", ["run", "skip"])
def test_what_was_missed(db: Database, clock: ManualClock, missed: str) -> None:
    """No scheduler ran for three days: a full backup and many increments were due."""
    made = db.create_schedule("s", "c", full="0 2 * * *", incremental="0 3-23 * * *", missed=missed)
    go_to(clock, 72.5)
    run = scheduler(db)
    run.tick()
    run.tick()
    if missed == "run":
        assert told(made.runs()) == [("full", 72.0, "done")]
    else:
        assert told(made.runs()) == [("full", 72.0, "skipped")]
        assert made.runs()[0].note == "no scheduler ran when it was due"
    go_to(clock, 73.0)
    run.tick()
    assert [each.task for each in made.runs()] == ["incremental", "full"]


def test_a_late_run_is_not_missed(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 14 * * *", missed="skip")
    go_to(clock, 2)
    clock.sleep(LATE_SECONDS)
    scheduler(db).tick()
    assert [run.state for run in made.runs()] == ["running"]


@pytest.mark.parametrize("overlap", ["wait", "skip"])
def test_a_run_that_has_not_ended(db: Database, clock: ManualClock, overlap: str) -> None:
    made = db.create_schedule("s", "c", full="0 * * * *", overlap=overlap)
    run = scheduler(db)
    run._launch = lambda operation_id: None  # The operation does not move.
    go_to(clock, 1)
    (first,) = run.tick()
    go_to(clock, 2)
    assert run.tick() == []
    assert [each.state for each in made.runs()] == (
        ["running"] if overlap == "wait" else ["skipped", "running"]
    )
    db._operations.engine.run(str(first.operation_id))
    run._launch = lambda operation_id: db._operations.engine.run(operation_id)
    run.tick()
    run.tick()
    expected = {"wait": ["done", "done"], "skip": ["skipped", "done"]}
    assert [each.state for each in made.runs()] == expected[overlap]


@pytest.mark.parametrize("overlap", ["wait", "skip"])
def test_a_collection_under_another_operation(db: Database, clock: ManualClock, overlap: str) -> None:
    from strandline.backups.collection import CollectionRequest

    made = db.create_schedule("s", "c", full="0 * * * *", overlap=overlap)
    engine = db._operations.engine
    other = engine.start("backup", CollectionRequest(collection="c"))
    go_to(clock, 1)
    run = scheduler(db)
    assert run.tick() == []
    assert [each.state for each in made.runs()] == ([] if overlap == "wait" else ["skipped"])
    engine.run(other)
    clock.sleep(1)
    assert len(run.tick()) == (1 if overlap == "wait" else 0)


def test_a_failed_run_is_started_again_with_growing_pauses(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 14 * * *", retries=2, retry_seconds=60)
    db.sql("ALTER TABLE t RENAME TO u; ALTER BACKUP COLLECTION c DROP TABLE u, ADD TABLE gone")
    go_to(clock, 2)
    run, began = scheduler(db), clock.now()
    tries: list[tuple[int, float]] = []
    for _ in range(400):
        run.tick()
        (found,) = made.runs()
        if not tries or found.attempt != tries[-1][0]:
            tries.append((found.attempt, clock.now() - began))
        clock.sleep(1)
    assert tries == [(1, 0.0), (2, 60.0), (3, 180.0)]
    assert (found.state, found.retry_at) == ("failed", None)
    assert "gone" in (found.note or "")


def test_a_retry_that_succeeds(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 14 * * *")
    db.sql("ALTER BACKUP COLLECTION c ADD TABLE late")
    go_to(clock, 2)
    run = scheduler(db)
    run.tick()
    assert [each.state for each in made.runs()] == ["failed"]
    db.sql("CREATE TABLE late (k Int64, PRIMARY KEY (k))")
    clock.sleep(61)
    run.tick()
    run.tick()
    (found,) = made.runs()
    assert (found.state, found.attempt, found.note, found.retry_at) == ("done", 2, None, None)
    assert kinds(db) == ["full"]


def test_what_is_due_again_replaces_a_retry(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="*/10 * * * *", retries=9, retry_seconds=3600)
    db.sql("ALTER BACKUP COLLECTION c ADD TABLE late")
    run = scheduler(db)
    for _ in range(3):
        clock.sleep(600)
        run.tick()
    assert [each.retry_at is None for each in made.runs()] == [False, True, True]


def test_verifications_and_drills(db: Database, clock: ManualClock) -> None:
    db.sql("UPSERT INTO t (k) VALUES (1); BACKUP c")
    made = db.create_schedule("s", "c", verify="0 13 * * *", drill="0 14 * * *", level="files")
    run = scheduler(db)
    for hour in (1, 2):
        go_to(clock, hour)
        run.tick()
    run.tick()
    assert told(made.runs()) == [("verify", 1.0, "done"), ("drill", 2.0, "done")]
    drill = db.operation(str(made.runs()[0].operation_id))
    assert drill.result is not None
    assert (drill.result["level"], drill.result["problems"]) == ("restore", 0)
    (status,) = db.status().collections
    assert status.verified is not None
    assert (status.verified.level, status.verified.time) == ("restore", START + 2 * HOUR)
    assert [entry.path for entry in db.ls("/") if "trial" in entry.path] == []


def test_a_verification_that_finds_damage_has_failed(db: Database, clock: ManualClock, tmp_path: Any) -> None:
    repository = tmp_path / "repository"
    db.sql(f"CREATE BACKUP COLLECTION r (TABLE t) WITH (STORAGE = '{repository}')")
    db.sql("UPSERT INTO t (k) VALUES (1); BACKUP r")
    made = db.create_schedule("s", "r", verify="0 13 * * *")
    damaged = next((repository / "objects").rglob("*"))
    while damaged.is_dir():
        damaged = next(damaged.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    go_to(clock, 1)
    run = scheduler(db)
    run.tick()
    run.tick()
    (found,) = made.runs()
    assert (found.state, found.retry_at) == ("failed", None)
    assert "problem" in (found.note or "")


def test_a_collection_without_backups_cannot_be_verified(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", drill="0 13 * * *", retries=0)
    go_to(clock, 1)
    scheduler(db).tick()
    assert made.runs()[0].note == "the collection 'c' has no backup to verify"


def test_a_pause_leaves_out_what_was_due(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 * * * *")
    run = scheduler(db)
    made.pause()
    go_to(clock, 3)
    assert (run.tick(), run.next_time(), made.info().next_run) == ([], None, None)
    made.resume()
    assert run.tick() == []
    go_to(clock, 4)
    assert len(run.tick()) == 1


def test_alter_checks_the_result(db: Database) -> None:
    made = db.create_schedule("s", "c", full="0 * * * *")
    assert made.alter(full=None, incremental="5 * * * *", timezone="Europe/Berlin").full is None
    with pytest.raises(InvalidArgument, match="at least one cron line"):
        made.alter(incremental=None)
    with pytest.raises(InvalidArgument, match="has no setting"):
        made.alter(cron="5 * * * *")
    assert made.info().incremental == "5 * * * *"


def test_an_alter_without_settings_leaves_out_nothing_that_was_due(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 * * * *")
    go_to(clock, 1)
    assert made.alter() == made.info()
    assert len(scheduler(db).tick()) == 1


def test_dropped_schedules_and_collections(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 * * * *", retries=0)
    db.sql("DROP BACKUP COLLECTION c")
    go_to(clock, 1)
    run = scheduler(db)
    run.tick()
    assert made.runs()[0].state == "failed"
    made.drop()
    go_to(clock, 2)
    assert (run.tick(), db.schedules()) == ([], [])
    with pytest.raises(PathNotFound):
        made.info()


def test_old_runs_are_forgotten_except_the_last(db: Database, clock: ManualClock) -> None:
    made = db.create_schedule("s", "c", full="0 0 * * *")
    run = scheduler(db)
    for _ in range(4):
        clock.sleep(DAY)
        run.tick()
    run.tick()
    clock.sleep(40 * DAY)
    made.pause()
    db.collect()
    assert len(made.runs()) == 1


@pytest.mark.slow
def test_any_number_of_processes_run_each_due_time_once(
    connect: Callable[..., Database], db: Database, clock: ManualClock
) -> None:
    """Seven weeks over a change of the clock, with three processes that are sometimes away together."""
    chance = random.Random(7)
    made = db.create_schedule(
        "s", "c", full="30 2 * * 0", incremental="30 2 * * 1-6", timezone="Europe/Berlin", missed="skip"
    )
    record = ScheduleRecord(
        collection="c", full="30 2 * * 0", incremental="30 2 * * 1-6", timezone="Europe/Berlin"
    )
    others = [connect("w", clock=clock) for _ in range(2)]
    running = [scheduler(each) for each in (db, *others)]
    expected: Counter[tuple[float, str, str]] = Counter()
    after = clock.now()
    for _ in range(49 * 4):
        next_ = running[0].next_time()
        assert next_ is not None
        clock.sleep(next_ - clock.now() if chance.random() < 0.3 else chance.uniform(0, 12 * HOUR))
        now = clock.now()
        due = record.last_due("backup", after, now)
        if due is not None:
            state = "done" if now - due.time <= LATE_SECONDS else "skipped"
            expected[due.time, due.task, state] += 1
            after = due.time
        for each in chance.sample(running, 3):
            each.tick()
    for each in running:
        each.tick()
    found = Counter((run.due, run.task, run.state) for run in made.runs())
    assert set(found.values()) == {1}
    last = record.last_due("backup", after, clock.now())
    assert {key for key in found if last is None or key[0] != last.time} == set(expected)
    done = [run for run in made.runs() if run.state == "done"]
    assert len(done) > 10
    assert len({run.operation_id for run in done}) == len(done) == len(kinds(db))


def test_status_names_what_was_not_started_and_what_failed(db: Database, clock: ManualClock) -> None:
    def about(name: str) -> list[tuple[str, str]]:
        return [(a.level, a.message) for a in db.status().attention if a.about == name]

    made = db.create_schedule("s", "c", full="0 14 * * *", retries=0)
    go_to(clock, 2.1)
    assert about("s") == []
    go_to(clock, 4)
    assert about("s") == [("critical", "its full run was due 2 hours ago and was not started")]
    db.sql("ALTER BACKUP COLLECTION c ADD TABLE gone")
    scheduler(db).tick()
    assert [level for level, _ in about("s")] == ["warning"]
    assert about("s")[0][1].startswith("its last full run has failed: ")
    made.alter(full="0 15 * * *")
    go_to(clock, 27.0)
    db.sql("CREATE TABLE gone (k Int64, PRIMARY KEY (k))")
    scheduler(db).tick()
    assert about("s") == []


def test_a_changed_schedule_is_not_run_as_it_was(db: Database, clock: ManualClock) -> None:
    """Another process alters the schedule between the look and the start."""
    made = db.create_schedule("s", "c", full="0 * * * *")
    go_to(clock, 1)
    run = scheduler(db)
    request = run._request

    def alter_first(*args: Any) -> Any:
        made.pause()
        return request(*args)

    run._request = alter_first  # type: ignore[method-assign,assignment]
    assert run.tick() == []
    assert made.runs() == []
    assert kinds(db) == []


def test_a_schedule_needs_its_collection_and_a_new_name(db: Database) -> None:
    with pytest.raises(PathNotFound):
        db.create_schedule("s", "nope", full="0 * * * *")
    db.create_schedule("s", "c", full="0 * * * *")
    with pytest.raises(AlreadyExists):
        db.create_schedule("s", "c", full="0 * * * *")
    with db._runtime.catalog.read() as conn:
        assert len(schedules.list_schedules(conn)) == 1
