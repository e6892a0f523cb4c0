"""A process that runs schedules dies at any write: each due run happens once all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Database, Settings
from strandline.api.schedules import scheduler_of
from tests.backups.reading import CLUSTER
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import Fate, bury, connect
from tests.effort import EVERY

HOUR = 3600.0
MAKE = f"CREATE TABLE t (k Int64, PRIMARY KEY (k)); CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}"


def tick(db: Database) -> None:
    found = scheduler_of(db, db._operations.loaded)
    found._launch = lambda operation_id: db._operations.engine.run(operation_id)
    found.tick()


def begin(folder: Path, clock: ManualClock) -> None:
    """Create a schedule with a full backup that is due."""
    with connect(folder, None, Fate(0), Settings(), clock=clock) as db:
        db.sql(MAKE)
        db.create_schedule("s", "c", full="0 * * * *")
    clock.sleep(HOUR)


def dies(folder: Path, clock: ManualClock, fate: Fate) -> bool:
    """Let a process look for what is due; return whether it died of it."""
    db = connect(folder, None, fate, Settings(), clock=clock)
    try:
        tick(db)
    except Death:
        return True
    finally:
        bury(db, folder, None)
    return False


@pytest.mark.slow
def test_a_death_at_any_write(tmp_path: Path) -> None:
    at = 0
    while True:
        at += 1 if EVERY else 2
        clock, folder, fate = ManualClock(), tmp_path / str(at), Fate(at)
        begin(folder, clock)
        has_died = dies(folder, clock, fate)
        clock.sleep(120)
        with connect(folder, None, Fate(0), Settings(), clock=clock) as other:
            other.resume()
            tick(other)
            tick(other)
            (run,) = other.schedule("s").runs()
            assert (run.state, run.attempt) == ("done", 1), fate.place
            assert len(other.sql("SHOW BACKUPS IN c").rows()) == 1
        if not has_died:
            break
    assert at > 5
