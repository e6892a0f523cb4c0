"""Windows of any size are folded on Spark, with the same result; and increments are tables that a query can
read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from strandline import Database
from strandline.errors import Corrupted
from strandline.storage.slices import shard_of
from tests.backups.reading import CLUSTER, backups, changes, contents, last, leaks, projected
from tests.backups.test_incremental import other_values, tamper
from tests.tables.examples import content, rows

TABLE = """CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))
           WITH (PARTITION_AT_KEYS = (10, 20, 30))"""


@pytest.fixture
def quick(connect: Callable[..., Database]) -> Database:
    """What happens between backups needs no Spark."""
    db = connect()
    db.sql(f"{TABLE}; CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}")
    db.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k} for k in range(40)])
    return db


@pytest.fixture
def bulk(connect: Callable[..., Database], quick: Database, spark: SparkSession) -> Database:
    """Everything that can be done on Spark is."""
    db = connect(spark=spark, settings={"bulk_rows": 0, "workers": 2})
    db.sql("BACKUP c")
    return db


def assert_whole(db: Database) -> None:
    found, table = contents(db), last(db).tables["/t"]
    assert sorted(found["/t"].values(), key=repr) == sorted(content(db, "/t"), key=repr)
    for index in table.indexes:
        assert found[f"/t/{index.definition.name}"] == projected(table.schema, found["/t"], index.definition)


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
