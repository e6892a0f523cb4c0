"""Publications about collections and backups: one for each change, with the version increased by one."""

from __future__ import annotations

from pathlib import Path

from strandline import Database
from strandline.backups.collection import CollectionRecord
from strandline.backups.record import require_collection
from strandline.catalog import publication_log
from tests.backups.reading import TABLE, backups, open_at
from tests.catalogs import ManualClock

ROOT = "/.backups/collections"


def heard(db: Database, statement: str) -> dict[str, int | None]:
    """Run a statement, and return the published versions of collections and backups; None if deleted.

    Paths inside backups are left out.
    """
    with db._runtime.catalog.read() as conn:
        before = max((each.generation for each in publication_log.since(conn, 0)), default=0)
    db.sql(statement)
    with db._runtime.catalog.read() as conn:
        found = publication_log.since(conn, before)
    return {
        each.path.removeprefix(f"{ROOT}/"): None if each.dropped else each.version
        for each in found
        if each.path.startswith(f"{ROOT}/") and each.path.count("/") <= ROOT.count("/") + 2
    }


def test_whatever_changes_is_heard_of(tmp_path: Path) -> None:
    with open_at(tmp_path / "w", clock=ManualClock()) as db:
        db.sql(TABLE)
        storage = f"STORAGE = '{tmp_path}/repository', INCREMENTAL_BACKUP_ENABLED = 'true'"
        assert heard(db, f"CREATE BACKUP COLLECTION c (TABLE t) WITH ({storage})") == {"c": 1}
        assert heard(db, "ALTER BACKUP COLLECTION c SET (MAX_CHAIN = 9)") == {"c": 2}
        assert db.describe(f"{ROOT}/c")["version"] == 2
        db.sql("BACKUP c; BACKUP c")
        first, second = backups(db)
        assert heard(db, f"PIN BACKUP c '{first}'") == {f"c/{first}": 2}
        assert heard(db, f"UNPIN BACKUP c '{first}'") == {f"c/{first}": 3}
        assert db.describe(f"{ROOT}/c/{first}")["version"] == 3
        before = db.describe(f"{ROOT}/c")["version"]
        assert heard(db, f"DROP BACKUP c '{second}' CONFIRM") == {"c": before + 1, f"c/{second}": None}
        with db._runtime.catalog.read() as conn:
            known = require_collection(conn, "c").record(CollectionRecord)
        assert (known.dropped, known.leaving) == (second, ()), "its name is not given out again"
        assert heard(db, f"DROP BACKUP c '{first}' CONFIRM") == {"c": before + 2, f"c/{first}": None}
        db.sql("BACKUP c; BACKUP c INCREMENTAL")
        backup, increment = backups(db)
    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        attached = heard(other, f"ATTACH BACKUP COLLECTION c FROM '{tmp_path}/repository'")
        assert attached == {"c": 1, f"c/{backup}": 1, f"c/{increment}": 1}
        with other._runtime.catalog.read() as conn:
            paths = {each.path.removeprefix(f"{ROOT}/c/") for each in publication_log.since(conn, 0)}
        meta = f"{increment}/__ydb_backup_meta"
        assert paths >= {f"{backup}/t", f"{backup}/t/by_v", f"{backup}/t/by_v/indexImplTable"}
        assert paths >= {f"{increment}/t", meta, f"{meta}/indexes", f"{meta}/indexes/t/by_v"}
        assert other.step > 8, "steps go on after those of the other warehouse"
