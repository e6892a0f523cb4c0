"""The bin: a dropped collection can be brought back whole, until its time is over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.errors import AlreadyExists, PathNotFound, PreconditionFailed
from tests.backups.reading import CLUSTER, TABLE, backups, collection, contents, leaks, open_at
from tests.backups.test_death import ALONE, Places
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import bury
from tests.crash.mortal import connect as mortal_connect
from tests.tables.examples import data_files

DAY = 24 * 3600.0
MAKE = f"{TABLE}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}"
WRITE = "UPSERT INTO t (k, v, n) VALUES ({0}, 'v{0}', {0})"


def taken(db: Database) -> dict[str, Any]:
    """Create a collection with a full backup and an increment, and return its content."""
    db.sql(f"{MAKE}; {WRITE.format(1)}; BACKUP c; {WRITE.format(2)}; BACKUP c INCREMENTAL")
    return contents(db)


def answer(db: Database, statement: str) -> dict[str, Any]:
    found = db.sql(statement)
    (row,) = found.rows()
    return dict(zip(found.columns, row, strict=True))


def test_its_space_is_free_when_its_time_is_over(
    connect: Callable[..., Database], clock: ManualClock
) -> None:
    db = connect(clock=clock, settings={"inline_rows": 0, "bin_seconds": 2 * DAY})
    taken(db)
    db.sql("DROP TABLE t PURGE; DROP BACKUP COLLECTION c")
    ((name, type_, dropped, by, until, size),) = db.sql("SHOW BIN").rows()
    assert (name, type_, until - dropped) == ("c", "backup collection", timedelta(days=2))
    assert size > 0 and f":{os.getpid()})" in by
    clock.sleep(2 * DAY - 1)
    db.collect()
    assert data_files(db)
    clock.sleep(2)
    # Another process collects by the stored value, whatever its own settings are.
    connect(clock=clock).collect()
    assert db.sql("SHOW BIN").rows() == [] and data_files(db) == []
    with pytest.raises(PathNotFound):
        db.sql("UNDROP BACKUP COLLECTION c")


@pytest.mark.parametrize("purge", [True, False])
def test_it_need_not_go_to_the_bin(connect: Callable[..., Database], clock: ManualClock, purge: bool) -> None:
    db = connect(clock=clock, settings={"inline_rows": 0, "bin_seconds": DAY if purge else 0.0})
    taken(db)
    db.sql("DROP TABLE t PURGE")
    assert answer(db, f"DROP BACKUP COLLECTION c{' PURGE' if purge else ''}")["until"] is None
    assert db.sql("SHOW BIN").rows() == []
    db.collect()
    assert data_files(db) == []


def test_a_repository_keeps_what_it_has(kept: Database, repository: Path) -> None:
    db = kept
    db.sql(f"{WRITE.format(1)}; BACKUP c")
    shutil.move(repository, repository.with_name("away"))
    with pytest.raises(PreconditionFailed):
        db.sql(f"{WRITE.format(2)}; BACKUP c INCREMENTAL")
    shutil.move(repository.with_name("away"), repository)
    held, names = contents(db), backups(db)
    said = answer(db, "DROP BACKUP COLLECTION c")
    assert (said["repository"], said["kept"], said["unsent"]) == (str(repository), 1, 1)
    db.sql("UNDROP BACKUP COLLECTION c")
    assert contents(db) == held and backups(db) == names
    db.sql("BACKUP c")
    assert db.verify("c") == []
    assert len(list((repository / "backups").iterdir())) == 3, "what was not sent is sent with the next one"


def test_a_repository_that_has_changed_since_is_attached_instead(kept: Database, repository: Path) -> None:
    db = kept
    db.sql(f"{WRITE.format(1)}; BACKUP c; DROP BACKUP COLLECTION c")
    db.sql(f"ATTACH BACKUP COLLECTION e FROM '{repository}'")
    with pytest.raises(PreconditionFailed, match="is that of the collection 'e'"):
        db.sql("UNDROP BACKUP COLLECTION c")
    db.sql("BACKUP e; DROP BACKUP COLLECTION e")
    with pytest.raises(
        AlreadyExists, match="has other backups than when the collection 'c' was dropped"
    ) as no:
        db.sql("UNDROP BACKUP COLLECTION c")
    assert "ATTACH BACKUP COLLECTION other" in no.value.hint
    db.sql("UNDROP BACKUP COLLECTION e")
    assert db.verify("e") == []


DROPS = "DROP BACKUP COLLECTION c", "UNDROP BACKUP COLLECTION c"


@pytest.mark.parametrize("statement", DROPS)
def test_a_process_that_dies_leaves_it_here_or_there(tmp_path: Path, statement: str) -> None:
    """Kill the process at every write of the statement: the collection stays whole.

    It is either in the tree or in the bin.
    """
    folder = tmp_path / "warehouse"
    with open_at(folder, settings={"inline_rows": 0}) as db:
        held = taken(db)
    deaths = 0
    while True:
        with open_at(folder) as db:
            there = "c" in [row[0] for row in db.sql("SHOW BACKUP COLLECTIONS").rows()]
            if there is statement.startswith("UNDROP"):
                db.sql(DROPS[0] if there else DROPS[1])
        fate = Places(deaths + 1)
        mortal = mortal_connect(folder, None, fate, ALONE)
        try:
            mortal.sql(statement)
            mortal.close()
        except Death:
            bury(mortal, folder, None)
        with open_at(folder) as db:
            db.resume()
            db.collect()
            names = [row[0] for row in db.sql("SHOW BACKUP COLLECTIONS").rows()]
            binned = [row[0] for row in db.sql("SHOW BIN").rows()]
            assert sorted(names + binned) == ["c"], fate.place
            if binned:
                db.sql("UNDROP BACKUP COLLECTION c")
            assert contents(db) == held and db.verify("c") == [] and leaks(db) == [], fate.place
        if not fate.dead:
            break
        deaths += 1
    assert deaths >= (3 if statement.startswith("DROP") else 1)


def test_a_collection_with_the_place_of_another_one_does_not_come_back(
    kept: Database, repository: Path
) -> None:
    kept.sql(f"DROP BACKUP COLLECTION c; {collection(repository).replace('COLLECTION c', 'COLLECTION d')}")
    with pytest.raises(PreconditionFailed, match="is that of the collection 'd'"):
        kept.sql("UNDROP BACKUP COLLECTION c")
