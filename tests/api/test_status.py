"""What ``db.status()`` says of a warehouse, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline import Database
from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed
from tests.api.test_metrics import COLLECTION, CREATE, opened

__all__ = ["opened"]

HOUR = 3600.0


def attention(db: Database, **thresholds: float) -> list[tuple[str, str, str]]:
    return [(a.level, a.about, a.message) for a in db.status(**thresholds).attention]


def test_the_life_of_a_collection(opened: Callable[..., Database]) -> None:
    db = opened()
    clock = db.runtime.clock
    assert db.status().level == "fine", "nothing is to be restored"
    db.sql(f"{CREATE}; {COLLECTION}")
    assert attention(db) == [("critical", "c", "it has no backup")]
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); BACKUP c")
    full = clock.now()
    clock.sleep(HOUR)
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'b'); BACKUP c INCREMENTAL")
    status = db.status()
    assert (status.level, status.attention) == ("fine", ())
    (found,) = status.collections
    assert (found.restorable, found.restorable_until) == (True, clock.now())
    assert found.last_full is not None and (found.last_full.time, found.last_full.age) == (full, HOUR)
    assert found.last_increment is not None and found.last_increment.age == 0
    assert (found.backups, found.chain_length, found.verified) == (2, 2, None)
    clock.sleep(27 * HOUR)
    assert attention(db) == [("warning", "c", "its last backup that can be restored is 27 hours old")]
    assert attention(db, backup_warning=28 * HOUR) == []
    clock.sleep(24 * HOUR)
    assert db.status().level == "critical"
    clock.sleep(150 * HOUR)
    assert attention(db)[1] == ("warning", "c", "it was never verified")
    db.verify("c")
    assert attention(db, backup_warning=1e9) == []
    assert attention(db, backup_warning=1e9, chain_warning=1) == [
        ("warning", "c", "a restore of its last backup needs 2 backups")
    ]
    verified = db.status().collections[0].verified
    assert verified is not None and (verified.level, verified.age, verified.broken) == ("checksums", 0, 0)


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_backup_that_is_damaged_and_one_that_failed(
    opened: Callable[..., Database], tmp_path: Path
) -> None:
    db = opened()
    db.sql(f"{CREATE}; {COLLECTION}; UPSERT INTO t (k, v) VALUES (1, 'a')")
    db.compact("/t")
    db.sql("BACKUP c; UPSERT INTO t (k, v) VALUES (2, 'a')")
    db.compact("/t")
    for file in (db.runtime.files.path(s) for s in _files(db)):
        Path(file).unlink()
    with pytest.raises(Corrupted):
        db.sql("RESTORE c INTO beside WITH (MODE = 'copy')")
    assert len(db.verify("c")) > 0
    status = db.status()
    assert not status.collections[0].restorable
    assert [(a.level, a.message.split(":")[0]) for a in status.attention] == [
        ("critical", "none of its backups can be restored"),
        ("warning", "this restore has failed"),
    ]
    db.forget(status.attention[1].about)
    assert len(db.status().attention) == 1, "it is acknowledged"


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_what_would_be_lost_with_the_warehouse(opened: Callable[..., Database], tmp_path: Path) -> None:
    db, place = opened(), tmp_path / "repository"
    db.sql(f"{CREATE}; {COLLECTION.replace('cluster', str(place))}; BACKUP c")
    assert attention(db) == []
    away = place.rename(tmp_path / "away")
    with pytest.raises(PreconditionFailed, match="is not there"):
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); BACKUP c INCREMENTAL")
    for failed in db.operations():
        db.forget(failed.id)
    found = attention(db)
    assert len(found) == 1, found
    level, about, message = found[0]
    assert (level, about) == ("warning", "c") and "1 backup, the last " in message
    assert message.endswith("would be lost with the warehouse: not in the repository yet")
    away.rename(place)
    db.sql("BACKUP c INCREMENTAL")
    assert attention(db) == []


def _files(db: Database) -> list[str]:
    from sqlalchemy import text

    with db.runtime.catalog.read() as conn:
        return list(conn.execute(text("SELECT file FROM segments WHERE file IS NOT NULL")).scalars())


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_reader_that_stays_behind(opened: Callable[..., Database]) -> None:
    db = opened()
    db.sql(f"{CREATE}; ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'UPDATES', FORMAT = 'JSON')")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a')")
    db.runtime.clock.sleep(2 * HOUR)
    assert attention(db) == []
    assert db.status().streams[0].age == 2 * HOUR
    ((level, about, message),) = attention(db, stream_warning=HOUR)
    assert (level, about) == ("warning", "/t/f") and message.endswith("and 2 hours behind")


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_threshold_that_does_not_exist(opened: Callable[..., Database]) -> None:
    with pytest.raises(InvalidArgument, match="no threshold 'backup_warnin'") as fault:
        opened().status(backup_warnin=1)
    assert fault.value.hint == "Did you mean 'backup_warning'?"
