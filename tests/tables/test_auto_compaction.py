"""A process that writes keeps its tables fast to read, without a call of maintain."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Database, Settings
from strandline.storage.compaction_policy import FAN_IN
from tests.catalogs import ManualClock
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark, assert_sound, content, data_files, rows

TABLE = "CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"
EAGER = Settings(merge_segments=16, inline_rows=100, compaction_share=0.5)
KEYS = 500


@pytest.fixture
def opened(tmp_path: Path, catalog_url: str | None) -> Callable[..., Database]:
    def open_(settings: Settings = EAGER, **options: Any) -> Database:
        return strandline.connect(
            tmp_path,
            catalog=catalog_url,
            files=QuickFiles(tmp_path),
            spark=NoSpark(),  # type: ignore[arg-type]
            settings=settings,
            **options,
        )

    return open_


def write(db: Database, first: int, last: int) -> None:
    for number in range(first, last):
        db.table("t").upsert([{"k": k % KEYS, "v": f"v{number}"} for k in (number, 7 * number)])


def expected(commits: int) -> list[tuple[int, str]]:
    found: dict[int, str] = {}
    for number in range(commits):
        found |= {k % KEYS: f"v{number}" for k in (number, 7 * number)}
    return sorted(found.items())


def test_two_thousand_commits_leave_few_segments_and_are_written_a_few_times(
    opened: Callable[..., Database],
) -> None:
    commits = 2000
    with opened() as db:
        db.sql(TABLE)
        write(db, 0, 100)
        pinned, then = db.pin("then"), content(db, "/t")
        db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'UPDATES', FORMAT = 'JSON')")
        write(db, 100, commits)
    with opened(replace(EAGER, compaction_share=0.0)) as db:
        levels = 1 + int(math.log(2 * commits, FAN_IN))
        # The index has an erased and a new entry for each changed row.
        for path, changed in (("/t", 2), ("/t/by_v/indexImplTable", 4)):
            found = db.describe(path)
            assert found["segments"] <= EAGER.merge_segments + (FAN_IN - 1) * levels + 1
            assert found["merged_bytes"] > 0
            # Each change is written by its commit, once per level, and by compactions. A compaction writes at
            # most all keys, after a thousand changes.
            per_compaction = 1 + KEYS / 1000
            assert 1 < found["write_amplification"] <= 1 + levels + per_compaction, changed
        kinds = [c.statement for c in db.table("t").history()]
        assert "COMPACTION" in kinds
        assert content(db, "/t") == expected(commits)
        assert [tuple(r) for r in db.sql(f"SELECT k, v FROM t VERSION AS OF {pinned} ORDER BY k")] == then
        feed = list(db.stream("/t/f").records())
        assert len(feed) == sum(len({k % KEYS for k in (n, 7 * n)}) for n in range(100, commits))
        assert_sound(db, "/t")
        written = db.status().writes
        assert written.merged_bytes >= found["merged_bytes"]
        assert f'strandline_table_merged_bytes{{table="/t"}} {float(written.merged_bytes)}' in db.metrics()


def test_two_processes_that_write_to_one_table(opened: Callable[..., Database]) -> None:
    with opened() as db, opened() as other:
        db.sql(TABLE)
        threads = [
            threading.Thread(target=write, args=(each, first, first + 200))
            for each, first in ((db, 0), (other, 1000))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with opened() as db:
        assert_sound(db, "/t")
        assert len(content(db, "/t")) == len(
            {k % KEYS for n in (*range(200), *range(1000, 1200)) for k in (n, 7 * n)}
        )
        assert db.describe("/t")["segments"] < 100


def test_a_commit_does_not_wait_for_upkeep(opened: Callable[..., Database]) -> None:
    with opened() as db:
        db.sql(TABLE)
        with db._runtime.upkeep.paused():
            write(db, 0, 40)
            assert db.describe("/t")["segments"] == 40
    with opened() as db:
        assert db.describe("/t")["segments"] < 40, "what was due is done at the end"
        assert content(db, "/t") == expected(40)


def test_without_a_share_only_maintain_merges(opened: Callable[..., Database]) -> None:
    with opened(replace(EAGER, compaction_share=0.0)) as db:
        db.sql(TABLE)
        write(db, 0, 40)
    with opened(replace(EAGER, compaction_share=0.0)) as db:
        assert db.describe("/t")["segments"] == 40
        assert db.describe("/t")["merged_bytes"] == 0
        assert db.maintain().merged == ["/t", "/t/by_v/indexImplTable"]


@pytest.mark.parametrize("shards", ["", " WITH (PARTITION_AT_KEYS = (1000, 2500))"])
def test_a_table_larger_than_memory_is_compacted_piece_by_piece(
    opened: Callable[..., Database], shards: str
) -> None:
    """The limits of this process are far below the size of the table, and Spark is not there."""
    small = Settings(bulk_rows=1500, inline_rows=0, compaction_share=1.0)
    with opened(small) as db:
        db.sql(TABLE.removesuffix(")") + ")" + shards)
        for first in range(0, 4000, 1000):
            db.table("t").upsert([{"k": k, "v": f"v{k}"} for k in range(first, first + 1000)])
        before = db.describe("/t")
        db.table("t").upsert([{"k": k, "v": "new"} for k in range(0, 4000, 3)])
        after = db.describe("/t")
        assert before["segments"] == 4
        assert after["segments"] == (3 if shards else 1)
        assert content(db, "/t") == [(k, f"v{k}" if k % 3 else "new") for k in range(4000)]
        assert_sound(db, "/t")


def test_files_that_compactions_replaced_are_deleted(opened: Callable[..., Database]) -> None:
    clock = ManualClock()
    settings = Settings(inline_rows=0, compaction_share=1.0, history_seconds=3600.0, grace_seconds=1.0)
    with opened(settings, clock=clock) as db:
        db.sql(TABLE)
        for number in range(30):
            clock.sleep(1000)
            db.table("t").upsert([{"k": k, "v": f"v{number}"} for k in range(1100)])
        assert len(data_files(db)) < 30, "no call of maintain has deleted the files of old states"
        assert rows(db, "SELECT count(*) FROM t") == [(1100,)]
        assert_sound(db, "/t")
