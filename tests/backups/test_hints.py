"""The statement in a hint can be executed as it is, whatever the names are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from strandline import Database
from strandline.errors import UNDONE, Corrupted, StrandlineError, Unavailable
from tests.backups.reading import CLUSTER, TABLE, backups
from tests.tables.examples import content

NAME = "it's `mine`"
ODD = "`it's ``mine```"


def typed(db: Database, statement: str, pattern: str) -> None:
    """Run a statement that fails, and then the one in its hint."""
    with pytest.raises(StrandlineError) as caught:
        db.sql(statement)
    found = re.search(pattern, caught.value.hint)
    assert found, caught.value.hint
    db.sql(found[0])


def test_of_collections_with_odd_names(db: Database) -> None:
    db.sql(f"{TABLE}; CREATE BACKUP COLLECTION {ODD} (TABLE t, TABLE `o'dd`) {CLUSTER}")
    typed(db, f"BACKUP {ODD}", r"ALTER BACKUP COLLECTION .* DROP TABLE `o'dd`")
    typed(db, f"RESTORE {ODD}", r"BACKUP .*`")
    db.sql(f"PIN BACKUP {ODD} '{backups(db, NAME)[0]}'")
    typed(db, f"DROP BACKUP COLLECTION {ODD}", r"UNPIN BACKUP .*'")
    typed(db, f"PRUNE {ODD}", r"PRUNE .* KEEP LAST 2 FULL")
    db.sql(f"DROP BACKUP COLLECTION {ODD}")
    typed(db, f"BACKUP {ODD}", r"UNDROP BACKUP COLLECTION .*`")
    typed(db, f"BACKUP {ODD} INCREMENTAL", r"BACKUP \S+ \S+ INCREMENTAL OR FULL")
    db.sql(f"BACKUP {ODD} INCREMENTAL")


def test_of_a_backup_that_could_not_be_sent(db: Database, tmp_path: Path) -> None:
    place = tmp_path / "it's"
    db.sql(f"{TABLE}; UPSERT INTO t (k) VALUES (1)")
    db.sql(f'CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = "{place}")')
    db.sql("BACKUP c")
    moved = shutil.move(place, tmp_path / "away")
    place.write_text("")
    with pytest.raises(Unavailable) as caught:
        db.sql("BACKUP c")
    backup, send = [o.id for o in db.operations()][-2:]
    assert (caught.value.operation, caught.value.outcome) == (send, UNDONE)
    assert caught.value.hint.endswith(f"The operation before it, {backup}, is done and stays.")
    place.unlink()
    shutil.move(moved, place)
    db.sql("BACKUP c; DROP TABLE t; RESTORE c")
    assert len(content(db, "t")) == 1 and db.verify("c") == []


def test_of_damaged_backups_lead_to_the_repair(db: Database, tmp_path: Path) -> None:
    place = tmp_path / "repository"
    db.sql(f"{TABLE}; UPSERT INTO t (k) VALUES (1)")
    wanted = f"STORAGE = '{place}', INCREMENTAL_BACKUP_ENABLED = 'true'"
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) WITH ({wanted}); BACKUP c")
    db.sql("UPSERT INTO t (k) VALUES (2); BACKUP c INCREMENTAL")
    for file in (place / "objects").glob("*/*"):
        file.write_bytes(b"x")
    for statement in ("COMPACT c", "RESTORE c INTO 'r'"):
        with pytest.raises(Corrupted, match="the file") as caught:
            db.sql(statement)
        assert "VERIFY" in caught.value.hint and "REPAIR" in caught.value.hint
