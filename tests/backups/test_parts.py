"""What operations report about their parts: table or index, shard, number of bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from strandline import Database
from strandline.api.progress import OperationInfo
from strandline.backups.collection import CollectionRecord
from strandline.backups.record import require_collection
from strandline.backups.restore.restore_parts import RestoreProgress, RestoreRun, Shard, is_late, out_of_time
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.backups.restore.restore_verify import CheckedShard
from strandline.catalog import operations
from strandline.catalog.part_progress import ShardInfo
from strandline.operations.kind import read_part
from strandline.records import from_text
from tests.backups.reading import CLUSTER, backups, open_at
from tests.backups.reading import last as last_record
from tests.catalogs import ManualClock

Told = tuple[str, int, int | None, str | None, int | None]
COLLECTION = "/.backups/collections/c"
SHARD_BYTES = 2_000
TABLE = (
    "CREATE TABLE t (k Int64, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v), "
    "INDEX by_n GLOBAL ASYNC ON (n)) WITH (PARTITION_AT_KEYS = ((300), (600)))"
)


def fill(db: Database, value: str) -> None:
    """Insert rows in three segments of the table and of its index, one for each shard."""
    for first in (0, 300, 600):
        rows = (f"({first + i}, '{value}{first + i:03}', {i})" for i in range(3))
        db.sql(f"UPSERT INTO t (k, v, n) VALUES {', '.join(rows)}")


def last(db: Database, kind: str) -> OperationInfo:
    return db.operation([o.id for o in db.operations() if o.kind == kind][-1])


def told(operation: OperationInfo) -> list[Told]:
    return [(p.kind, p.stage, p.increment, p.path, p.shard) for p in operation.shards]


def moved(parts: list[ShardInfo]) -> int:
    return sum(part.bytes or 0 for part in parts)


def shards(kind: str, path: str, number: int, stage: int = 0, first: int = 0) -> list[Told]:
    return [(kind, stage, None, path, shard) for shard in range(first, first + number)]


@pytest.mark.slow
def test_each_part_says_what_it_is_about(tmp_path: Path) -> None:
    """For an increment, its upload to a repository, a restore from there, and a compaction of the chain."""
    settings = {"inline_rows": 0, "shard_bytes": SHARD_BYTES, "shard_seconds": 100.0, "parts_together": 1}
    clock = ManualClock()
    with open_at(tmp_path / "w", clock=clock, settings=settings) as db:
        db.sql(TABLE)
        fill(db, "a")
        db.sql(
            "CREATE TABLE u (k Int64, PRIMARY KEY (k)); CREATE BACKUP COLLECTION c (TABLE t, TABLE u) "
            f"WITH (STORAGE = '{tmp_path}/repository', INCREMENTAL_BACKUP_ENABLED = 'true'); BACKUP c"
        )
        fill(db, "b")
        db.sql("BACKUP c INCREMENTAL")
        fill(db, "c")
        db.sql("CREATE TABLE w (k Int64, PRIMARY KEY (k)); UPSERT INTO w (k) VALUES (1), (2)")
        db.sql("ALTER BACKUP COLLECTION c ADD TABLE w; BACKUP c INCREMENTAL")
        check_increment(db)
        check_sending(db)
        check_copying(db, tmp_path / "copy")
        check_explained(db)
        check_restore(db, clock)
        check_folding(db)


def test_nothing_is_cut_of_what_was_last_changed_at_the_very_step_of_the_backup(tmp_path: Path) -> None:
    with open_at(tmp_path / "w") as db:
        db.sql(TABLE)
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}")
        fill(db, "a")
        db.sql("BACKUP c")
        assert db.describe("/t")["step"] == last_record(db).step
        db.sql("BACKUP c INCREMENTAL")
        assert {part.kind for part in last(db, "incremental backup").shards} == {"unchanged"}


def check_increment(db: Database) -> None:
    found = last(db, "incremental backup")
    stream = backups(db)[1].replace("_incremental", "_continuousBackupImpl")
    assert told(found) == [
        ("slice", 0, None, "/t", 0),
        *shards("slice shard", "/t", 2, first=1),
        ("slice", 0, None, "/t/by_v", 0),
        *shards("slice shard", "/t/by_v", 1, first=1),
        ("slice", 0, None, "/w", 0),
        ("unchanged", 0, None, None, None),
        ("drop stream", 0, None, f"/t/{stream}", None),
        ("drop stream", 0, None, f"/t/by_v/indexImplTable/{stream}", None),
    ]
    table, index = ([p for p in found.shards if p.path == path] for path in ("/t", "/t/by_v"))
    assert len({p.bytes for p in table}) == len({p.bytes for p in index}) == 1, (
        "nobody knows how they are spread"
    )
    assert 2 * moved(index) > moved(table) > moved(index) > 3_000
    assert 2 * moved(table) < db.describe("/t")["bytes"], "only what has changed"
    assert [p.bytes for p in found.shards if p.path == "/w"] == [db.describe("/w")["bytes"]], (
        "all of it is new"
    )
    assert found.result is not None
    assert found.progress["bytes"] == found.result["bytes"]
    backup = f"{COLLECTION}/{found.result['backup']}"
    assert [db.describe(f"{backup}/{name}")["rows"] for name in ("t", "u", "w")] == [9, 0, 2]


def check_sending(db: Database) -> None:
    found = last(db, "send backup")
    backup = f"{COLLECTION}/{backups(db)[-1]}"
    assert told(found) == [
        ("repository", 0, None, None, None),
        *[("objects", 1, None, f"{backup}/t", None)] * 3,
        ("objects", 1, None, f"{backup}/__ydb_backup_meta/indexes/t/by_v", None),
        ("objects", 1, None, f"{backup}/w", None),
        ("manifest", 2, None, backup, None),
    ]
    assert found.result is not None
    assert moved(found.shards) == found.progress["bytes"] == found.progress["bytes_total"]
    assert found.result["bytes"] == found.progress["bytes"] > 6_000


def check_copying(db: Database, folder: Path) -> None:
    """Backups are copied after the backups they build on."""
    found = db.operation(db.sql(f"COPY BACKUP '{backups(db)[-1]}' FROM c TO '{folder}'").operation_id or "")
    assert [each for each in told(found) if each[0] == "manifest"] == [
        ("manifest", stage, None, f"{COLLECTION}/{name}", None)
        for stage, name in enumerate(backups(db), start=2)
    ]
    assert moved(found.shards) == found.progress["bytes"] == found.progress["bytes_total"] > 25_000


def check_explained(db: Database) -> None:
    """Data in a repository has to be copied, also if the request does not ask for it."""
    full, one, two = backups(db)
    lines = [tuple(line) for line in db.sql("EXPLAIN RESTORE c").rows()]
    first = int(lines[0][2].rpartition(" ")[2])
    # Three commits, and the ends of the backup and of its upload; then those of the new table as well.
    steps = [first, first + 5, first + 13]
    in_table, in_index, in_new = (int(lines[place][2].split()[-2]) for place in (3, 4, 7))
    assert in_table > in_index > 6_000
    assert lines == [
        ("apply", full, f"full backup, up to step {steps[0]}"),
        ("apply", one, f"increment 1 of 2, up to step {steps[1]}"),
        ("apply", two, f"increment 2 of 2, up to step {steps[2]}"),
        ("table", "/t", f"9 rows, {-(-in_table // SHARD_BYTES)} shards, 3 slices, {in_table} bytes"),
        ("index", "/t/by_v", f"9 entries, {in_index} bytes"),
        ("rebuild index", "/t/by_n", "GLOBAL ASYNC, not in the backup"),
        ("table", "/u", "0 rows, 1 shards, 3 slices, 0 bytes"),
        ("table", "/w", f"2 rows, 1 shards, 1 slices, {in_new} bytes"),
        ("move", f"{in_table + in_index + in_new} bytes", "copied and checked"),
        *(("in the way", path, "a table in state ready") for path in ("/t", "/u", "/w")),
    ]


def check_restore(db: Database, clock: ManualClock) -> None:
    engine, before = db._operations.engine, db.step
    started = engine.start("restore", RestoreRequest(collection="c", into="r", deadline_seconds=1_000.0))
    assert db.step == before, "nothing has happened yet"
    with db._runtime.catalog.read() as conn:
        whole, planned = operations.get(conn, started), operations.parts(conn, started, "shard")
    assert whole.progress is not None
    progress, until = from_text(RestoreProgress, whole.progress, "the progress"), whole.created + 1_000.0
    assert (progress.increment, progress.bytes, progress.increments) == (0, 0, 2)
    assert {from_text(Shard, p.body, "a shard").until for p in planned} == {until}
    said: list[str] = []
    limits: dict[str, Callable[[], float | None]] = {}
    while engine.step(started):
        with db._runtime.catalog.read() as conn:
            operation = operations.get(conn, started)
            run, waiting = engine.transitions.run_of(operation), operations.open_parts(conn, started, 1)
            said.append(out_of_time(conn, run).message.partition(": ")[2])
        for part in waiting:
            handler = engine.transitions.handler_of(operation, part)
            limits[part.kind] = partial(handler.time_limit, run, read_part(part, handler.record))
    assert {kind: limit() for kind, limit in limits.items()} == {
        "shard": 100.0,
        "rebuild": 100.0,
        "verify": None,
        "verify shard": 100.0,
    }
    check_time(clock, run, limits["rebuild"])
    full, one, two = (f"{n} of 3 backups were restored, and " for n in range(3))
    assert list(dict.fromkeys(said)) == [
        *(f"{full}{n} of 6 shards of the full backup" for n in range(1, 6)),
        *(f"{one}{n} of 6 shards of increment 1" for n in range(6)),
        *(f"{two}{n} of 5 shards of increment 2" for n in range(5)),
        "3 of 3 backups were restored, and 0 of 1 later parts",
        *(f"3 of 3 backups were restored, and {n} of 3 later parts" for n in range(3)),
        *(f"3 of 3 backups were restored, and {n} of 11 later parts" for n in range(11)),
        "3 of 3 backups were restored",
    ]
    with db._runtime.catalog.read() as conn:
        checked = operations.parts(conn, started, "verify shard")
    assert {from_text(CheckedShard, p.body, "a shard").until for p in checked} == {until}
    assert db.step == before + 1, "all of it at once"
    found = db.operation(started)
    assert told(found) == [
        *[("shard", 0, 0, "/r/t", n) for n in range(3)],
        *[("shard", 0, 0, "/r/t/by_v", n) for n in range(3)],
        *[("shard", 1, 1, "/r/t", n) for n in range(3)],
        *[("shard", 1, 1, "/r/t/by_v", n) for n in range(3)],
        *[("shard", 2, 2, "/r/t", n) for n in range(3)],
        ("shard", 2, 2, "/r/w", 0),
        ("shard", 2, 2, "/r/t/by_v", 0),
        ("rebuild", 3, None, "/r/t/by_n", None),
        ("verify", 4, None, "/r/t", None),
        ("verify", 4, None, "/r/u", None),
        ("verify", 4, None, "/r/w", None),
        *shards("verify shard", "/r/t", 3, stage=5),
        *shards("verify shard", "/r/t/by_v", 3, stage=5, first=3),
        *shards("verify shard", "/r/t/by_n", 3, stage=5, first=6),
        *shards("verify shard", "/r/u", 1, stage=5),
        *shards("verify shard", "/r/w", 1, stage=5),
    ]
    assert progress.parts == len(found.shards)
    assert progress.bytes_total == moved(found.shards) == found.progress["bytes"]


def check_time(clock: ManualClock, run: RestoreRun, limit: Callable[[], float | None]) -> None:
    """The time limit of a part ends with the deadline of the restore."""
    until = run.operation.created + 1_000.0
    assert (is_late(run, until), is_late(run, until + 0.5)) == (False, True)
    found = []
    for seconds in (until - 70.0 - clock.now(), 69.5, 100.0):
        clock.sleep(seconds)
        found.append(limit())
    assert found == [70.0, 0.5, 0.0]


def check_folding(db: Database) -> None:
    _, swallowed, backup = (f"{COLLECTION}/{name}" for name in backups(db))
    before = db.step
    db.sql("COMPACT c INCREMENTS")
    assert db.step == before + 2, "the end of the merge, and that of the sweep"
    found = last(db, "merge increments")
    assert told(found) == [
        *shards("merge", "/t", 3),
        *shards("merge", "/t/by_v", 4),
        ("merged manifest", 1, None, backup, None),
    ]
    assert moved(found.shards) == found.progress["bytes"] == found.progress["bytes_total"] > 15_000
    assert told(last(db, "sweep repository")) == [
        ("outdated", 0, None, COLLECTION, None),
        ("manifest", 1, None, swallowed, None),
        ("sweep", 2, None, COLLECTION, None),
    ]
    with db._runtime.catalog.read() as conn:
        assert require_collection(conn, "c").record(CollectionRecord).leaving == (), "all of it has left"
    db.sql("COMPACT c")
    assert db.step == before + 3
    found = last(db, "compact backups")
    assert told(found) == [
        *shards("fold", "/t", 3),
        *shards("fold", "/t/by_v", 3),
        ("full manifest", 1, None, backup, None),
    ]
    assert moved(found.shards) == found.progress["bytes"] == found.progress["bytes_total"] > 15_000
    again = db.operation(db.sql("COMPACT c").operation_id or "")
    assert (again.progress["bytes"], again.progress["bytes_total"], again.shards) == (0, 0, [])
