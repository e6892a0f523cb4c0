"""The cost of status and alarms in catalog statements; and a schedule that is dropped while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from strandline import Database, Settings
from strandline.alarms.board import LOOK_SECONDS
from strandline.api.alarms import board_of
from strandline.api.schedules import scheduler_of
from tests.alarms.receivers import WebReceiver
from tests.catalogs import ManualClock, is_session
from tests.effort import EVERY

FEW, MANY = 3, 1000 if EVERY else 60
HOUR = 3600.0


@contextmanager
def counted(db: Database) -> Iterator[list[int]]:
    """Count the statements in the catalog."""
    counts = [0]

    def count(*_: Any) -> None:
        counts[0] += not is_session()

    engine = db._runtime.catalog.database.engine
    event.listen(engine, "before_cursor_execute", count)
    yield counts
    event.remove(engine, "before_cursor_execute", count)


def make(db: Database, first: int, after: int) -> None:
    """Create collections of one table, each with a schedule and objectives that it misses."""
    kept = "(TABLE t) WITH (STORAGE = 'cluster', RPO = '26h', PROVED_WITHIN = '7d')"
    for number in range(first, after):
        db.sql(f"CREATE BACKUP COLLECTION c{number} {kept}; BACKUP c{number}")
        db.create_schedule(f"s{number}", f"c{number}", full="0 2 * * *", drill="0 3 * * *")


@pytest.mark.slow
def test_the_cost_does_not_depend_on_the_number_of_collections_and_alarms(
    opened: Callable[..., Database], web: WebReceiver, clock: ManualClock
) -> None:
    channels = {"ops": {"type": "webhook", "url": web.url}}
    db = opened(settings=Settings(channels=channels))
    db.sql("CREATE TABLE t (k Int64, PRIMARY KEY (k))")
    costs = []
    for first, after in ((0, FEW), (FEW, MANY)):
        make(db, first, after)
        clock.sleep(51 * HOUR)
        board = board_of(db)
        with counted(db) as status:
            assert len(db.status().collections) == after
        with counted(db) as look:
            assert board.look()
        with counted(db) as tell:
            (sent,) = board.send_due()
        found = 4 * after - first  # The first ones were verified.
        assert len(db.alarms()) == found and sent.alarms == min(found, 100)
        while board.send_due():
            pass
        clock.sleep(LOOK_SECONDS)
        with counted(db) as idle:
            board.tick()
        costs.append((status[0], look[0], tell[0], idle[0]))
        for number in range(after):
            db.sql(f"BACKUP c{number}; DROP SCHEDULE s{number}")
            db.verify(f"c{number}", level="chain")
        board.release()
        board_of(db).tick()
        assert db.alarms() == []
        for number in range(after):
            db.create_schedule(f"s{number}", f"c{number}", full="0 2 * * *", drill="0 3 * * *")
    assert costs[0] == costs[1]


def test_a_schedule_that_is_dropped_while_it_runs(
    opened: Callable[..., Database], web: WebReceiver, clock: ManualClock
) -> None:
    db = opened(settings=Settings(channels={"ops": {"type": "webhook", "url": web.url}}))
    db.sql("CREATE TABLE t (k Int64, PRIMARY KEY (k))")
    db.sql("CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster')")
    db.create_schedule("s", "c", full="0 * * * *")
    scheduler, board = scheduler_of(db, db._operations.loaded), board_of(db)
    engine = db._operations.engine

    def drop_and_run(operation_id: str) -> None:
        db.sql("DROP SCHEDULE s")
        board.tick()
        engine.run(operation_id)

    scheduler._launch = drop_and_run
    clock.sleep(HOUR)
    (run,) = scheduler.tick()
    assert scheduler.tick() == [] and db.schedules() == []
    assert db.operation(str(run.operation_id)).state == "done"
    clock.sleep(LOOK_SECONDS)
    board.tick()
    assert db.alarms() == [], "the backup is there, and no schedule is missed"
