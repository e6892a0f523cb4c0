"""docs/coming-from/ydb.md: each row of its tables about differences has a case here that shows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from strandline import Database, Settings
from strandline.backups.record import time_of
from strandline.errors import StrandlineError
from tests.backups.reading import backups, changes

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "coming-from" / "ydb.md"
TABLE = """CREATE TABLE t (k Uint64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), INDEX i GLOBAL SYNC ON (v));
           UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20)"""
C = "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
HERE = "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
FULL = [TABLE, C, "BACKUP c"]
COLLECTIONS = "/.backups/collections"

Check = Callable[[Database, Path], bool]
Step = str | tuple[str, str | list[tuple[Any, ...]]] | Check
"""A statement that succeeds; a statement with the code of its error, or with its rows; a check."""


def latest(db: Database) -> str:
    return f"{COLLECTIONS}/c/{backups(db)[-1]}"


def missing(path: str) -> Check:
    return lambda db, _: not any(entry.path == path for entry in db.ls(path.rsplit("/", 1)[0] or "/"))


def there(path: str) -> Check:
    return lambda db, _: bool(db.describe(path))


def streams(db: Database) -> list[dict[str, Any]]:
    return [db.describe(entry.path) for entry in db.ls("/t") if entry.type == "stream"]


def is_operation_id(db: Database, _: Path) -> bool:
    return re.fullmatch("[0-9a-f]{16}", str(db.sql("BACKUP c").operation_id)) is not None


def waits_or_returns(db: Database, _: Path) -> bool:
    done = db.operation(str(db.sql("BACKUP c").operation_id)).state
    begun = str(db.sql("BACKUP c NOWAIT").operation_id)
    return done == db.wait(begun).state == "done"


def restores_at(db: Database, _: Path) -> bool:
    db.sql(f"RESTORE c AT '{backups(db)[0]}' TABLE t AS first")
    # A name has whole seconds, which may begin before the backup.
    time = (time_of(backups(db)[-1]) + timedelta(seconds=1)).isoformat()
    db.sql(f"RESTORE c AT TIMESTAMP '{time}' TABLE t AS later")
    return (db.describe("/first")["rows"], db.describe("/later")["rows"]) == (2, 3)


def tombstone(db: Database, _: Path) -> bool:
    db.sql(f"EXPLAIN SELECT __ydb_incrBackupImpl_deleted FROM `{latest(db)}/t`")
    return changes(db, backups(db)[-1], "/t") == [(1, "z", 10, False), (2, None, None, True)]


def is_marked(db: Database, _: Path) -> bool:
    described = db.describe(latest(db))
    return (described["kind"], described["parent"]) == ("incremental", backups(db)[0])


def has_rebuilt_index(db: Database, _: Path) -> bool:
    kept = db.describe(f"{latest(db)}/t")["indexes"]
    return [index["name"] for index in kept] == ["i"] and db.describe(f"{latest(db)}/t/i")["rows"] == 0


def a_second_apart(db: Database, _: Path) -> bool:
    first, second = (time_of(name) for name in backups(db)[-2:])
    return second - first >= timedelta(seconds=1)


def streams_have_images(db: Database, _: Path) -> bool:
    [stream] = streams(db)
    return (stream["mode"], stream["format"], db.ls(stream["path"])) == ("NEW_IMAGE", "JSON", [])


def in_repository(db: Database, folder: Path) -> bool:
    db.sql(f"CREATE BACKUP COLLECTION d (TABLE t) WITH (STORAGE = '{folder / 'repository'}'); BACKUP d")
    return (folder / "repository" / "repository.json").exists()


def attached_and_restored(db: Database, folder: Path) -> bool:
    in_repository(db, folder)
    db.sql("DROP TABLE t; DROP BACKUP COLLECTION d PURGE")
    db.sql(f"ATTACH BACKUP COLLECTION rescued FROM '{folder / 'repository'}'; RESTORE rescued")
    return bool(db.describe("/t")["rows"] == 2)


def digest_comes_back(db: Database, _: Path) -> bool:
    before = db.describe("/t")["digest"], db.describe("/t")["rows"]
    db.sql("DROP TABLE t; RESTORE c WITH (MODE = 'copy')")
    return (db.describe("/t")["digest"], db.describe("/t")["rows"]) == before


def counts_parts(db: Database, _: Path) -> bool:
    done = db.operation(str(db.sql("RESTORE c TABLE t AS u").operation_id))
    return done.percent == 100.0 and done.parts_done == done.parts > 1


CASES: dict[str, list[Step]] = {
    "root of paths": ["CREATE TABLE `/Root/t` (k Uint64, PRIMARY KEY (k))", there("/Root/t")],
    "feature flags": [
        *FULL,
        lambda db, _: not [f.name for f in fields(Settings) if "enable" in f.name],
    ],
    "collection without a list of tables": [
        ("CREATE BACKUP COLLECTION c WITH (STORAGE = 'cluster')", "SYNTAX_ERROR"),
    ],
    "collection of the whole `DATABASE`": [
        TABLE,
        f"CREATE BACKUP COLLECTION c DATABASE {HERE}",
        "CREATE TABLE later (k Uint64, PRIMARY KEY (k)); BACKUP c",
        lambda db, _: {"t", "later"} <= {entry.name for entry in db.ls(latest(db))},
    ],
    "unknown settings of a collection": [
        (
            "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', COLOUR = 'red')",
            "INVALID_ARGUMENT",
        ),
    ],
    "`ALTER BACKUP COLLECTION`": [
        *(TABLE, C),
        "ALTER BACKUP COLLECTION c ADD TABLE u, SET (OMIT_INDEXES = 'true')",
        lambda db, _: db.describe("c")["tables"] == ["/t", "/u"],
        lambda db, _: db.describe("c")["settings"]["OMIT_INDEXES"] is True,
        "ALTER BACKUP COLLECTION c DROP TABLE u",
        lambda db, _: db.describe("c")["tables"] == ["/t"],
    ],
    "`BACKUP` and `RESTORE`": [TABLE, C, waits_or_returns],
    "ids of operations": [TABLE, C, is_operation_id],
    "`RESTORE c AT`": [*FULL, "UPSERT INTO t (k) VALUES (3)", "BACKUP c INCREMENTAL", restores_at],
    "tables below `/.backups`": [
        *FULL,
        ("CREATE TABLE `.backups/x` (k Uint64, PRIMARY KEY (k))", "INVALID_ARGUMENT"),
        lambda db, _: refused(db, f"DROP TABLE `{latest(db)}/t`") == "INVALID_ARGUMENT",
        lambda db, _: bool(db.sql(f"DROP BACKUP c '{backups(db)[0]}' CONFIRM")) and not backups(db),
    ],
    "`ALTER` of a table in a collection": [
        *FULL,
        "ALTER TABLE t ADD COLUMN m Int32; ALTER TABLE t DROP COLUMN n; ALTER TABLE t RENAME TO u",
        "UPSERT INTO u (k, m) VALUES (3, 30)",
        "BACKUP c INCREMENTAL; DROP TABLE u; RESTORE c",
        ("SELECT k, m FROM u ORDER BY k", [(1, None), (2, None), (3, 30)]),
    ],
    "`DROP TABLE`": [
        TABLE,
        "DROP TABLE t; UNDROP TABLE t; DROP TABLE t PURGE",
        ("UNDROP TABLE t", "PATH_NOT_FOUND"),
    ],
    "`DROP BACKUP COLLECTION`": [
        *FULL,
        "DROP BACKUP COLLECTION c; UNDROP BACKUP COLLECTION c; DROP BACKUP COLLECTION c PURGE",
        ("UNDROP BACKUP COLLECTION c", "PATH_NOT_FOUND"),
    ],
    "access rights": [TABLE, ("GRANT SELECT ON t TO ada", "UNSUPPORTED")],
    "vector and full-text indexes": [
        (
            f"CREATE TABLE t (k Uint64, v String, PRIMARY KEY (k), INDEX i GLOBAL USING {kind} ON (v))",
            "UNSUPPORTED",
        )
        for kind in ("vector_kmeans_tree", "fulltext_plain")
    ],
    "column tables, TTL": [
        ("CREATE TABLE t (k Uint64, PRIMARY KEY (k)) WITH (STORE = COLUMN)", "INVALID_ARGUMENT"),
        (
            "CREATE TABLE t (k Uint64, d Timestamp, PRIMARY KEY (k)) WITH (TTL = Interval('PT1H') ON d)",
            "SYNTAX_ERROR",
        ),
    ],
    "topics, views, external tables": [
        ("CREATE TOPIC x", "UNSUPPORTED"),
        ("CREATE VIEW x AS SELECT 1", "UNSUPPORTED"),
        ("CREATE EXTERNAL TABLE x (k Int32) WITH (LOCATION = 'y')", "UNSUPPORTED"),
    ],
    "`DEFAULT` and `Serial` columns": [
        ("CREATE TABLE t (k Uint64, n Int32 DEFAULT 5, PRIMARY KEY (k))", "UNSUPPORTED"),
        ("CREATE TABLE t (k Serial, PRIMARY KEY (k))", "INVALID_ARGUMENT"),
    ],
    "`Uuid`, `Interval`, `JsonDocument`": [
        (f"CREATE TABLE t (k Uint64, v {name}, PRIMARY KEY (k))", "INVALID_ARGUMENT")
        for name in ("Uuid", "Interval", "JsonDocument")
    ],
    "`PRAGMA`, `DECLARE`, `$name = ...`": [
        ("PRAGMA TablePathPrefix('/Root')", "UNSUPPORTED"),
        ("DECLARE $x AS Uint64", "UNSUPPORTED"),
        ("$x = SELECT 1; SELECT * FROM $x", "UNSUPPORTED"),
        TABLE,
        lambda db, _: db.sql("SELECT v FROM t WHERE k = $x", {"x": 1}).rows()[0][0] == "a",
    ],
    "changes in an increment": [
        *FULL,
        "UPSERT INTO t (k, v) VALUES (1, 'z'); DELETE FROM t WHERE k = 2; BACKUP c INCREMENTAL",
        tombstone,
    ],
    "mark of an increment": [*FULL, "BACKUP c INCREMENTAL", is_marked],
    "`OMIT_INDEXES`": [
        TABLE,
        "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', OMIT_INDEXES = 'true')",
        "BACKUP c; DROP TABLE t; RESTORE c",
        has_rebuilt_index,
        ("SELECT k FROM t VIEW i WHERE v = 'b'", [(2,)]),
    ],
    "unique indexes": [
        "CREATE TABLE t (k Uint64, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL UNIQUE SYNC ON (v))",
        *(C, "BACKUP c", "UPSERT INTO t (k, v) VALUES (1, 'a')", "BACKUP c INCREMENTAL"),
        lambda db, _: bool(db.describe(f"{latest(db)}/__ydb_backup_meta/indexes/t/i")),
        "DROP TABLE t; RESTORE c",
        ("SELECT k FROM t VIEW i WHERE v = 'a'", [(1,)]),
        ("INSERT INTO t (k, v) VALUES (2, 'a')", "PRECONDITION_FAILED"),
    ],
    "table new since the last backup": [
        *FULL,
        "CREATE TABLE u (k Uint64, PRIMARY KEY (k)); UPSERT INTO u (k) VALUES (7)",
        "ALTER BACKUP COLLECTION c ADD TABLE u; BACKUP c INCREMENTAL; DROP TABLE t; DROP TABLE u; RESTORE c",
        ("SELECT k FROM u", [(7,)]),
    ],
    "index new since the last backup": [
        *FULL,
        "ALTER TABLE t ADD INDEX j GLOBAL SYNC ON (n); BACKUP c INCREMENTAL; DROP TABLE t; RESTORE c",
        ("SELECT k FROM t VIEW j WHERE n = 20", [(2,)]),
    ],
    "two backups within one second": [TABLE, C, "BACKUP c; BACKUP c", a_second_apart],
    "streams of a collection": [*FULL, streams_have_images],
    "where backups live": [TABLE, in_repository],
    "retention, verification, compaction": [
        *FULL,
        "BACKUP c INCREMENTAL; VERIFY c; COMPACT c; PRUNE c KEEP LAST 1 FULL CONFIRM",
        "ALTER BACKUP COLLECTION c SET (RETENTION = 'KEEP LAST 1 FULL', MAX_CHAIN = 2)",
        lambda db, _: len(backups(db)) == 1,
    ],
    "after a loss of the cluster": [TABLE, attached_and_restored],
    "restore over live tables": [
        *FULL,
        "DELETE FROM t WHERE k = 1",
        ("RESTORE c", "ALREADY_EXISTS"),
        "RESTORE c WITH (REPLACE = 'true')",
        ("SELECT k FROM t ORDER BY k", [(1,), (2,)]),
    ],
    "rows after a restore": [*FULL, digest_comes_back],
    "progress": [*FULL, counts_parts],
    "path that is missing": [("DROP TABLE t", "PATH_NOT_FOUND"), ("RESTORE c", "PATH_NOT_FOUND")],
    "path that exists already": [*FULL, (TABLE, "ALREADY_EXISTS"), ("RESTORE c", "ALREADY_EXISTS")],
}
"""By the first cell of the row."""

ELSEWHERE = {
    "tables while they are restored": "backups/restore/test_restore.py::test_while_it_runs_the_targets_are_closed",
    "shards in flight": "backups/restore/test_restore.py::test_as_many_shards_at_a_time_as_there_are_workers",
    "shards that fail": "backups/restore/test_faults.py::test_a_shard_is_tried_again_with_growing_pauses",
    "deadline": "backups/restore/test_restore.py::test_a_restore_without_any_time_leaves_nothing",
    "path under another operation": "backups/restore/test_operations.py::test_a_second_restore_is_refused_while_one_runs",
    "lost race of transactions": "tables/test_transactions.py::test_a_transaction_gives_up_only_after_many_tries",
    "version that siblings agree on": "catalog/test_versions.py::test_the_first_claims_and_its_siblings_join",
    "repeated claim of one part": "catalog/test_versions.py::test_the_first_claims_and_its_siblings_join",
    "claims after publication": "catalog/test_versions.py::test_apply_moves_all_of_them_and_the_table_lists_its_index_anew",
}
"""Rows that need an operation in the middle, or two processes, and the tests that show them."""


def refused(db: Database, text: str) -> str:
    with pytest.raises(StrandlineError) as caught:
        db.sql(text).rows()
    return caught.value.code


@pytest.mark.parametrize("row", CASES)
def test_a_difference_is_as_the_page_says(row: str, db: Database, tmp_path: Path) -> None:
    for step in CASES[row]:
        if isinstance(step, str):
            db.sql(step)
        elif not isinstance(step, tuple):
            assert step(db, tmp_path)
        elif isinstance(step[1], str):
            assert refused(db, step[0]) == step[1]
        else:
            assert [tuple(found) for found in db.sql(step[0]).rows()] == step[1]


def test_each_row_of_the_page_has_one_case() -> None:
    rows = [
        line.split(" | ")[0].removeprefix("| ")
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| |")
    ]
    assert sorted(rows) == sorted([*CASES, *ELSEWHERE])


@pytest.mark.parametrize("row", ELSEWHERE)
def test_a_case_elsewhere_is_there(row: str) -> None:
    path, _, name = ELSEWHERE[row].partition("::")
    tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize(
    "name", ["c", f"{COLLECTIONS}/c", f"/Root{COLLECTIONS}/c", f"/Root/db{COLLECTIONS}/c"]
)
def test_a_collection_has_an_absolute_name(name: str, db: Database) -> None:
    db.sql(TABLE)
    db.sql(f"CREATE BACKUP COLLECTION `{name}` (TABLE t) WITH (STORAGE = 'Cluster')")
    assert db.describe(f"{COLLECTIONS}/c")["settings"]["STORAGE"] == "cluster"
    db.sql(f"BACKUP `{name}`")
    assert db.sql(f"SELECT k FROM t IN BACKUP `{name}` WHERE k = 1").rows()[0][0] == 1
    db.sql(f"DROP TABLE t; RESTORE `{name}`; DROP BACKUP COLLECTION `{name}`")
    assert missing(f"{COLLECTIONS}/c")(db, Path())


@pytest.mark.parametrize(
    "name", ["/Root/c", "a/c", "/", "/.backups/c", f"{COLLECTIONS}/c/d", f"{COLLECTIONS}/.."]
)
def test_another_path_is_not_the_name_of_a_collection(name: str, db: Database) -> None:
    with pytest.raises(StrandlineError, match=r"not (the|a) name") as caught:
        db.sql(f"CREATE BACKUP COLLECTION `{name}` DATABASE WITH (STORAGE = 'cluster')")
    assert caught.value.code == "INVALID_ARGUMENT"
