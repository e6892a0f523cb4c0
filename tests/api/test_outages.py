"""The catalog is unreachable for the process of an operation: other processes can continue or cancel it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline import Database
from strandline.cancellation import Interrupted, Work, doing
from strandline.errors import BEING_UNDONE, GOES_ON, HAPPENED, UNDONE, UNKNOWN, TimedOut, Unavailable
from strandline.operations import callers, engine
from tests.backups.reading import CLUSTER, leaks, open_at
from tests.crash.failures import ANSWERED, LOST, UNANSWERED, Outage

RESTORE = "RESTORE c WITH (REPLACE = 'true')"


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(engine, "_AWAY_PAUSE", 0.001)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with open_at(tmp_path) as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (1)")
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c; UPSERT INTO t (k) VALUES (2)")
        db._operations.engine.away_seconds = 0.0
        yield db


@pytest.fixture
def other(db: Database, tmp_path: Path) -> Iterator[Database]:
    """A connection of another process, which can reach the catalog."""
    with open_at(tmp_path) as other:
        yield other


def keys(db: Database) -> list[int]:
    return sorted(row[0] for row in db.sql("SELECT k FROM t").rows())


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it does not come to that")


def fail(db: Database, how: str = LOST, at: int = 2) -> tuple[Outage, Unavailable]:
    """Start a restore whose caller gets an error about the unreachable catalog."""
    outage = Outage(db, how, at)
    with pytest.raises(Unavailable) as raised:
        db.sql(RESTORE)
    return outage, raised.value


def test_an_operation_whose_caller_was_told_is_undone_by_its_process(db: Database, other: Database) -> None:
    outage, error = fail(db)
    assert error.operation is not None
    assert error.outcome == BEING_UNDONE
    assert other.operation(error.operation).state == "running"
    outage.end()
    until(lambda: other.operation(error.operation or "").is_over)
    assert other.operation(error.operation).state == "failed"
    assert keys(other) == [1, 2]
    other.collect()
    assert leaks(other) == []


def test_others_can_wait_for_it_and_cancel_it(db: Database, other: Database) -> None:
    outage, error = fail(db)
    assert error.operation is not None
    with pytest.raises(TimedOut) as waited:
        other.wait(error.operation, timeout=0.01)
    assert (waited.value.operation, waited.value.outcome) == (error.operation, GOES_ON), "for all it knows"
    assert other.cancel(error.operation).state == "cancelling"
    with pytest.raises(TimedOut, match="did not end") as waited:
        other.wait(error.operation, timeout=0.01)
    assert (waited.value.outcome, waited.value.hint) == (
        BEING_UNDONE,
        "It is being undone; wait for it again.",
    )
    outage.end()
    with pytest.raises(Unavailable) as ended:
        other.wait(error.operation)
    assert ended.value.outcome == UNDONE
    assert other.operation(error.operation).state == "failed"
    assert keys(other) == [1, 2]


def test_an_operation_without_a_caller_goes_on_by_itself(db: Database, other: Database) -> None:
    outage = Outage(db, LOST, at=2)
    operation = db.sql(f"{RESTORE} NOWAIT").operation_id
    assert operation is not None
    until(lambda: outage.is_on)
    with pytest.raises(Unavailable) as waited:
        db.wait(operation)
    assert (waited.value.operation, waited.value.outcome) == (operation, GOES_ON)
    outage.end()
    assert other.wait(operation).state == "done"
    assert keys(other) == [1]


def test_an_operation_whose_caller_is_interrupted_before_it_hears_of_it(
    db: Database, other: Database
) -> None:
    outage, work = Outage(db, ANSWERED, at=1), Work()
    committed = db._runtime.catalog.after_commit

    def interrupt() -> None:
        committed()
        work.is_ending = outage.is_on

    db._runtime.catalog.after_commit = interrupt
    with pytest.raises(Interrupted), doing(work):
        db.sql(f"{RESTORE} NOWAIT")
    (begun,) = (o.id for o in other.operations() if o.kind == "restore")
    outage.end()
    until(lambda: other.operation(begun).is_over)
    assert other.operation(begun).state == "cancelled"
    assert keys(other) == [1, 2]


def test_what_cannot_be_marked_is_said_not_to_be_known(
    db: Database, other: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_write(*_: object) -> None:
        raise Unavailable("cannot write: Read-only file system")

    monkeypatch.setattr(db._runtime.files, "write", fail_to_write)
    outage, error = fail(db)
    assert error.outcome == UNKNOWN
    assert f"cancel it with db.cancel('{error.operation}')" in error.hint
    outage.end()
    until(lambda: other.operation(error.operation or "").is_over)
    assert other.operation(error.operation or "").state == "failed", "its process lives"


def test_an_end_that_was_not_answered_is_said_not_to_be_known(db: Database, other: Database) -> None:
    calm = Outage(db, LOST)
    db.sql(RESTORE)
    outage, error = fail(db, UNANSWERED, at=calm.count)
    assert error.outcome == UNKNOWN
    assert other.operation(error.operation or "").state == "done"
    outage.end()


def test_a_drop_whose_result_cannot_be_read_is_said_to_be_done(db: Database, other: Database) -> None:
    db.sql(f"CREATE BACKUP COLLECTION d (TABLE t) {CLUSTER}; CREATE BACKUP COLLECTION e (TABLE t) {CLUSTER}")
    calm = Outage(db, LOST)
    db.sql("DROP BACKUP COLLECTION d")
    outage = Outage(db, ANSWERED, at=calm.count)
    with pytest.raises(Unavailable) as raised:
        db.sql("DROP BACKUP COLLECTION e")
    assert raised.value.outcome == HAPPENED
    assert other.operation(raised.value.operation or "").state == "done"
    outage.end()


def test_who_waits_until_the_catalog_is_back_is_told_what_happened(db: Database) -> None:
    db._operations.engine.away_seconds = 10.0
    Outage(db, LOST, at=2, lasts=3)
    assert db.operation(db.sql(RESTORE).operation_id or "").state == "done"
    assert keys(db) == [1]
