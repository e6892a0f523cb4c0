"""SQL statements on collections: create, alter, show and drop. A refused statement changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Database
from strandline.backups.collection import CollectionRequest
from strandline.errors import UnderOperation
from tests.backups.reading import CLUSTER, HERE, backups, last, leaks, open_at, streams
from tests.catalogs import ManualClock
from tests.tables.examples import refused, rows

TABLE = "CREATE TABLE {} (k Uint32, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"


def test_dropped_with_all_that_is_its_own(on_both: Database, clock: ManualClock) -> None:
    db = on_both
    db.sql(
        f"{TABLE.format('t')}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; CREATE BACKUP COLLECTION other (TABLE t) {CLUSTER}"
    )
    db.sql("ALTER TABLE t ADD CHANGEFEED `20200101000000Z_continuousBackupImpl` WITH (MODE = 'KEYS_ONLY')")
    db.table("t").upsert([{"k": i, "v": "x" * 50} for i in range(3000)])
    db.sql("BACKUP c; BACKUP other; UPSERT INTO t (k, v) VALUES (1, 'y'); BACKUP c INCREMENTAL")
    assert len(streams(db, "/t")) == 3
    db.sql("RESTORE c INTO restored")
    versions = {path: db.describe(path)["version"] for path in ("/t", "/t/by_v", "/t/by_v/indexImplTable")}
    db.sql("DROP BACKUP COLLECTION c PURGE")
    assert len(streams(db, "/t")) == 2
    assert "20200101000000Z_continuousBackupImpl" in streams(db, "/t")
    assert len(streams(db, "/t/by_v/indexImplTable")) == 1
    assert {path: db.describe(path)["version"] for path in versions} == {
        path: version + 1 for path, version in versions.items()
    }
    with refused(db, "PATH_NOT_FOUND"):
        db.describe("/.backups/collections/c")
    db.sql("DROP BACKUP COLLECTION IF EXISTS c")
    db.collect()
    assert leaks(db) == []
    assert rows(db, "SELECT v FROM `restored/t` WHERE k = 1") == [("y",)]
    assert rows(db, "SELECT k FROM `restored/t` VIEW by_v WHERE v = 'y'") == [(1,)]
    db.sql("BACKUP other INCREMENTAL")
    assert last(db, "other").rows == 1
    db.sql("DROP BACKUP COLLECTION other PURGE; DROP TABLE t PURGE; DROP TABLE `restored/t` PURGE")
    clock.sleep(2 * HERE.read_seconds)  # The read protection of earlier readers has ended.
    db.collect()
    assert list(db._runtime.files.names("data")) == []


def test_nothing_else_happens_to_a_collection_while_it_is_backed_up(db: Database) -> None:
    db.sql(
        f"{TABLE.format('t')}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; CREATE BACKUP COLLECTION other (TABLE t) {CLUSTER}"
    )
    operation = db._operations.engine.start("backup", CollectionRequest(collection="c"))
    for statement in (
        "DROP BACKUP COLLECTION c",
        "ALTER BACKUP COLLECTION c SET (OMIT_INDEXES = 'true')",
        "BACKUP c",
        "BACKUP other",
        "PRUNE c KEEP LAST 1 FULL CONFIRM",
        "DROP TABLE t",
        "ALTER TABLE t DROP INDEX by_v",
        "ALTER TABLE t ADD COLUMN x Int32",
        "ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'UPDATES')",
    ):
        with pytest.raises(UnderOperation, match=operation):
            _in_another_process(db, statement)
    assert rows(db, "SHOW BACKUP COLLECTIONS")[0][5] == "copying"
    assert [row[-1] for row in rows(db, "SHOW BACKUPS IN c")] == ["creating"]
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'not stopped')")
    db.wait(operation)
    assert [row[-1] for row in rows(db, "SHOW BACKUPS IN c")] == ["done"]
    db.sql("DROP BACKUP COLLECTION c")
    assert leaks(db) == []


def _in_another_process(db: Database, statement: str) -> None:
    """Run a statement in another process, which does not resume this one's operations."""
    folder = Path(db._runtime.files.location)
    with open_at(folder, clock=db._runtime.clock) as other:
        other.sql(statement)


def test_names_that_hold_anything(on_both: Database) -> None:
    db = on_both
    odd = 'Ünï "quo\'ted" `tick` %_;--'
    quoted = odd.replace("`", "``")
    columns = f"`k {quoted}` Utf8, v Int32, PRIMARY KEY (`k {quoted}`), INDEX `{quoted}` GLOBAL SYNC ON (v)"
    db.sql(f"CREATE TABLE `dir {quoted}/{quoted}` ({columns})")
    db.sql(
        f"CREATE BACKUP COLLECTION `{quoted}` (TABLE `dir {quoted}/{quoted}`) {CLUSTER}; BACKUP `{quoted}`"
    )
    db.table(f"dir {odd}/{odd}").upsert([{f"k {odd}": "a", "v": 1}])
    db.sql(f"BACKUP `{quoted}` INCREMENTAL")
    full, one = backups(db, odd)
    assert (
        db.describe(f"/.backups/collections/{odd}/{full}/dir {odd}/{odd}/{odd}/indexImplTable")["rows"] == 0
    )
    assert (
        db.describe(f"/.backups/collections/{odd}/{one}/__ydb_backup_meta/indexes/dir {odd}/{odd}/{odd}")[
            "rows"
        ]
        == 1
    )
    assert rows(db, f"SHOW BACKUPS IN `{quoted}`")[1][:6] == (
        one,
        "incremental",
        full,
        last(db, odd).step,
        1,
        1,
    )
    db.sql(f"DROP BACKUP COLLECTION `{quoted}`")
    assert leaks(db) == []
