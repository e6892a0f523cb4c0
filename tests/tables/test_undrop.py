"""DROP TABLE moves a table to the bin; UNDROP TABLE brings it back for ``bin_seconds``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline import Database, Index, Settings
from strandline.errors import (
    AlreadyExists,
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
)
from tests.catalogs import ManualClock

ROWS = [{"k": k, "v": f"v{k}"} for k in range(5)]
SETTINGS = Settings(bin_seconds=3600, history_seconds=0, grace_seconds=0, inline_rows=0)


def fill(db: Database, path: str = "d/t") -> str:
    """Create a table with indexes; return its digest."""
    indexes = [Index("i", ["v"]), Index("late", ["v"], asynchronous=True)]
    db.create_table(path, ROWS, key=["k"], indexes=indexes)
    return str(db.describe(f"/{path}")["digest"])


def data_files(db: Database) -> list[Path]:
    return sorted(Path(db._runtime.files.own.location, "data").rglob("*.parquet"))


def test_a_dropped_table_comes_back_with_its_indexes(db: Database) -> None:
    digest = fill(db)
    db.sql("DROP TABLE `d/t`")
    with pytest.raises(PathNotFound):
        db.describe("/d/t")
    assert [(row[0], row[1]) for row in db.sql("SHOW BIN").rows()] == [("/d/t", "table")]
    db.sql("UNDROP TABLE `d/t`")
    assert db.sql("SHOW BIN").rows() == []
    assert db.describe("/d/t")["digest"] == digest
    assert db.sql("SELECT k FROM `d/t` VIEW i WHERE v = 'v3'").rows() == [(3,)]
    db.table("d/t").upsert([{"k": 9, "v": "new"}])
    assert db.maintain().followed == ["/d/t/late"]
    assert db.check("/d/t").problems == []


def test_another_process_sees_it_come_back(connect: Callable[..., Database]) -> None:
    db, other = connect("shared"), connect("shared")
    fill(db)
    assert other.sql("SELECT count(*) FROM `d/t`").rows() == [(5,)]
    db.sql("DROP TABLE `d/t`")
    with pytest.raises(PathNotFound):
        other.sql("SELECT k FROM `d/t`").rows()
    db.sql("UNDROP TABLE `d/t`")
    assert other.sql("SELECT k FROM `d/t` VIEW i WHERE v = 'v1'").rows() == [(1,)]


def test_its_past_comes_back_with_it(db: Database) -> None:
    fill(db)
    step = db.step
    db.sql("DELETE FROM `d/t` WHERE k > 1; DROP TABLE `d/t`; UNDROP TABLE `d/t` AS u")
    assert db.sql(f"SELECT count(*) FROM u VERSION AS OF {step}").rows() == [(5,)]
    assert [event.statement for event in db.table("u").history()] == ["DELETE", "CREATE TABLE"]
    db.sql(f"RESTORE TABLE u TO VERSION AS OF {step}")
    assert db.describe("/u")["rows"] == 5
    assert db.check("/u").ok


def test_of_two_that_bring_it_back_one_does(connect: Callable[..., Database]) -> None:
    dbs = [connect("shared"), connect("shared")]
    fill(dbs[0])
    told: list[str] = []

    def undrop(db: Database) -> None:
        try:
            db.sql("UNDROP TABLE `d/t`")
            told.append("done")
        except StrandlineError as error:
            told.append(error.code)

    for _ in range(4):
        dbs[0].sql("DROP TABLE `d/t`")
        threads = [threading.Thread(target=undrop, args=(db,)) for db in dbs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(told) == ["PATH_NOT_FOUND"] * 4 + ["done"] * 4
    assert dbs[1].check("/d/t").ok


def test_it_can_come_back_under_another_name(db: Database) -> None:
    digest = fill(db)
    db.sql("DROP TABLE `d/t`; CREATE TABLE `d/t` (k Int32, PRIMARY KEY (k))")
    with pytest.raises(AlreadyExists) as caught:
        db.sql("UNDROP TABLE `d/t`")
    assert "UNDROP TABLE `d/t` AS other" in caught.value.hint
    db.sql("UNDROP TABLE `d/t` AS `e/f/u`")
    assert db.describe("/e/f/u")["digest"] == digest
    assert db.describe("/d/t")["rows"] == 0


def test_the_last_one_dropped_comes_back_first(db: Database) -> None:
    fill(db)
    db.sql("DROP TABLE `d/t`; CREATE TABLE `d/t` (k Int32, PRIMARY KEY (k)); DROP TABLE `d/t`")
    db.sql("UNDROP TABLE `d/t` AS one; UNDROP TABLE `d/t` AS two")
    assert (db.describe("/one")["rows"], db.describe("/two")["rows"]) == (0, 5)


@pytest.mark.parametrize("text", ["DROP TABLE `d/t` PURGE", "DROP TABLE IF EXISTS `d/t` PURGE"])
def test_purge_leaves_nothing(connect: Callable[..., Database], text: str) -> None:
    db = connect(settings=SETTINGS)
    fill(db)
    db.sql(text)
    assert db.sql("SHOW BIN").rows() == []
    db.collect()
    assert data_files(db) == []


def test_space_is_freed_when_the_time_is_over(connect: Callable[..., Database]) -> None:
    clock = ManualClock()
    db = connect(settings=SETTINGS, clock=clock)
    fill(db)
    db.sql("DROP TABLE `d/t`")
    files = data_files(db)
    db.collect()
    assert files and data_files(db) == files
    clock.sleep(3601)
    db.collect()
    assert data_files(db) == []
    with pytest.raises(PathNotFound, match="in the bin"):
        db.sql("UNDROP TABLE `d/t`")


def test_without_a_bin_a_table_is_gone_at_once(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(bin_seconds=0, history_seconds=0, grace_seconds=0, inline_rows=0))
    db.sql("ALTER WAREHOUSE SET (BIN_SECONDS = 0)")
    fill(db)
    db.sql("DROP TABLE `d/t`")
    assert db.sql("SHOW BIN").rows() == []


def test_streams_end_and_the_next_backup_is_a_full_one(db: Database) -> None:
    fill(db, "t")
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'KEYS_ONLY', FORMAT = 'JSON')")
    backups = db.create_collection("c", tables=["t"], incremental=True)
    backups.backup()
    db.sql("DROP TABLE t; UNDROP TABLE t")
    assert [entry.type for entry in db.ls("/t", depth=None) if entry.type == "stream"] == []
    with pytest.raises(PreconditionFailed, match="full"):
        backups.backup(incremental=True)
    backups.backup()
    db.table("t").upsert([{"k": 100, "v": "x"}])
    backups.backup(incremental=True)


def test_what_cannot_be_brought_back(db: Database) -> None:
    fill(db, "t")
    db.create_collection("c", tables=["t"])
    db.sql("DROP BACKUP COLLECTION c; DROP TABLE t")
    for text, error, message in (
        ("UNDROP TABLE x", PathNotFound, "no table /x in the bin"),
        ("UNDROP TABLE `/.backups/collections/c`", InvalidArgument, "backups"),
        ("UNDROP TABLE t AS `/.backups/u`", InvalidArgument, "backups"),
    ):
        with pytest.raises(error, match=message) as caught:
            db.sql(text)
        assert caught.value.hint
    assert len(db.sql("SHOW BIN").rows()) == 2
