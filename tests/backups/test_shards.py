"""Shards by size: backups, restores and verifications have a part for each, of tables and indexes.

If a part fails, only this part is retried.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Database, Settings
from strandline.catalog import chains, operations, paths
from strandline.catalog.transactions import current_step
from strandline.errors import Corrupted, Unavailable
from tests.backups.reading import CLUSTER, contents, last, leaks, open_at
from tests.catalogs import ManualClock
from tests.engines import until_alone
from tests.quick_files import QuickFiles
from tests.tables.examples import assert_sound, rows

pytestmark = pytest.mark.slow

RETRY_SECONDS = Settings().pauses
IN_FILES = {"inline_rows": 0, "shard_bytes": 5_000}
TABLE = "CREATE TABLE t (k Int64, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"
RUNS = 10
"""Number of commits. Each one has its own range of keys and values, so that each is one segment."""


def fill(db: Database, first: int = 0, *, value: str = "v", runs: int = RUNS) -> None:
    for run in range(first, first + runs):
        given = ", ".join(f"({100 * run + i}, '{value}{100 * run + i:05}', {i})" for i in range(20))
        db.sql(f"UPSERT INTO t (k, v, n) VALUES {given}")


def table(db: Database, path: str) -> list[tuple[Any, ...]]:
    return rows(db, f"SELECT * FROM `{path}` ORDER BY k")


def kinds(db: Database, operation_id: Any) -> Counter[str]:
    with db._runtime.catalog.read() as conn:
        found = operations.parts(conn, str(operation_id))
    assert all(part.state == "done" for part in found)
    return Counter(part.kind for part in found)


def segments(db: Database, path: str) -> int:
    with db._runtime.catalog.read() as conn:
        table = paths.require(conn, path, "table")
        return len(chains.load(conn, table.id, current_step(conn)).segments)


@pytest.fixture
def told(connect: Callable[..., Database], clock: ManualClock) -> Database:
    """Create a table in several segments, a full backup of it, and changes everywhere since."""
    db = connect(clock=clock, settings=IN_FILES)
    db.sql(TABLE)
    fill(db)
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
    fill(db, value="w")
    db.sql("DELETE FROM t WHERE k < 10")
    return db


def test_every_kind_of_work_has_a_part_for_each_shard(told: Database) -> None:
    db, before = told, table(told, "t")
    full = kinds(db, db.sql("BACKUP c").operation_id)
    assert full["table shard"] > 6
    assert full["table"] == 2
    fill(db, value="x")
    increment = db.sql("BACKUP c INCREMENTAL").operation_id
    assert kinds(db, increment)["slice"] == 2
    assert RUNS > kinds(db, increment)["slice shard"] > 4, "several segments are one shard"
    assert contents(db)["/t"] == {(row[0],): row for row in table(db, "t")}
    restored = db.sql("RESTORE c INTO 'r' WITH (MODE = 'copy', VERIFY = 'data')").operation_id
    assert kinds(db, restored)["shard"] > 10
    assert kinds(db, restored)["verify shard"] > 6
    assert table(db, "r/t") == table(db, "t") != before
    assert_sound(db, "r/t")
    assert leaks(db) == []


def test_few_changes_of_a_large_table_are_one_part(told: Database) -> None:
    told.sql("BACKUP c")
    told.sql("UPSERT INTO t (k, v, n) VALUES (1, 'one', 1), (905, 'other', 2)")
    found = kinds(told, told.sql("BACKUP c INCREMENTAL").operation_id)
    assert (found["slice"], found["slice shard"]) == (2, 0)


def test_an_increment_that_needs_its_base_to_be_checked_is_cut_as_well(told: Database) -> None:
    told.sql("BACKUP c")
    fill(told, value="x")
    told.sql("ALTER TABLE t ADD COLUMN m Int64; UPDATE t SET m = k; BACKUP c")
    # And no changes in half of the shards.
    fill(told, value="y", runs=RUNS // 2)
    told.sql("ALTER TABLE t DROP COLUMN m")
    found = kinds(told, told.sql("BACKUP c INCREMENTAL").operation_id)
    assert found["slice shard"] > 2
    told.sql("RESTORE c INTO 'r' WITH (VERIFY = 'data')")
    assert table(told, "r/t") == table(told, "t")


def test_changes_that_do_not_lead_to_what_was_recorded_are_refused(told: Database) -> None:
    told.sql("BACKUP c")
    fill(told, value="x")
    with told._runtime.catalog.write() as tx:
        tx.conn.exec_driver_sql(
            "UPDATE commits SET digest = 'f' || substr(digest, 2) WHERE step = (SELECT max(step) FROM commits)"
        )
    with pytest.raises(Corrupted, match="was recorded"):
        told.sql("BACKUP c INCREMENTAL")
    assert last(told).kind == "full"
    assert leaks(told) == []


PARTITIONED = TABLE + " WITH (PARTITION_AT_KEYS = ((300), (600), (900)))"


def test_the_index_of_a_partitioned_table_is_cut_by_its_own_keys(
    connect: Callable[..., Database], clock: ManualClock
) -> None:
    db = connect(clock=clock, settings={"inline_rows": 0})
    db.sql(PARTITIONED.replace(", INDEX by_v GLOBAL SYNC ON (v) COVER (n)", ""))
    fill(db)
    db.sql("ALTER TABLE t ADD INDEX by_v GLOBAL SYNC ON (v) COVER (n)")
    assert segments(db, "t/by_v/indexImplTable") == 4
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}")
    assert kinds(db, db.sql("BACKUP c").operation_id)["table shard"] == 4 + 4
    fill(db, value="w")
    increment = kinds(db, db.sql("BACKUP c INCREMENTAL").operation_id)
    assert increment["slice"] + increment["slice shard"] == 4 + 4
    restored = kinds(db, db.sql("RESTORE c INTO 'r' WITH (VERIFY = 'data')").operation_id)
    assert restored["verify shard"] == 1, "what is small is checked together"
    assert kinds(db, db.sql("COMPACT c").operation_id)["fold"] == 4 + 4
    assert table(db, "r/t") == table(db, "t")
    db.compact("t/by_v/indexImplTable")
    assert segments(db, "t/by_v/indexImplTable") == 4
    assert_sound(db, "t")


class Failing(QuickFiles):
    """Fails the first reads of a file."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.left = 0
        self.reads = 0

    def chunks(self, name: str) -> Any:
        self.reads += 1
        if self.left and self.reads > 3:
            self.left -= 1
            raise Unavailable("the storage is away")
        return super().chunks(name)


