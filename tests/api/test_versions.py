"""SHOW VERSIONS and ``db.versions``: the version history of a path, until housekeeping removes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest

from strandline import Database, Settings
from strandline.errors import PathNotFound, SyntaxFault
from tests.world import ManualClock

CREATE = "CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"


def test_a_backup_is_a_claim_with_siblings_and_then_a_publication(connect: Callable[..., Database]) -> None:
    clock = ManualClock()
    db = connect("w", clock=clock)
    db.sql(CREATE)
    clock.sleep(10)
    db.sql(
        "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
    )
    operation_id = db.sql("BACKUP c").operation_id
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a')")
    clock.sleep(10)
    db.sql("DROP TABLE t")
    db.close()
    result = connect("w", clock=clock).sql("SHOW VERSIONS OF t")
    assert result.columns == (
        "time",
        "event",
        "version",
        "step",
        "operation_id",
        "operation",
        "writer",
        "siblings",
        "details",
    )
    first = datetime.fromtimestamp(1_000_000.0, timezone.utc)
    rows = [(round((row[0] - first).total_seconds()), *row[1:8]) for row in result.rows()]
    assert rows == [
        (0, "published", 1, 1, None, None, None, None),
        (10, "claimed", 2, None, operation_id, "backup", 1, "2, 3"),
        (10, "published", 2, 3, operation_id, "backup", None, None),
        (20, "dropped", 2, 5, None, None, None, None),
    ]


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


def test_a_renamed_table_has_its_story_under_both_names(connect: Callable[..., Database]) -> None:
    db = connect()
    db.sql(CREATE)
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'KEYS_ONLY', FORMAT = 'JSON')")
    db.sql("ALTER TABLE t RENAME TO renamed")
    db.sql("ALTER TABLE renamed ADD CHANGEFEED g WITH (MODE = 'KEYS_ONLY', FORMAT = 'JSON')")

    def told(name: str) -> list[tuple[str, int | None, str | None]]:
        return [(e.event, e.version, (e.details or "").partition("; came")[0]) for e in db.versions(name)]

    assert told("renamed") == [
        ("published", 1, "as /t"),
        ("claimed", 2, "from version 1; published"),
        ("published", 2, "as /t"),
        ("published", 3, ""),
        ("claimed", 4, "from version 3; published"),
        ("published", 4, ""),
    ]
    others = {"as /t": "", "": "as /renamed"}
    assert told("t") == [(event, version, others.get(d or "", d)) for event, version, d in told("renamed")]
    assert [e.details for e in db.versions("renamed/by_v")][:1] == ["as /t/by_v"]


def test_who_is_not_known_is_not_found(connect: Callable[..., Database]) -> None:
    db = connect()
    with pytest.raises(PathNotFound, match="there is no path /t"):
        db.versions("/t")
    with pytest.raises(SyntaxFault):
        db.sql("SHOW VERSIONS t")


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
