"""Increments of any size are folded on Spark with the same result, and can be queried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline import Database
from strandline.catalog import chains, paths
from strandline.catalog.transactions import current_step
from strandline.errors import Corrupted
from tests.backups.reading import CLUSTER, backups, changes, contents, last, leaks, projected
from tests.backups.test_incremental import other_values, tamper
from tests.effort import EVERY
from tests.tables.examples import content, rows
from tests.values import shard_of

TABLE = """CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))
           WITH (PARTITION_AT_KEYS = (10, 20, 30))"""


@pytest.fixture
def key(tmp_path: Path) -> dict[str, str]:
    """Return settings with the key of encrypted repositories."""
    (tmp_path / "key").write_text("ab" * 32)
    return {"repository_key_file": str(tmp_path / "key")}


@pytest.fixture
def quick(connect: Callable[..., Database], key: dict[str, str]) -> Database:
    """Open a database without Spark, for what happens between backups."""
    db = connect(settings=key)
    db.sql(f"{TABLE}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}")
    db.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k} for k in range(40)])
    return db


@pytest.fixture
def bulk(
    connect: Callable[..., Database], quick: Database, spark: SparkSession, key: dict[str, str]
) -> Database:
    """Open a database that does on Spark all that it can."""
    # A chain with any change is rewritten.
    whole = {"inline_rows": 0, "compact_log_rows": 0.0}
    db = connect(spark=spark, settings={"bulk_rows": 0, "workers": 2, **whole, **key})
    db.sql("BACKUP c")
    return db


def assert_whole(db: Database) -> None:
    found, table = contents(db), last(db).tables["/t"]
    assert sorted(found["/t"].values(), key=repr) == sorted(content(db, "/t"), key=repr)
    for index in table.indexes:
        assert found[f"/t/{index.definition.name}"] == projected(table.schema, found["/t"], index.definition)


@pytest.mark.skipif(not EVERY, reason="test_slices has such windows; a part of make exhaustive")
def test_windows_with_many_changes_of_a_key_and_of_nothing_but_deletes(
    quick: Database, bulk: Database
) -> None:
    for i in range(30):
        quick.sql(
            f"UPSERT INTO t (k, v, n) VALUES (5, 'w{i % 3}', {i}), ({10 + i % 2}, 'same', {i}), (NULL, 'null', {i})"
        )
    quick.sql(
        "UPSERT INTO t (k) VALUES (100); DELETE FROM t WHERE k = 100; DELETE FROM t ON (k) VALUES (7), (77)"
    )
    bulk.sql("BACKUP c INCREMENTAL")
    one = last(bulk)
    assert (one.tables["/t"].slice.rows, one.tables["/t"].slice.tombstones) == (7, 3)
    assert_whole(quick)
    for index in (None, "by_v"):
        assert changes(quick, one.name, "/t", index) == changes(bulk, one.name, "/t", index)
    segments = bulk.describe(f"/.backups/collections/c/{one.name}/t")["segments"]
    shards = {shard_of(one.tables["/t"].schema, (row[0],)) for row in changes(quick, one.name, "/t")}
    assert segments == len(shards) == 3
    quick.sql("DELETE FROM t")
    bulk.sql("BACKUP c INCREMENTAL")
    two = last(bulk).tables["/t"].slice
    assert (two.rows, two.tombstones, two.after.rows) == (40, 40, 0)
    assert_whole(quick)
    found = rows(
        bulk,
        f"SELECT k, v, __ydb_incrBackupImpl_deleted FROM `.backups/collections/c/{one.name}/t` ORDER BY k NULLS FIRST",
    )
    assert found == [
        (None, "null", False),
        *((5, "w2", False), (7, None, True), (10, "same", False)),
        *((11, "same", False), (77, None, True), (100, None, True)),
    ]
    at = f".backups/collections/c/{one.name}/__ydb_backup_meta/indexes/t/by_v"
    assert rows(bulk, f"SELECT v, k, n FROM `{at}` WHERE NOT __ydb_incrBackupImpl_deleted AND v = 'w2'") == [
        ("w2", 5, 29)
    ]
    assert leaks(quick) == []


def test_an_increment_is_described_as_it_is_selected(quick: Database, bulk: Database) -> None:
    quick.sql(
        f"""CREATE TABLE u (a Int32 NOT NULL, b Utf8 NOT NULL, c Int64, PRIMARY KEY (a), INDEX by_b GLOBAL SYNC ON (b) COVER (c));
            CREATE BACKUP COLLECTION d (TABLE u) {CLUSTER}; UPSERT INTO u (a, b) VALUES (1, 'x');
            BACKUP d; DELETE FROM u; UPSERT INTO u (a, b, c) VALUES (2, 'y', 5); BACKUP d INCREMENTAL"""
    )
    at = {entry.name.split("_")[1]: entry.path.lstrip("/") for entry in quick.ls("/.backups/collections/d")}
    deleted = {"name": "__ydb_incrBackupImpl_deleted", "type": "Bool", "not_null": True}
    a, b, c = (
        {"name": n, "type": t, "not_null": n == "a"}
        for n, t in zip("abc", ("Int32", "Utf8", "Int64"), strict=True)
    )
    for table, columns, selected in (
        (f"{at['full']}/u", [a, b | {"not_null": True}, c], [(1, "x", None)]),
        (f"{at['incremental']}/u", [a, b, c, deleted], [(1, None, None, True), (2, "y", 5, False)]),
        (
            f"{at['incremental']}/__ydb_backup_meta/indexes/u/by_b",
            [b | {"not_null": True}, a, c, deleted],
            [("x", 1, None, True), ("y", 2, 5, False)],
        ),
    ):
        result = bulk.sql(f"SELECT * FROM `{table}` ORDER BY a")
        assert (list(result.columns), result.rows()) == ([each["name"] for each in columns], selected)
        assert quick.describe(table)["columns"] == columns
        assert dict(quick.sql(f"DESCRIBE `{table}`").rows())["columns"] == str(columns)


def test_a_whole_index_and_a_dropped_column(quick: Database, bulk: Database) -> None:
    quick.sql(
        "ALTER TABLE t ADD INDEX by_n GLOBAL SYNC ON (n); ALTER TABLE t ADD COLUMN x Utf8; UPSERT INTO t (k, x) VALUES (1, 'x'), (50, 'y')"
    )
    bulk.sql("BACKUP c INCREMENTAL")
    assert len(changes(quick, backups(quick)[-1], "/t", "by_n")) == 41
    assert_whole(quick)
    quick.sql("ALTER TABLE t DROP COLUMN x; UPSERT INTO t (k, v) VALUES (2, 'two')")
    bulk.sql("BACKUP c INCREMENTAL")
    assert last(bulk).tables["/t"].slice.delta is None
    assert_whole(quick)
    assert bulk.verify("c") == []


def test_a_wrong_increment_is_refused(quick: Database, bulk: Database) -> None:
    quick.sql("UPSERT INTO t (k, v) VALUES (5, 'e'), (6, 'f')")
    tamper(quick, "/t", other_values)
    with pytest.raises(Corrupted, match="was recorded"):
        bulk.sql("BACKUP c INCREMENTAL")
    assert len(backups(quick)) == 1
    bulk.close()
    quick.collect()
    assert leaks(quick) == []


def test_bytes_are_copied_and_checked_by_executors(
    connect: Callable[..., Database], spark: SparkSession
) -> None:
    """Damage that they find stops a restore, which leaves no copied file."""
    there = {"bulk_bytes": 0, "inline_rows": 0, "workers": 2}
    db = connect(spark=spark, settings=there)
    db.sql(f"{TABLE}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}")
    db.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k} for k in range(40)])
    db.sql("BACKUP c; RESTORE c INTO 'r' WITH (MODE = 'copy', VERIFY = 'data')")
    assert content(db, "/r/t") == content(db, "/t")
    assert db.check("/r/t").ok and db.check("/t").ok and db.verify("c") == []
    files = {path: files_of(db, path) for path in ("/t", "/r/t")}
    assert files["/t"].isdisjoint(files["/r/t"])
    assert len(files["/r/t"]) == len(files["/t"]) > 0
    assert all(len(name.split("/")) == 4 for name in files["/r/t"]), "in a folder that executors write to"
    assert leaks(db) == []
    damaged = Path(db._runtime.files.path(sorted(files["/t"])[0]))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(Corrupted, match="does not have the checksum that was recorded for it"):
        db.sql("RESTORE c INTO 'again' WITH (MODE = 'copy')")
    with pytest.raises(Corrupted, match="does not match its checksum"):
        db.sql("RESTORE c INTO 'again' WITH (VERIFY = 'data')")
    assert {problem.kind for problem in db.verify("c")} == {"corrupt_file"}
    damaged.unlink()
    assert {problem.kind for problem in db.check("/t").problems} == {"missing_file"}
    assert leaks(db) == []


def test_objects_of_a_repository_are_sent_by_executors(
    connect: Callable[..., Database], spark: SparkSession, key: dict[str, str], tmp_path: Path
) -> None:
    """To a plain one, and to one that is encrypted."""
    db = connect(spark=spark, settings={"bulk_bytes": 0, "inline_rows": 0, **key})
    db.sql(TABLE)
    db.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k} for k in range(40)])
    for name, encrypted in (("r", False), ("e", True)):
        db.sql(
            f"""CREATE BACKUP COLLECTION {name} (TABLE t)
                    WITH (STORAGE = '{tmp_path / name}', ENCRYPTION = '{encrypted}');
                BACKUP {name}; RESTORE {name} INTO 'of_{name}'"""
        )
        assert content(db, f"/of_{name}/t") == content(db, "/t")
        assert db.verify(name) == []


def files_of(db: Database, path: str) -> set[str]:
    with db._runtime.catalog.read() as conn:
        found = chains.load(conn, paths.require(conn, path).id, current_step(conn)).segments
    return {segment.file for segment in found if segment.file is not None}


def test_a_chain_is_folded_on_spark_to_the_same(quick: Database, bulk: Database, tmp_path: Path) -> None:
    """In the warehouse, in a repository, and in one that Spark cannot read."""
    for name, encrypted in (("r", False), ("e", True)):
        quick.sql(
            f"""CREATE BACKUP COLLECTION {name} (TABLE t) WITH (STORAGE = '{tmp_path / name}',
                    INCREMENTAL_BACKUP_ENABLED = 'true', ENCRYPTION = '{encrypted}');
                BACKUP {name}"""
        )
    for i in range(3):
        quick.sql(
            f"UPSERT INTO t (k, v, n) VALUES ({i}, 'w{i}', {i}), (25, 'same', {i}); DELETE FROM t WHERE k = {15 + i}"
        )
        quick.sql("BACKUP c INCREMENTAL; BACKUP r INCREMENTAL; BACKUP e INCREMENTAL")
    for collection in ("r", "e"):
        held = contents(quick, collection=collection)
        bulk.sql(f"COMPACT {collection} INCREMENTS")
        one = last(quick, collection)
        assert (len(one.merged), contents(quick, collection=collection)) == (2, held)
        slice_ = one.tables["/t"].slice
        assert (slice_.rows, slice_.tombstones) == (7, 3)
    for collection in ("c", "e"):
        held = contents(quick, collection=collection)
        bulk.sql(f"COMPACT {collection}")
        made = last(quick, collection)
        assert (made.kind, made.synthetic) == ("full", True)
        assert contents(quick, collection=collection) == held
        with quick._runtime.catalog.read() as conn:
            found = chains.load(conn, made.tables["/t"].slice.target_id or 0, made.step).segments
        assert {segment.role for segment in found} == {"base"}
        assert len(found) == 4  # one for each of its shards
    assert [quick.verify(collection) for collection in ("c", "r", "e")] == [[], [], []]
    quick.collect()
    assert leaks(quick) == []


def test_a_log_behind_a_full_backup_is_folded_on_spark(
    quick: Database,
    connect: Callable[..., Database],
    spark: SparkSession,
    key: dict[str, str],
    tmp_path: Path,
) -> None:
    quick.sql(
        f"""CREATE BACKUP COLLECTION e (TABLE t) WITH (STORAGE = '{tmp_path / "e"}',
                INCREMENTAL_BACKUP_ENABLED = 'true', ENCRYPTION = 'true');
            BACKUP e"""
    )
    held = objects(quick, "e")
    for i in range(2):
        quick.sql(f"UPSERT INTO t (k, v) VALUES ({i}, 'w'), (25, 'x{i}'); DELETE FROM t WHERE k = {15 + i}")
        quick.sql("BACKUP e INCREMENTAL")
    expected = contents(quick, collection="e")
    connect(spark=spark, settings={"bulk_rows": 0, **key}).sql("COMPACT e")
    assert last(quick, "e").kind == "full"
    assert objects(quick, "e")[: len(held)] == held
    assert contents(quick, collection="e") == expected
    assert quick.verify("e", level="restore") == []


def objects(db: Database, collection: str) -> list[str | None]:
    made = last(db, collection)
    with db._runtime.catalog.read() as conn:
        found = chains.load(conn, made.tables["/t"].slice.target_id, made.step).segments
    return [None if s.file is None else s.file.rpartition("#")[0] for s in found]


def test_a_shard_without_a_change_is_read_from_where_spark_cannot_read(
    connect: Callable[..., Database], spark: SparkSession, key: dict[str, str], tmp_path: Path
) -> None:
    """Its file in an encrypted repository is kept, after its rows were read and counted."""
    quick = connect(settings={"inline_rows": 0, **key})
    quick.sql("CREATE TABLE u (k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (10))")
    quick.sql("UPSERT INTO u (k) VALUES (1), (2)")
    quick.sql("UPSERT INTO u (k) VALUES (11), (12)")
    quick.sql(
        f"""CREATE BACKUP COLLECTION e (TABLE u) WITH (STORAGE = '{tmp_path / "e"}',
                INCREMENTAL_BACKUP_ENABLED = 'true', ENCRYPTION = 'true');
            BACKUP e; UPSERT INTO u (k) VALUES (3); BACKUP e INCREMENTAL"""
    )
    whole = {"inline_rows": 0, "compact_log_rows": 0.0}
    connect(spark=spark, settings={"bulk_rows": 0, **whole, **key}).sql("COMPACT e")
    assert last(quick, "e").tables["/u"].slice.rows == 5
    assert quick.verify("e") == []
