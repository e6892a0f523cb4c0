"""SHOW VERSIONS and ``db.versions``: the version history of a path, until housekeeping removes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline import Database, Settings
from tests.catalogs import ManualClock

CREATE = "CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"


def test_a_restore_in_place_goes_on_with_the_story(connect: Callable[..., Database]) -> None:
    db = connect()
    db.sql(CREATE)
    db.sql("CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster')")
    db.sql("BACKUP c; RESTORE c WITH (REPLACE = 'true')")
    events = db.versions("t")
    assert [e.event for e in events if e.operation == "restore"][-1:] == ["published"]
    assert len({e.path_id for e in events}) == 2, "the old table and the new one had the name"
    versions = [
        e.version
        for e in events
        if e.event == "published" and e.version is not None and "as /.replaced/" not in (e.details or "")
    ]
    assert versions == sorted(set(versions)), "versions of a name only grow"


@pytest.mark.parametrize(("kept", "events"), [(3600.0, 2), (60.0, 1), (0.0, 0)])
def test_housekeeping_removes_what_is_old(connect: Callable[..., Database], kept: float, events: int) -> None:
    clock = ManualClock()
    db = connect(clock=clock, settings=Settings(version_history_seconds=kept))
    db.sql(CREATE)
    clock.sleep(100)
    db.sql("ALTER TABLE t ADD COLUMN n Int64")
    clock.sleep(1)
    db.maintain()
    assert len(db.versions("t")) == events
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1)")
    assert db.sql("SELECT n FROM t WHERE k = 1").rows() == [(1,)]