@pytest.mark.parametrize("times", [1, len(RETRY_SECONDS), len(RETRY_SECONDS) + 1])
@pytest.mark.parametrize("statement", ["BACKUP c INCREMENTAL", "RESTORE c INTO 'r' WITH (VERIFY = 'data')"])
def test_a_shard_that_fails_is_tried_again_by_itself(
    tmp_path: Path, clock: ManualClock, statement: str, times: int
) -> None:
    files = Failing(tmp_path)
    with open_at(tmp_path, clock=clock, files=files, settings=IN_FILES) as db:
        db.sql(TABLE)
        fill(db)
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
        fill(db, value="w")
    with open_at(tmp_path, clock=clock, files=files, settings=IN_FILES) as db:
        files.left, files.reads = times, 0
        if times > len(RETRY_SECONDS):
            with pytest.raises(Unavailable, match="away"):
                db.sql(statement)
            assert leaks(db) == []
        else:
            ended = db.sql(statement)
            with db._runtime.catalog.read() as conn:
                attempts = [p.attempt for p in operations.parts(conn, str(ended.operation_id))]
            assert sorted(attempts) == [0] * (len(attempts) - 1) + [times]
        assert files.left == 0
        db.sql("BACKUP c INCREMENTAL; RESTORE c INTO 'again'")
        assert table(db, "again/t") == table(db, "t")


def test_verification_tries_a_shard_again(tmp_path: Path, clock: ManualClock) -> None:
    files = Failing(tmp_path)
    with open_at(tmp_path, clock=clock, files=files, settings=IN_FILES) as db:
        db.sql(TABLE)
        fill(db)
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
        began, files.left = clock.now(), len(RETRY_SECONDS)
        assert db.verify("c") == []
        assert clock.now() - began == pytest.approx(sum(RETRY_SECONDS))
        files.left = len(RETRY_SECONDS) + 1
        with pytest.raises(Unavailable, match="away"):
            db.verify("c")


class Hanging(QuickFiles):
    """A read does not answer until it is released."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked, self.hangs, self.let_go = threading.Event(), threading.Event(), threading.Event()
        self._first = threading.Lock()

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        if self.asked.is_set() and self._first.acquire(blocking=False):
            self.hangs.set()
            assert self.let_go.wait(300)
        return super().chunks(name)


def test_a_shard_that_hangs_is_tried_again_by_itself(tmp_path: Path, clock: ManualClock) -> None:
    files = Hanging(tmp_path)
    settings = {**IN_FILES, "workers": 2, "shard_seconds": 10.0, "session_seconds": 1e6}
    with open_at(tmp_path, clock=clock, files=files, settings=settings) as db:
        db.sql(TABLE)
        fill(db)
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
        fill(db, value="w")
    with open_at(tmp_path, clock=clock, files=files, settings=settings) as db:
        files.asked.set()

        def pass_by() -> None:
            assert files.hangs.wait(300)
            # A slow call has not answered either.
            until_alone(db._runtime.catalog, db.operations()[-1].id)
            clock.sleep(11)

        later = threading.Thread(target=pass_by)
        later.start()
        ended = db.sql("BACKUP c INCREMENTAL")
        later.join()
        with db._runtime.catalog.read() as conn:
            attempts = [p.attempt for p in operations.parts(conn, str(ended.operation_id))]
        assert sorted(attempts) == [0] * (len(attempts) - 1) + [1]
        files.let_go.set()
        db.sql("RESTORE c INTO 'r' WITH (VERIFY = 'data')")
        assert table(db, "r/t") == table(db, "t")
