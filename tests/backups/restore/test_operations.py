"""A restore as an operation: started in one process and resumed in another, watched, cancelled, forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from strandline import records
from strandline.api.database import Database
from strandline.api.progress import OperationInfo
from strandline.backups.restore.restore_parts import RestoreProgress
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.errors import (
    AlreadyExists,
    Cancelled,
    OperationNotFound,
    PathNotFound,
    PreconditionFailed,
    TimedOut,
    UnderOperation,
)
from strandline.storage.files import Source
from tests.backups.restore.story import (
    TOLD_AT,
    Story,
    Told,
    open_at,
    started,
    state,
    unknown_files,
)
from tests.catalogs import Death, ManualClock, counted, die_after, leaks
from tests.engines import parts_of
from tests.quick_files import QuickFiles

pytestmark = pytest.mark.slow

REQUEST = RestoreRequest(collection="c", into="r", copy=True)
LEASE = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(TOLD_AT)


@pytest.fixture
def world(anywhere: Told, clock: ManualClock) -> Iterator[tuple[Database, Database, Story]]:
    """Open two databases on one warehouse, and return what they should bring back."""
    first, second = (
        open_at(anywhere.folder, anywhere.url, clock=clock, session_seconds=LEASE) for _ in range(2)
    )
    yield first, second, anywhere.story
    first.close()
    second.close()


@pytest.fixture
def of_files(in_files: Told, copy_of: Callable[[Told], Told]) -> Told:
    return copy_of(in_files)


def test_one_begins_dies_and_another_carries_on(
    world: tuple[Database, Database, Story], clock: ManualClock
) -> None:
    first, second, story = world
    engine, operation = started(first, REQUEST)
    for _ in range(9):
        engine.step(operation)
    assert second.resume() == [], "its process lives"
    assert second.operation(operation).state == "running"
    clock.sleep(LEASE + 1)
    seen: list[OperationInfo] = []
    ended = second.wait(operation, on_progress=seen.append)
    assert ended.state == "done"
    assert (seen[0].parts_done, seen[-1].parts_done, seen[-1].percent) == (9, ended.parts, 100.0)
    assert len(seen) > ended.parts - 9, "each part was told"
    assert [i.percent for i in seen] == sorted(i.percent for i in seen)
    assert [i.progress["increment"] for i in seen] == sorted(i.progress["increment"] for i in seen)
    assert seen[-1].progress["increment"] == seen[-1].progress["increments"] == 3
    assert seen[-1].progress["bytes"] == seen[-1].progress["bytes_total"]
    assert all(i.seconds_left is not None and i.seconds_left >= 0 for i in seen[:-1])
    assert engine.step(operation) is False, "it is not the first one's any more"
    assert state(first, "/r") == story.states[story.backups[-1]]
    assert counted(second._runtime.metrics, "operations_resumed_total", kind="restore") == 1


def test_an_increment_is_the_current_one_before_its_first_shard_is_done(
    on_sqlite: tuple[Database, Story],
) -> None:
    db, _ = on_sqlite
    engine, operation = started(db, REQUEST)
    seen = []
    while True:
        info = db.operation(operation)
        now = next((stage for stage in info.stages if stage.parts_done < stage.parts), None)
        if now is None or now.increment is None:
            break
        assert db.operations()[-1].progress["increment"] == now.increment
        assert info.progress["increment"] == now.increment
        record = records.from_text(RestoreProgress, engine.get(operation).progress, "the progress")
        assert record.increment == now.increment
        if now.parts_done == 0:
            seen.append(now.increment)
        assert engine.step(operation)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("resumed_after", [LEASE + 1, 1001.0])
def test_a_deadline_counts_from_the_first_start_and_not_from_who_carries_on(
    world: tuple[Database, Database, Story], clock: ManualClock, resumed_after: float
) -> None:
    first, second, _ = world
    engine, operation = started(first, replace(REQUEST, deadline_seconds=1000.0))
    for _ in range(3):
        assert engine.step(operation)
    clock.sleep(resumed_after)
    assert second.operation(operation).state == "running", "nobody looked at it in the meantime"
    seen = 0

    def later(info: OperationInfo) -> None:
        nonlocal seen
        seen += 1
        clock.sleep(950.0 if seen == 5 else 0.0)

    with pytest.raises(TimedOut, match="did not finish within 1000 seconds"):
        second.wait(operation, on_progress=later)
    assert (seen > 5) == (resumed_after < 1000)
    with pytest.raises(PathNotFound):
        second.describe("/r")


def test_who_carries_on_in_time_has_all_the_time_that_is_left(
    world: tuple[Database, Database, Story], clock: ManualClock
) -> None:
    first, second, story = world
    _, operation = started(first, replace(REQUEST, deadline_seconds=1000.0))
    clock.sleep(999.0)
    assert second.wait(operation).state == "done"
    assert state(second, "/r") == story.states[story.backups[-1]]


def test_one_carries_out_and_another_waits(anywhere: Told, clock: ManualClock) -> None:
    def connect() -> Database:
        # A waiting process advances the clock, further if the other one is slow. So leases do not expire.
        return open_at(anywhere.folder, anywhere.url, clock=clock, session_seconds=1e9)

    with connect() as first, connect() as second:
        operation = first.sql("RESTORE c INTO 'r' NOWAIT").operation_id
        assert operation is not None
        seen: list[OperationInfo] = []
        assert second.wait(operation, on_progress=seen.append).state == "done"
        assert seen[-1].state == "done"
        assert counted(second._runtime.metrics, "part_transitions_total", state="done") == 0
        assert state(second, "/r") == anywhere.story.states[anywhere.story.backups[-1]]


class Slow(QuickFiles):
    """Stops in the middle of the n-th file until it is released."""

    def __init__(self, root: Path, number: int) -> None:
        super().__init__(root)
        self.stopped, self.let_go = threading.Event(), threading.Event()
        self._left = number

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        self._left -= 1
        if self._left == 0:
            self.stopped.set()
            assert self.let_go.wait(300)
        return super().copy(source, source_name, name, checksum)


def test_one_is_thought_dead_and_comes_back(of_files: Told, clock: ManualClock) -> None:
    """The process finds that another one has its operation. It changes nothing, and waits for the end."""
    folder, story = of_files.folder, of_files.story
    files = Slow(folder, 1)
    first, second = open_at(folder, clock=clock, files=files), open_at(folder, clock=clock)
    second.collect()
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(first._operations.run("restore", REQUEST)))
    thread.start()
    assert files.stopped.wait(300)
    clock.sleep(LEASE + 1)
    (operation,) = second.resume()
    assert second.operation(operation).state == "done"
    files.let_go.set()
    thread.join(300)
    assert [first.operation(answer).state for answer in answers] == ["done"]
    assert counted(first._runtime.metrics, "part_transitions_total", state="done") == 0
    assert state(second, "/r") == story.states[story.backups[-1]]
    assert unknown_files(second) == set(), "what the first one made for nothing is gone"
    first.close()
    second.close()


def test_a_restart_while_finalizing_finalizes_once(
    world: tuple[Database, Database, Story], clock: ManualClock
) -> None:
    first, second, story = world
    engine, operation = started(first, REQUEST)
    while parts_of(engine, operation)[-1].state != "done":
        engine.step(operation)
    step = first.step
    die_after(first._runtime.catalog, 1)
    with pytest.raises(Death):
        engine.step(operation)
    first._runtime.catalog.after_commit = lambda: None
    assert second.step == step + 1
    clock.sleep(LEASE + 1)
    assert second.resume() == []
    late = started(second, RestoreRequest(collection="c", into="r2"))[0]
    late.finish(late.get(operation))
    engine.finish(engine.get(operation))
    assert second.step == step + 1
    assert state(second, "/r") == story.states[story.backups[-1]]


def test_a_restart_before_finalizing_finalizes_once(
    world: tuple[Database, Database, Story], clock: ManualClock
) -> None:
    first, second, story = world
    engine, operation = started(first, REQUEST)
    while parts_of(engine, operation)[-1].state != "done":
        engine.step(operation)
    step, unfinished = first.step, engine.get(operation)
    clock.sleep(LEASE + 1)
    assert second.resume() == [operation]
    engine.finish(unfinished)
    assert second.step == step + 1
    assert state(second, "/r") == story.states[story.backups[-1]]
    with second._runtime.catalog.read() as conn:
        assert leaks(conn) == []


def test_what_is_closed_in_the_middle_is_carried_on_by_the_next(of_files: Told) -> None:
    folder, story = of_files.folder, of_files.story
    files = Slow(folder, 3)
    first = open_at(folder, files=files)
    operation = first.sql("RESTORE c INTO 'r' WITH (MODE = 'copy') NOWAIT").operation_id
    assert operation is not None
    assert files.stopped.wait(300)
    engine = first._operations.engine
    closing = threading.Thread(target=first.close)
    closing.start()
    assert engine.stopping.wait(300)  # Otherwise it might be done before that.
    files.let_go.set()
    closing.join(300)
    with open_at(folder) as second:
        assert second.operation(operation).state == "running"
        assert second.wait(operation).state == "done"
        assert state(second, "/r") == story.states[story.backups[-1]]
        second.collect()
        assert unknown_files(second) == set()


def test_nowait_then_wait_then_forget(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    operation = db.sql("RESTORE c INTO 'r' NOWAIT").operation_id
    assert operation is not None
    assert db.wait(operation).percent == 100.0
    assert state(db, "/r") == story.states[story.backups[-1]]
    assert db.operation(operation).state == "done"
    with pytest.raises(PreconditionFailed):
        db.cancel(operation)
    db.forget(operation)
    for ask in (db.forget, db.operation, db.wait, db.cancel):
        with pytest.raises(OperationNotFound):
            ask(operation)
    assert operation not in [o.id for o in db.operations()]
    db.sql("DROP BACKUP COLLECTION c")


def test_nowait_then_cancel(of_files: Told) -> None:
    files, story = Slow(of_files.folder, 5), of_files.story
    with open_at(of_files.folder, files=files) as db:
        db.collect()
        before = sorted(db._runtime.files.names("data"))
        operation = db.sql("RESTORE c INTO 'r' WITH (MODE = 'copy') NOWAIT").operation_id
        assert operation is not None
        assert files.stopped.wait(300)
        with pytest.raises(PreconditionFailed):
            db.forget(operation)
        assert db.cancel(operation).state == "cancelling"
        files.let_go.set()
        with pytest.raises(Cancelled):
            db.wait(operation)
        assert db.operation(operation).state == "cancelled"
        for thread in threading.enumerate():
            if thread.name.startswith(f"strandline-{operation}-"):
                thread.join(300)  # An interrupted thread ends, and discards what it made.
        with pytest.raises(PathNotFound):
            db.describe("/r")
        with db._runtime.catalog.read() as conn:
            assert leaks(conn) == []
        db.collect()
        assert sorted(db._runtime.files.names("data")) == before
        db.forget(operation)
        db.sql("RESTORE c INTO 'r'")
        assert state(db, "/r") == story.states[story.backups[-1]]


def test_a_second_restore_is_refused_while_one_runs(world: tuple[Database, Database, Story]) -> None:
    first, second, _ = world
    engine, operation = started(first, REQUEST)
    before = len(second.operations()), second.ls("/")
    for statement in (
        "RESTORE c INTO 'elsewhere'",
        "RESTORE c TABLE orders AS o2 NOWAIT",
        "BACKUP c",
        "BACKUP c INCREMENTAL",
    ):
        with pytest.raises(UnderOperation, match=operation):
            second.sql(statement)
    assert (len(second.operations()), second.ls("/")) == before
    second.sql("CREATE BACKUP COLLECTION d (TABLE `r/orders`) WITH (STORAGE = 'cluster')")
    with pytest.raises(UnderOperation, match=operation):
        second.sql("BACKUP d")
    assert engine.run(operation).state == "done"
    second.sql("RESTORE c INTO 'elsewhere'; BACKUP d")
    with pytest.raises(AlreadyExists):
        second.sql("RESTORE c INTO 'elsewhere'")


def test_a_restore_of_a_full_backup_alone_is_listed(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    operation = db.sql(f"RESTORE c AT '{story.backups[0]}' INTO 'r'").operation_id
    listed = db.operations()[-1]
    assert (listed.id, listed.kind, listed.state, listed.percent) == (operation, "restore", "done", 100.0)
    assert (listed.progress["increment"], listed.progress["increments"]) == (0, 0)
    assert listed.result is not None
    assert listed.result["backup"] == story.backups[0]
    assert [row[:4] for row in db.sql("SHOW OPERATIONS").rows()][-1] == (operation, "restore", "done", 100.0)


def test_empty_increments_are_no_work(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    db.sql("BACKUP c INCREMENTAL; BACKUP c INCREMENTAL")
    last = db.ls("/.backups/collections/c")[-1].name
    operation = db.sql("RESTORE c INTO 'r'").operation_id
    assert operation is not None
    info = db.operation(operation)
    assert info.result is not None
    assert info.result["backup"] == last
    assert (info.progress["increment"], info.progress["increments"]) == (5, 5)
    assert state(db, "/r") == story.states[story.backups[-1]]
