"""SQL statements on collections: create, alter, show and drop. A refused statement changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Database
from strandline.backups.collection import CollectionRequest
from strandline.errors import UnderOperation
from tests.backups.reading import CLUSTER, HERE, backups, last, leaks, open_at, streams
from tests.tables.examples import refused, rows
from tests.world import ManualClock

TABLE = "CREATE TABLE {} (k Uint32, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"


def settings(db: Database, collection: str = "c") -> dict[str, object]:
    described = db.describe(f"/.backups/collections/{collection}")
    return {"version": described["version"], "tables": described["tables"], **described["settings"]}


def test_created_shown_and_described(on_both: Database) -> None:
    db = on_both
    assert rows(db, "SHOW BACKUP COLLECTIONS") == []
    db.sql("CREATE BACKUP COLLECTION b DATABASE WITH (STORAGE = 'cluster')")
    options = "STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = true, OMIT_INDEXES = 'True'"
    db.sql(f"CREATE BACKUP COLLECTION a (TABLE t, TABLE `/dir/u`) WITH ({options})")
    assert rows(db, "SHOW BACKUP COLLECTIONS") == [
        ("a", "/t, /dir/u", True, True, 0, "ready", "cluster", False, None),
        ("b", "DATABASE", False, False, 0, "ready", "cluster", False, None),
    ]
    assert db.sql("SHOW BACKUP COLLECTIONS").columns == (
        "name",
        "tables",
        "incremental",
        "omit_indexes",
        "backups",
        "state",
        "storage",
        "encryption",
        "retention",
    )
    assert settings(db, "a") == {
        **{"version": 1, "tables": ["/t", "/dir/u"]},
        **{"STORAGE": "cluster", "INCREMENTAL_BACKUP_ENABLED": True, "OMIT_INDEXES": True},
    }
    assert [(e.name, e.type) for e in db.ls("/.backups/collections")] == [
        ("a", "backup_collection"),
        ("b", "backup_collection"),
    ]
    assert rows(db, "SHOW BACKUPS IN a") == []
    assert rows(db, "SHOW TABLES") == []


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}", "ALREADY_EXISTS"),
        (f"CREATE BACKUP COLLECTION d (TABLE t, TABLE `/t`) {CLUSTER}", "INVALID_ARGUMENT"),
        (f"CREATE BACKUP COLLECTION d (TABLE `.backups/collections/c/x`) {CLUSTER}", "INVALID_ARGUMENT"),
        (f"CREATE BACKUP COLLECTION `__ydb_x` (TABLE t) {CLUSTER}", "INVALID_ARGUMENT"),
        (f"CREATE BACKUP COLLECTION `a/b` (TABLE t) {CLUSTER}", "INVALID_ARGUMENT"),
        (f"CREATE BACKUP COLLECTION `` (TABLE t) {CLUSTER}", "SYNTAX_ERROR"),
        ("CREATE BACKUP COLLECTION d (TABLE t)", "SYNTAX_ERROR"),
        (f"CREATE BACKUP COLLECTION d () {CLUSTER}", "SYNTAX_ERROR"),
        ("CREATE BACKUP COLLECTION d (TABLE t) WITH ()", "SYNTAX_ERROR"),
        ("CREATE BACKUP COLLECTION d (TABLE t) WITH (OMIT_INDEXES = 'true')", "INVALID_ARGUMENT"),
        ("CREATE BACKUP COLLECTION d (TABLE t) WITH (STORAGE = 'tape')", "INVALID_ARGUMENT"),
        (
            "CREATE BACKUP COLLECTION d (TABLE t) WITH (STORAGE = 'cluster', STORAGE = 'cluster')",
            "INVALID_ARGUMENT",
        ),
        (
            "CREATE BACKUP COLLECTION d (TABLE t) WITH (STORAGE = 'cluster', RETENTION = 7)",
            "INVALID_ARGUMENT",
        ),
        (
            "CREATE BACKUP COLLECTION d (TABLE t) WITH (STORAGE = 'cluster', OMIT_INDEXES = 1)",
            "INVALID_ARGUMENT",
        ),
        ("ALTER BACKUP COLLECTION nothing ADD TABLE t", "PATH_NOT_FOUND"),
        ("ALTER BACKUP COLLECTION c ADD TABLE t", "ALREADY_EXISTS"),
        ("ALTER BACKUP COLLECTION c DROP TABLE u", "PATH_NOT_FOUND"),
        ("ALTER BACKUP COLLECTION c SET (STORAGE = 's3')", "INVALID_ARGUMENT"),
        ("ALTER BACKUP COLLECTION c SET (NOTHING = 1)", "INVALID_ARGUMENT"),
        ("ALTER BACKUP COLLECTION c SET (OMIT_INDEXES = 'no')", "INVALID_ARGUMENT"),
        ("ALTER BACKUP COLLECTION c SET (OMIT_INDEXES = 'true', OMIT_INDEXES = 'true')", "INVALID_ARGUMENT"),
        ("ALTER BACKUP COLLECTION c RESET (STORAGE)", "INVALID_ARGUMENT"),
        ("ALTER BACKUP COLLECTION c RESET (NOTHING)", "INVALID_ARGUMENT"),
        ("ALTER BACKUP COLLECTION c RESET (OMIT_INDEXES, OMIT_INDEXES)", "INVALID_ARGUMENT"),
        ("ALTER BACKUP COLLECTION c ADD TABLE u, DROP TABLE nothing", "PATH_NOT_FOUND"),
        ("ALTER BACKUP COLLECTION all ADD TABLE u", "INVALID_ARGUMENT"),
        ("DROP BACKUP COLLECTION nothing", "PATH_NOT_FOUND"),
        ("SHOW BACKUPS IN nothing", "PATH_NOT_FOUND"),
        ("BACKUP nothing", "PATH_NOT_FOUND"),
        ("BACKUP nothing INCREMENTAL", "PATH_NOT_FOUND"),
        ("BACKUP c", "PATH_NOT_FOUND"),
        ("BACKUP c INCREMENTAL", "PATH_NOT_FOUND"),
        ("BACKUP all", "PRECONDITION_FAILED"),
        ("BACKUP of_a_directory", "INVALID_ARGUMENT"),
        ("BACKUP of_an_index", "INVALID_ARGUMENT"),
        ("DROP TABLE `.backups/collections/c`", "INVALID_ARGUMENT"),
        ("CREATE TABLE `.backups/collections/c/t` (k Int32, PRIMARY KEY (k))", "INVALID_ARGUMENT"),
    ],
)
def test_what_is_refused_leaves_nothing(db: Database, statement: str, code: str) -> None:
    db.sql(f"CREATE BACKUP COLLECTION all DATABASE {CLUSTER}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}")
    if "of_" in statement:
        db.sql(TABLE.format("`dir/t`"))
        db.sql(f"CREATE BACKUP COLLECTION of_a_directory (TABLE dir) {CLUSTER}")
        db.sql(f"CREATE BACKUP COLLECTION of_an_index (TABLE `dir/t/by_v/indexImplTable`) {CLUSTER}")
    with refused(db, code):
        db.sql(statement)
    assert leaks(db) == []


def test_a_collection_before_its_tables(on_both: Database) -> None:
    db = on_both
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE `dir/t`) {CLUSTER}")
    with refused(db, "PATH_NOT_FOUND"):
        db.sql("BACKUP c")
    db.sql(TABLE.format("`dir/t`"))
    db.sql("BACKUP c")
    assert list(last(db).tables) == ["/dir/t"]


def test_altered(db: Database) -> None:
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}")
    db.sql(
        "ALTER BACKUP COLLECTION c ADD TABLE `dir/u`, SET (OMIT_INDEXES = 'true', INCREMENTAL_BACKUP_ENABLED = 'false'), DROP TABLE t"
    )
    assert settings(db) == {
        **{"version": 2, "tables": ["/dir/u"], "STORAGE": "cluster"},
        **{"INCREMENTAL_BACKUP_ENABLED": False, "OMIT_INDEXES": True},
    }
    db.sql(
        "ALTER BACKUP COLLECTION c RESET (OMIT_INDEXES), SET (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = TRUE)"
    )
    assert settings(db)["OMIT_INDEXES"] is False
    assert settings(db)["INCREMENTAL_BACKUP_ENABLED"] is True
    assert settings(db)["version"] == 3


def test_a_database_has_all_tables_outside_backups_as_they_are_when_it_is_backed_up(db: Database) -> None:
    db.sql(f"CREATE BACKUP COLLECTION c (DATABASE) {CLUSTER}")
    with refused(db, "PRECONDITION_FAILED", "no tables"):
        db.sql("BACKUP c")
    db.sql(f"{TABLE.format('t')}; {TABLE.format('`dir/deep/t`')}; {TABLE.format('`.backup/t`')}")
    db.sql("BACKUP c")
    assert sorted(last(db).tables) == ["/.backup/t", "/dir/deep/t", "/t"]
    db.sql("DROP TABLE `.backup/t`")
    db.sql("BACKUP c INCREMENTAL")
    assert sorted(last(db).tables) == ["/dir/deep/t", "/t"]
    db.sql(TABLE.format("later"))
    db.sql("BACKUP c INCREMENTAL")
    assert sorted(last(db).tables) == ["/dir/deep/t", "/later", "/t"]


def test_a_table_that_leaves_and_one_that_joins(db: Database) -> None:
    db.sql(
        f"{TABLE.format('a')}; {TABLE.format('b')}; CREATE BACKUP COLLECTION c (TABLE a, TABLE b) {CLUSTER}; BACKUP c"
    )
    db.sql("ALTER BACKUP COLLECTION c DROP TABLE b; BACKUP c INCREMENTAL")
    assert list(last(db).tables) == ["/a"]
    assert (len(streams(db, "/a")), streams(db, "/b"), streams(db, "/b/by_v/indexImplTable")) == (1, [], [])
    db.sql("ALTER BACKUP COLLECTION c ADD TABLE b; BACKUP c INCREMENTAL")
    assert sorted(last(db).tables) == ["/a", "/b"]


def test_increments_are_switched_on_and_off(db: Database) -> None:
    db.sql(f"{TABLE.format('t')}; CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster')")
    before = db.describe("/t")["version"]
    db.sql("BACKUP c")
    assert (streams(db, "/t"), db.describe("/t")["version"]) == ([], before)
    with refused(db, "PRECONDITION_FAILED", "does not take"):
        db.sql("BACKUP c INCREMENTAL")
    db.sql("ALTER BACKUP COLLECTION c SET (INCREMENTAL_BACKUP_ENABLED = 'true')")
    with refused(db, "PRECONDITION_FAILED", "later changes were not recorded"):
        db.sql("BACKUP c INCREMENTAL")
    db.sql("BACKUP c; BACKUP c INCREMENTAL; ALTER BACKUP COLLECTION c RESET (INCREMENTAL_BACKUP_ENABLED)")
    with refused(db, "PRECONDITION_FAILED"):
        db.sql("BACKUP c INCREMENTAL")
    assert len(streams(db, "/t")) == 1
    db.sql("BACKUP c")
    assert streams(db, "/t") == streams(db, "/t/by_v/indexImplTable") == []
    assert leaks(db) == []


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
    db.sql("DROP BACKUP COLLECTION other PURGE; DROP TABLE t; DROP TABLE `restored/t`")
    clock.sleep(2 * HERE.read_seconds)  # The read protection of earlier readers has ended.
    db.collect()
    assert list(db.runtime.files.names("data")) == []


def test_dropped_after_its_table_is_gone(db: Database) -> None:
    db.sql(
        f"{TABLE.format('t')}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c; DROP TABLE t; DROP BACKUP COLLECTION c"
    )
    assert [e.name for e in db.ls("/.backups/collections")] == []
    assert leaks(db) == []


def test_nothing_else_happens_to_a_collection_while_it_is_backed_up(db: Database) -> None:
    db.sql(
        f"{TABLE.format('t')}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; CREATE BACKUP COLLECTION other (TABLE t) {CLUSTER}"
    )
    operation = db._running.engine.start("backup", CollectionRequest(collection="c"))
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
    folder = Path(db.runtime.files.location)
    with open_at(folder, clock=db.runtime.clock) as other:
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


def test_a_collection_named_like_a_table_and_a_directory(db: Database) -> None:
    db.sql(f"{TABLE.format('t')}; {TABLE.format('`dir/t`')}")
    db.sql(
        f"CREATE BACKUP COLLECTION t (TABLE t) {CLUSTER}; CREATE BACKUP COLLECTION dir (TABLE `dir/t`) {CLUSTER}; BACKUP t; BACKUP dir"
    )
    assert list(last(db, "t").tables) == ["/t"]
    assert list(last(db, "dir").tables) == ["/dir/t"]
    db.sql("DROP BACKUP COLLECTION t")
    assert rows(db, "SELECT count(*) FROM t") == [(0,)]
    assert len(streams(db, "/dir/t")) == 1
