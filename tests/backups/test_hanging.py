"""Storage that does not answer: work that waits for it is given up in time and retried.

With one worker and with many.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline import Database
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.errors import TimedOut
from tests.backups.reading import CLUSTER, backups, leaks, open_at
from tests.catalogs import ManualClock
from tests.effort import EVERY
from tests.quick_files import QuickFiles
from tests.tables.examples import rows

SETTINGS = {"inline_rows": 0, "shard_seconds": 10.0, "session_seconds": 1e6}
TABLE = "CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"


class Hanging(QuickFiles):
    """The first read or write does not answer until it is released."""

    def __init__(self, root: Path, *, always: bool = False) -> None:
        super().__init__(root)
        self.asked, self.hangs, self.let_go = threading.Event(), threading.Event(), threading.Event()
        self.always = always

    def _hang(self) -> None:
        if self.asked.is_set() and (self.always or not self.hangs.is_set()) and not self.let_go.is_set():
            self.hangs.set()
            assert self.let_go.wait(300)

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        self._hang()
        return super().chunks(name)

    def _create(self, path: str) -> int:
        self._hang()
        return super()._create(path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def assert_no_leaks(db: Database) -> None:
    """Assert that the hanging call ends after its release, and removes what it made."""
    for _ in range(30_000):
        if not leaks(db):
            return
        time.sleep(0.01)
    assert leaks(db) == []


def fill(db: Database, *values: str) -> None:
    for value in values:
        db.sql(f"UPSERT INTO t (k, v) VALUES (1, '{value}'), (2, '{value}')")
        db.sql("BACKUP c INCREMENTAL")


def run(statement: str) -> Callable[[Database, Path], str | None]:
    return lambda db, _: db.sql(statement).operation_id


def send(db: Database, folder: Path) -> str | None:
    return db.sql(f"COPY BACKUP '{backups(db)[-1]}' FROM c TO '{folder}'").operation_id


def try_it(db: Database, _: Path) -> str | None:
    assert db.verify("c", level="restore") == []
    return db.operations()[-1].id


def verify(db: Database, _: Path) -> None:
    assert db.verify("c") == []


WORK: dict[str, tuple[str, Callable[[Database, Path], str | None]]] = {
    "slice": ("", run("BACKUP c INCREMENTAL")),
    "shard": ("", run("RESTORE c INTO 'r' WITH (MODE = 'copy')")),
    "verify shard": ("", run("RESTORE c INTO 'r' WITH (VERIFY = 'data')")),
    "rebuild": (", OMIT_INDEXES = 'true'", run("RESTORE c INTO 'r'")),
    "objects": ("", send),
    "fold": ("", run("COMPACT c")),
    "trial": ("", try_it),
    "verification": ("", verify),
}
QUICK = ("slice", "rebuild", "fold", "verification")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", WORK if EVERY else QUICK)
def test_what_hangs_is_given_up_and_tried_again(
    tmp_path: Path, clock: ManualClock, name: str, workers: int
) -> None:
    files = Hanging(tmp_path / "w")
    setting, work = WORK[name]
    with open_at(tmp_path / "w", clock=clock, files=files, settings={**SETTINGS, "workers": workers}) as db:
        db.sql(f"{TABLE}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER[:-1]}{setting}); BACKUP c")
        fill(db, "a", "b")
        if name == "slice":
            db.sql("UPSERT INTO t (k, v) VALUES (1, 'c')")
        if name == "trial":
            assert db.verify("c") == []  # So that no other check comes first.
    with open_at(tmp_path / "w", clock=clock, files=files, settings={**SETTINGS, "workers": workers}) as db:
        files.asked.set()
        later = threading.Thread(target=lambda: clock.sleep(11) if files.hangs.wait(300) else None)
        later.start()
        try:
            operation_id = work(db, tmp_path / "repository")
        finally:
            later.join()
            files.let_go.set()
        assert files.hangs.is_set()
        if operation_id is not None:
            tried = [shard for shard in db.operation(operation_id).shards if shard.errors]
            # Other calls that ran during that time have not answered either.
            assert {(s.state, s.attempt, *(e.code for e in s.errors)) for s in tried} == {
                ("done", 2, "TIMEOUT")
            }
            if name != "trial":
                assert name in {s.kind for s in tried}
        assert_no_leaks(db)


@pytest.mark.parametrize("retries", [0, 2])
def test_how_often_and_after_which_pauses_is_a_setting(
    tmp_path: Path, clock: ManualClock, retries: int
) -> None:
    files = Hanging(tmp_path, always=True)
    settings = {**SETTINGS, "part_retries": retries, "part_retry_seconds": 3.0}
    with open_at(tmp_path, clock=clock, files=files, settings=settings) as db:
        db.sql(f"{TABLE}; UPSERT INTO t (k, v) VALUES (1, 'a')")
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
        files.asked.set()
        passing = threading.Thread(target=_pass, args=(clock, files))
        passing.start()
        with pytest.raises(
            TimedOut, match=r"part \d \(shard\) of operation .* did not answer within 10 seconds"
        ):
            db.sql("RESTORE c INTO 'r' WITH (MODE = 'copy')")
        files.let_go.set()
        passing.join()
        shards = db.operation(db.operations()[-1].id).shards
        first = max(shards, key=lambda s: len(s.errors))  # Slow work may time out as well.
        assert (first.state, len(first.errors)) == ("given up", retries + 1)
        began = [e.time for e in first.errors]
        pauses = [b - a - 10 for a, b in zip(began, began[1:], strict=False)]
        assert [p for p in pauses if p < 3.0 * 4 ** pauses.index(p)] == [], (
            "each is longer than the one before"
        )
        assert_no_leaks(db)


def _pass(clock: ManualClock, files: Hanging) -> None:
    """Let time pass while something hangs."""
    while not files.let_go.is_set():
        if files.hangs.is_set():
            clock.sleep(1)
        files.let_go.wait(0.01)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_restore_that_runs_out_of_time_says_how_far_it_came(
    tmp_path: Path, clock: ManualClock, workers: int
) -> None:
    files = Hanging(tmp_path)
    settings = {**SETTINGS, "workers": workers, "shard_seconds": 1000.0}
    with open_at(tmp_path, clock=clock, files=files, settings=settings) as db:
        db.sql(f"{TABLE}; UPSERT INTO t (k, v) VALUES (1, 'z')")
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
        fill(db, "a", "b")
        engine = db._operations.engine
        request = RestoreRequest(collection="c", into="r", copy=True, deadline_seconds=60.0)
        started = engine.start("restore", request)
        for _ in range(2):
            assert engine.step(started)
        files.asked.set()
        later = threading.Thread(target=lambda: clock.sleep(61) if files.hangs.wait(300) else None)
        later.start()
        ended = engine.run(started, workers)
        later.join()
        files.let_go.set()
        failure = ended.failure()
        assert isinstance(failure, TimedOut)
        # With two workers, the other shard may be done already, whichever one hangs.
        assert re.fullmatch(
            "the restore did not finish within 60 seconds: 1 of 3 backups were restored, and "
            rf"{'0' if workers == 1 else '[01]'} of 2 shards of increment 1",
            failure.message,
        )
        assert_no_leaks(db)


def test_rows_that_were_restored_in_the_end_are_right(tmp_path: Path, clock: ManualClock) -> None:
    files = Hanging(tmp_path)
    with open_at(tmp_path, clock=clock, files=files, settings=SETTINGS) as db:
        db.sql(f"{TABLE}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
        fill(db, "a", "b")
        files.asked.set()
        later = threading.Thread(target=lambda: clock.sleep(11) if files.hangs.wait(300) else None)
        later.start()
        db.sql("RESTORE c INTO 'r' WITH (MODE = 'copy')")
        later.join()
        files.let_go.set()
        assert rows(db, "SELECT k, v FROM `r/t`") == [(1, "b"), (2, "b")]
