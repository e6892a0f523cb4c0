"""Objectives of a collection, and the first figure: restorable until, proved at a level, met or missed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from strandline import Database, Protection
from strandline.backups.repository import reachable
from strandline.errors import InvalidArgument, StrandlineError
from strandline.storage.files import LocalFiles
from tests.api.test_metrics import CREATE, opened, samples
from tests.backups.reading import open_at
from tests.catalogs import is_session

__all__ = ["opened"]

HOUR, DAY = 3600.0, 86400.0
OBJECTIVES = "RPO = '26h', PROVED_WITHIN = '7d'"

pytestmark = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


def collection(place: Path | str, settings: str = OBJECTIVES) -> str:
    return (
        f"CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{place}', "
        f"INCREMENTAL_BACKUP_ENABLED = 'true', {settings})"
    )


def protection(db: Database) -> Protection:
    (found,) = db.status().collections
    return found.protection


def problems(db: Database) -> list[str]:
    return [each.kind for each in db.status().attention]


def change(db: Database, key: int) -> None:
    db.sql(f"UPSERT INTO t (k, v) VALUES ({key}, 'a')")


def test_objectives_are_met_and_missed_as_time_passes(opened: Callable[..., Database]) -> None:
    db = opened()
    clock = db._runtime.clock
    db.sql(f"{CREATE}; {collection('cluster')}")
    found = protection(db)
    assert (found.restorable_until, found.age, found.proved_level, found.is_met) == (None, None, None, False)
    assert problems(db) == ["rpo_missed", "no_backup"]
    db.sql("BACKUP c")
    taken = clock.now()
    assert problems(db) == ["proof_missed"], "it was never verified"
    clock.sleep(HOUR)
    db.verify("c")
    found = protection(db)
    assert (found.restorable_until, found.age) == (taken, HOUR)
    assert (found.proved_level, found.proved_at, found.is_met) == ("checksums", clock.now(), True)
    assert (found.rpo, found.proved_within, found.missed, found.away) == (26 * HOUR, 7 * DAY, {}, None)
    assert db.status().level == "fine"
    clock.sleep(25 * HOUR)
    assert problems(db) == [], "26 hours old is not older than 26 hours"
    clock.sleep(1)
    assert protection(db).missed == {
        "rpo": "the newest backup that can be restored is 26 hours old, and RPO is 26h"
    }
    (problem,) = db.status().attention
    assert (problem.level, problem.kind, problem.subject) == ("critical", "rpo_missed", "c")
    assert problem.hint == "Back it up: BACKUP c INCREMENTAL OR FULL."
    change(db, 1)
    db.sql("BACKUP c INCREMENTAL")
    assert problems(db) == [], "the increment is proved by the verification of its full backup"
    clock.sleep(7 * DAY)
    db.sql("BACKUP c INCREMENTAL")
    assert protection(db).missed == {
        "proved_within": "the last successful verification, at level checksums, was 8 days ago, and "
        "PROVED_WITHIN is 7d"
    }
    db.sql("BACKUP c")
    assert protection(db).proofs == {}, "the new chain was never verified"


def test_the_objectives_replace_the_general_thresholds(opened: Callable[..., Database]) -> None:
    db = opened()
    generous = "RPO = '4w', PROVED_WITHIN = '8w'"
    db.sql(f"{CREATE}; {collection('cluster', generous)}; BACKUP c")
    db.verify("c")
    db._runtime.clock.sleep(20 * DAY)
    assert problems(db) == []
    db.sql("ALTER BACKUP COLLECTION c RESET (RPO, PROVED_WITHIN)")
    assert problems(db) == ["backup_old", "not_verified"]


def test_a_proof_counts_by_level_and_only_when_it_is_complete(opened: Callable[..., Database]) -> None:
    db = opened()
    clock = db._runtime.clock
    db.sql(f"{CREATE}; CREATE TABLE u (k Int64 NOT NULL, PRIMARY KEY (k))")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); UPSERT INTO u (k) VALUES (1)")
    db.sql(collection("cluster").replace("(TABLE t)", "(TABLE t, TABLE u)") + "; BACKUP c")
    clock.sleep(HOUR)
    db.verify("c", level="checksums", sample=1)
    assert protection(db).proofs == {}, "one object of several was read"
    db.verify("c", level="chain")
    chain = clock.now()
    clock.sleep(HOUR)
    db.verify("c", level="restore")
    drill = clock.now()
    assert protection(db).proofs == {"chain": chain, "restore": drill}
    assert (protection(db).proved_level, protection(db).proved_at) == ("restore", drill)
    clock.sleep(HOUR)
    db.verify("c", level="restore", again=False)
    assert protection(db).proofs["restore"] == drill, "the trial restore was not repeated"
    db.verify("c", level="chain")
    found = protection(db)
    assert (found.proved_level, found.proved_at) == ("chain", clock.now()), "the newest one leads"


def test_what_is_damaged_or_not_uploaded_does_not_count(
    opened: Callable[..., Database], tmp_path: Path
) -> None:
    db, place = opened(), tmp_path / "repository"
    clock = db._runtime.clock
    db.sql(f"{CREATE}; {collection(place)}; UPSERT INTO t (k, v) VALUES (1, 'a'); BACKUP c")
    db.verify("c")
    sent = clock.now()
    before = {file for file in (place / "objects").rglob("*") if file.is_file()}
    clock.sleep(HOUR)
    change(db, 2)
    db.sql("BACKUP c")
    assert protection(db).restorable_until == clock.now()
    for new in {file for file in (place / "objects").rglob("*") if file.is_file()} - before:
        new.write_bytes(b"damaged")
    db.verify("c")
    found = protection(db)
    assert (found.restorable_until, found.proved_at) == (sent, clock.now())
    place.rename(tmp_path / "away")
    clock.sleep(HOUR)
    with pytest.raises(StrandlineError):
        db.sql("BACKUP c")
    found = protection(db)
    assert found.restorable_until == sent, "the last one is only in the warehouse"
    assert found.away is not None and found.away.startswith("it has no repository.json")
    assert "repository_away" in problems(db)
    clock.sleep(26 * HOUR)
    assert problems(db)[0] == "rpo_missed"
    (tmp_path / "away").rename(place)
    db.sql("BACKUP c")
    found = protection(db)
    assert (found.restorable_until, found.away) == (clock.now(), None)
    assert problems(db) == ["proof_missed", "older_not_restorable"]


def test_a_repository_that_never_answers_delays_nothing_for_long(
    opened: Callable[..., Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, place, released = opened(), tmp_path / "repository", threading.Event()
    db.sql(f"{CREATE}; {collection(place)}; BACKUP c")
    until = db._runtime.clock.now()

    class Hanging(LocalFiles):
        def find(self, name: str) -> bytes | None:
            released.wait(300)
            return super().find(name)

    monkeypatch.setattr(reachable, "SECONDS", 0.1)
    monkeypatch.setattr(db._runtime.files, "opener", Hanging)
    found = protection(db)
    released.set()
    assert (found.restorable_until, found.away) == (until, "it has not answered within 0.1 seconds")


def test_another_repository_in_its_place_is_told(opened: Callable[..., Database], tmp_path: Path) -> None:
    db, place = opened(), tmp_path / "repository"
    db.sql(f"{CREATE}; {collection(place)}; BACKUP c")
    place.rename(tmp_path / "away")
    with open_at(tmp_path / "other") as other:
        other.sql(f"{CREATE}; {collection(place)}; BACKUP c")
    assert str(protection(db).away).startswith("another repository is in its place")


def test_where_the_figures_are_shown(opened: Callable[..., Database], tmp_path: Path) -> None:
    db = opened()
    clock = db._runtime.clock
    db.sql(CREATE)
    c = db.create_collection(
        "c", tables=["t"], storage=tmp_path / "repository", rpo="26h", proved_within="7D"
    )
    c.backup()
    c.verify()
    until = clock.now()
    clock.sleep(27 * HOUR)
    assert c.info().protection == protection(db)
    shown = dict(zip(*(lambda r: (r.columns, r.rows()[0]))(db.sql("SHOW BACKUP COLLECTIONS")), strict=True))
    assert shown["restorable_until"].timestamp() == shown["proved_at"].timestamp() == until
    assert (shown["rpo"], shown["proved_within"], shown["proved_level"]) == ("26h", "7d", "checksums")
    assert (shown["objectives_met"], str(shown["missed"]).startswith("the newest backup")) == (False, True)
    found = samples(db)
    assert found["restorable_until_timestamp_seconds", "c"] == until
    assert found["proved_timestamp_seconds", "c", "checksums"] == until
    assert found["objective_seconds", "c", "rpo"] == 26 * HOUR
    assert found["objective_missed", "c", "rpo"] == 1
    assert found["objective_missed", "c", "proved_within"] == 0
    (statement,) = (row[0] for row in db.sql("SHOW CREATE BACKUP COLLECTION c").rows())
    assert "RPO = '26h', PROVED_WITHIN = '7d'" in statement


def test_a_manifest_has_the_objectives_and_the_owner_of_the_repository_is_judged(
    opened: Callable[..., Database], tmp_path: Path
) -> None:
    place = tmp_path / "repository"
    with open_at(tmp_path / "lost") as lost:
        lost.sql(f"{CREATE}; {collection(place)}; BACKUP c")
    (manifest,) = (place / "backups").iterdir()
    assert '"RPO": "26h", "PROVED_WITHIN": "7d"' in manifest.read_text()
    db = opened()
    db.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}'")
    found = protection(db)
    assert (found.rpo, found.is_met, found.missed) == (None, None, {}), "another warehouse backs it up"
    db.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}' WITH (TAKE_OVER = 'true')")
    assert (protection(db).rpo, protection(db).is_met) == (26 * HOUR, False)


@pytest.mark.parametrize("value", ["soon", "26", "-1h", "0h", "1e3h", "", "9" * 20 + "d", "1h 30m"])
def test_a_period_that_is_none_is_refused(opened: Callable[..., Database], value: str) -> None:
    db = opened()
    db.sql(CREATE)
    for name in ("RPO", "PROVED_WITHIN"):
        with pytest.raises(InvalidArgument, match=r"is not a time|cannot be"):
            db.sql(collection("cluster", f"{name} = '{value}'"))
    db.sql(collection("cluster"))
    with pytest.raises(InvalidArgument):
        db.sql(f"ALTER BACKUP COLLECTION c SET (RPO = '{value}')")


def test_the_cost_does_not_depend_on_the_number_of_collections(
    opened: Callable[..., Database], tmp_path: Path
) -> None:
    db, counts = opened(), [0]
    db.sql(CREATE)

    def count(*_: Any) -> None:
        counts[0] += not is_session()

    def measure(first: int, after: int) -> int:
        for number in range(first, after):
            db.sql(collection("cluster").replace(" c ", f" c{number} ", 1) + f"; BACKUP c{number}")
            db.create_schedule(f"s{number}", f"c{number}", full="0 2 * * *", verify="0 3 * * *")
        db.verify("c0", level="checksums")
        db._runtime.clock.sleep(DAY)
        counts[0] = 0
        assert len(db.status().collections) == after
        return counts[0]

    engine = db._runtime.catalog.database.engine
    event.listen(engine, "before_cursor_execute", count)
    assert measure(0, 3) == measure(3, 12) > 0
