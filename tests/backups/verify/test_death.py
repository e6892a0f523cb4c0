"""A process dies in the middle of a verification that restores backups, at each of its writes in turn.

When another process has resumed and collected, nothing is left of it, and the next verification finds no
problem.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

import strandline
from strandline import Database
from strandline.backups.restore.dry_run import trial_request
from strandline.settings import Limits, Settings
from tests.backups.reading import hurry, leaks
from tests.backups.verify.repository import Kept, keep
from tests.backups.verify.test_verify import everything
from tests.catalogs import Death
from tests.crash.mortal import Fate, bury, connect
from tests.effort import EVERY

ALONE = Settings(workers=1, parts_together=1, history_seconds=0.0, grace_seconds=0.0, inline_rows=0)


class Places(Fate):
    """Places to die: after every catalog transaction, and in the middle of and after every file."""

    def meet(self, boundary: str) -> None:
        if self.dead or boundary in ("after the catalog committed", "middle of append", "flush"):
            super().meet(boundary)


def living(folder: Path) -> Database:
    db = strandline.connect(folder, settings=ALONE)
    hurry(db)
    return db


@pytest.fixture(params=["in a repository", "in the warehouse"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    """Return backups whose database is closed: an open one may hold back the collector."""
    root = tmp_path / "repository" if request.param == "in a repository" else None
    with living(tmp_path / "w") as db:
        return keep(db, tmp_path / "w", root)


@pytest.mark.slow
def test_death_at_any_write_leaves_nothing(kept: Kept) -> None:
    stride = 1 if EVERY else 9
    with living(kept.folder) as db:
        db.collect()
        before = everything(db)
    for number in count(1, stride):
        fate = Places(number)
        mortal = connect(kept.folder, None, fate, ALONE)
        hurry(mortal)
        try:
            mortal.verify("c", level="restore", again=True)
            mortal.close()
        except Death:
            bury(mortal, kept.folder, None)
        with living(kept.folder) as db:
            db.resume()
            db.collect()
            assert everything(db) == before, fate.place
            assert leaks(db) == [], fate.place
            assert {o.state for o in db.operations()} == {"done"}, fate.place
        if not fate.dead:
            break
    assert number > 3 * stride
    with living(kept.folder) as db:
        report = db.verify("c", level="restore", again=True)
        assert (report, report.newest_restorable) == ([], kept.backups[-1])


def test_a_trial_that_is_cancelled_leaves_nothing(kept: Kept) -> None:
    with living(kept.folder) as db:
        db.collect()
        before = everything(db)
        engine = db._operations.engine
        operation = engine.start("try restore", trial_request("c", kept.backups[-1], Limits()))
        for _ in range(3):
            assert engine.step(operation)
        assert [e.name for e in db.ls("/.backups")] == ["collections", "trials"]
        db.cancel(operation)
        db.collect()
        assert everything(db) == before
