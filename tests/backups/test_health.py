"""State of collections: length of the last chain, restorable backups, time of the last verification."""

from __future__ import annotations

from strandline import Database
from strandline.backups.health import Standing, standings
from strandline.backups.verify.verification_history import BackupReport, Level, keep_reports
from tests.backups.reading import CLUSTER
from tests.catalogs import ManualClock


def standing(db: Database, name: str = "c") -> Standing:
    with db._runtime.catalog.read() as conn:
        (found,) = [each for each in standings(conn) if each.collection.name == name]
    return found


def report(db: Database, clock: ManualClock, level: Level, *restorable: bool) -> None:
    """Record reports for all backups, oldest first, one second after the last ones."""
    clock.sleep(1)
    with db._runtime.catalog.write() as tx:
        found = {
            path.id: BackupReport(
                backup=head.name, level=level, objects=0, bytes=0, problems=0, restorable=is_well
            )
            for (path, head), is_well in zip(standing(db).backups, restorable, strict=True)
        }
        keep_reports(tx, level, found)


def restorable(db: Database) -> int | None:
    """Return the number of the last restorable backup."""
    found = standing(db)
    names = [head.name for _, head in found.backups]
    return None if found.restorable is None else names.index(found.restorable.name)


def test_how_a_collection_stands(db: Database, clock: ManualClock) -> None:
    with db._runtime.catalog.read() as conn:
        assert list(standings(conn)) == []
    db.sql(f"CREATE TABLE t (k Int32, PRIMARY KEY (k)); CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}")
    empty = standing(db)
    assert (empty.last, empty.last_of("full"), empty.chain_length, empty.restorable) == (None, None, 0, None)
    assert empty.verified == {}
    for statement in ("BACKUP c", "BACKUP c", "BACKUP c INCREMENTAL", "BACKUP c INCREMENTAL"):
        clock.sleep(10)
        db.sql(statement)
    found = standing(db)
    heads = [head for _, head in found.backups]
    assert found.last == found.backups[-1]
    assert (found.last_of("full"), found.last_of("incremental")) == (heads[1], heads[3])
    assert found.chain_length == 3
    assert restorable(db) == 3, "nobody has found anything wrong"
    report(db, clock, "chain", True, True, True, True)
    report(db, clock, "checksums", True, True, False, False)
    assert standing(db).verified == {"chain": clock.now() - 1, "checksums": clock.now()}
    assert standing(db).broken == {"chain": 0, "checksums": 2}
    assert restorable(db) == 1
    report(db, clock, "files", True, True, True, True)
    assert restorable(db) == 1, "that was not as close a look"
    report(db, clock, "checksums", True, True, True, False)
    assert restorable(db) == 2
    assert standing(db).verified["checksums"] == clock.now()
    assert standing(db).broken["checksums"] == 1, "the last look counts"
    report(db, clock, "restore", True, True, True, True)
    assert restorable(db) == 3, "a closer one has found it well since"
    report(db, clock, "chain", False, False, False, False)
    assert restorable(db) is None
    report(db, clock, "chain", True, True, True, True)
    assert restorable(db) == 3
    db.sql("BACKUP c")
    assert standing(db).chain_length == 1
