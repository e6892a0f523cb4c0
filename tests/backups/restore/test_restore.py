"""RESTORE: any backup of a chain, some tables, other names; all or nothing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.api.database import Database
from strandline.backups.chain import backup_at
from strandline.backups.record import BackupRecord, backup_records, require_collection
from strandline.backups.restore.dry_run import trial_request
from strandline.backups.restore.restore_plan import Old, RestoreRequest
from strandline.catalog import operations, paths
from strandline.errors import (
    AlreadyExists,
    Corrupted,
    PathNotFound,
    TimedOut,
    UnderOperation,
)
from strandline.model import Digest
from strandline.settings import Limits
from strandline.storage.files import Source
from tests.backups.restore.story import (
    INDEXES,
    TABLES,
    TOLD_AT,
    Story,
    Told,
    open_at,
    started,
    state,
    versions,
)
from tests.catalogs import ManualClock
from tests.effort import EVERY
from tests.engines import Shuffled, parts_of
from tests.quick_files import QuickFiles


def agree(db: Database, prefix: str = "") -> bool:
    return all(
        i["version"]
        == db.describe(f"{prefix}{t}/{i['name']}")["version"]
        == db.describe(f"{prefix}{t}/{i['name']}/indexImplTable")["version"]
        for t in TABLES
        for i in db.describe(prefix + t)["indexes"]
    )


OPTIONS = ["", " WITH (MODE = 'copy', VERIFY = 'data')", " WITH (MODE = 'copy')", " WITH (VERIFY = 'data')"]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS if EVERY else OPTIONS[:2])
def test_every_backup_of_the_chain_comes_back_as_it_was(told: tuple[Database, Story], options: str) -> None:
    db, story = told
    for number, backup in enumerate(story.backups):
        db.sql(f"RESTORE c AT '{backup}' INTO 'r{number}'{options}")
        assert state(db, f"/r{number}") == story.states[backup]
        assert agree(db, f"/r{number}")
        for table in TABLES:
            assert db.check(f"/r{number}{table}").ok


def test_what_comes_back_has_the_versions_that_the_backup_captured(
    on_sqlite: tuple[Database, Story],
) -> None:
    """A reader that compares it with the backup finds the versions of that time."""
    db, story = on_sqlite
    for number, backup in enumerate(story.backups):
        db.sql(f"RESTORE c AT '{backup}' INTO 'r{number}'")
        assert versions(db, f"/r{number}") == story.versions[backup]
    assert len({tuple(found.values()) for found in story.versions.values()}) == len(story.backups)


def test_what_takes_a_place_has_the_next_version_if_the_recorded_one_is_not_greater() -> None:
    old = Old("/.replaced/now", {"/t": 4})
    assert [old.version("/t", recorded) for recorded in (1, 4, 5, 9)] == [5, 5, 5, 9]
    assert [old.version("/u", recorded) for recorded in (1, 2)] == [1, 2]
    assert (old.place("/t"), old.place("/u")) == ("/.replaced/now/t", "/u")


def test_at_a_time(told: tuple[Database, Story]) -> None:
    db, story = told
    with pytest.raises(PathNotFound):
        db.sql("RESTORE c AT TIMESTAMP '2001-01-01T00:00:00Z' INTO 'r'")
    db.sql("RESTORE c AT TIMESTAMP '2999-01-01T00:00:00Z' INTO 'r'")
    assert state(db, "/r") == story.states[story.backups[-1]]
    with db._runtime.catalog.read() as conn:
        collection = require_collection(conn, "c")
        (taken,) = {record.time for record in backup_records(conn, collection)}
        assert backup_at(conn, collection, time=taken) == story.backups[-1]
        with pytest.raises(PathNotFound):
            backup_at(conn, collection, time=taken - 0.5)


def test_what_a_backup_does_not_hold_is_not_read_from_it(on_sqlite: tuple[Database, Story]) -> None:
    db, _ = on_sqlite
    for name, hint in (("ordes", "orders"), ("zzzzzzzz", "It holds /dir/items, /orders.")):
        with pytest.raises(PathNotFound, match=f"/{name} is not in the backup") as refused:
            db.sql(f"SELECT * FROM {name} IN BACKUP c").rows()
        assert hint in refused.value.hint


def test_explain_changes_nothing_and_says_what_is_in_the_way(told: tuple[Database, Story]) -> None:
    db, story = told
    step = db.step
    lines = db.sql("EXPLAIN RESTORE c").rows()
    assert [name for what, name, _ in lines if what == "apply"] == story.backups
    assert {name for what, name, _ in lines if what == "in the way"} == set(TABLES)
    assert {name for what, name, _ in lines if what == "index"} == set(INDEXES)
    assert db.step == step


@pytest.mark.parametrize(
    "restore", ["RESTORE c INTO `orders`", "RESTORE c TABLE `dir/items` AS `orders/b/c`"]
)
def test_nothing_is_restored_below_a_table(on_sqlite: tuple[Database, Story], restore: str) -> None:
    db, _ = on_sqlite
    with pytest.raises(AlreadyExists, match=r"^/orders is a table, so nothing can be restored below it"):
        db.sql(restore)
    in_the_way = [
        (name, details) for what, name, details in db.sql(f"EXPLAIN {restore}").rows() if what == "in the way"
    ]
    assert {name for name, _ in in_the_way} == {"/orders"}
    assert all("a table in state ready, so that /orders/" in details for _, details in in_the_way)


def test_a_trial_says_what_it_has_found_and_gives_nothing_back(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    before = (db.ls("/"), db.ls("/.backups"))
    limits = Limits(bytes_per_second=9.0, copies=2)
    request = trial_request("c", story.backups[1], limits)
    assert (request.at, request.verify, request.trial, request.limits) == (
        story.backups[1],
        True,
        True,
        limits,
    )
    ended = db.operation(db._operations.run("try restore", request))
    rows = sum(story.states[story.backups[1]][table][0] for table in TABLES)
    assert ended.result is not None
    found = {name: ended.result[name] for name in ("backup", "tables", "rows", "rebuilt_indexes", "verified")}
    assert found == {
        "backup": story.backups[1],
        "tables": [],
        "rows": rows,
        "rebuilt_indexes": [],
        "verified": "data",
    }
    assert ended.result["bytes_verified"] >= ended.created
    assert (db.ls("/"), db.ls("/.backups")) == before


def test_while_it_runs_the_targets_are_closed(anywhere: Told) -> None:
    db, other = (open_at(anywhere.folder, anywhere.url) for _ in range(2))
    story = anywhere.story
    engine, operation = started(other, RestoreRequest(collection="c", into="r"))
    assert db.describe("/r/orders")["state"] == "incoming restore"
    assert db.describe("/.backups/collections/c")["state"] == "outgoing restore"
    for statement in (
        "SELECT * FROM `r/orders`",
        "UPSERT INTO `r/orders` (id) VALUES (1)",
        "ALTER TABLE `r/orders` ADD COLUMN x Int32",
        "DROP TABLE `r/orders`",
        "BACKUP c",
        "DROP BACKUP COLLECTION c",
    ):
        with pytest.raises(UnderOperation, match=operation):
            db.sql(statement).rows()
    with pytest.raises(UnderOperation):
        engine.start("restore", RestoreRequest(collection="c", into="r2"))
    assert engine.run(operation).state == "done"
    assert state(db, "/r") == story.states[story.backups[-1]]
    other.close()
    db.close()


def test_a_cancelled_restore_leaves_nothing(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    _, files = db.collect(), sorted(db._runtime.files.names("data"))
    before = db.ls("/")
    engine, operation = started(db, RestoreRequest(collection="c", into="r", copy=True))
    for _ in range(5):
        engine.step(operation)
    engine.cancel(operation)
    assert engine.run(operation).state == "cancelled"
    assert db.ls("/") == before
    with pytest.raises(PathNotFound):
        db.describe("/r")
    db.collect()
    assert sorted(db._runtime.files.names("data")) == files
    db.sql("RESTORE c INTO 'r'")
    assert state(db, "/r") == story.states[story.backups[-1]]


def test_a_restore_without_any_time_leaves_nothing(on_sqlite: tuple[Database, Story]) -> None:
    db, _ = on_sqlite
    engine, operation = started(db, RestoreRequest(collection="c", into="r", deadline_seconds=1e-9))
    ended = engine.run(operation)
    assert ended.state == "failed"
    assert isinstance(ended.failure(), TimedOut)
    with pytest.raises(PathNotFound):
        db.describe("/r")


def test_a_shard_of_a_later_increment_is_refused(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    engine, operation = started(db, RestoreRequest(collection="c", into="r"))
    early = next(p for p in parts_of(engine, operation) if p.stage == 2)
    with db._runtime.catalog.read() as conn:
        whole = operations.get(conn, operation)
    assert engine.transitions.advance(whole, early)
    assert next(p for p in parts_of(engine, operation) if p.id == early.id) == early
    stages = []
    while engine.step(operation):
        stages.append([p.stage for p in parts_of(engine, operation) if p.state == "done"])
    for done in stages:
        latest = max(done)
        expected = [p.stage for p in parts_of(engine, operation) if p.stage < latest]
        assert sorted(s for s in done if s < latest) == sorted(expected), (
            "an increment began before the one before it was whole"
        )
    assert state(db, "/r") == story.states[story.backups[-1]]


def test_late_and_duplicate_reports_are_ignored(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    engine, operation = started(db, RestoreRequest(collection="c", into="r"))
    first = parts_of(engine, operation)[0]
    with db._runtime.catalog.read() as conn:
        whole = operations.get(conn, operation)
    assert engine.transitions.advance(whole, first)
    done = parts_of(engine, operation)
    assert engine.transitions.advance(whole, first), "the same report again"
    assert parts_of(engine, operation) == done
    engine.run(operation)
    assert state(db, "/r") == story.states[story.backups[-1]]


@pytest.mark.slow
def test_shuffled_shards_give_one_result(on_sqlite: tuple[Database, Story]) -> None:
    """All orders, with fewer shards: tests/backups/test_orders.py."""
    db, story = on_sqlite
    for seed in range(60 if EVERY else 10):
        engine, operation = started(db, RestoreRequest(collection="c", into=f"s{seed}"))
        engine.transitions.scheduler = Shuffled(random.Random(seed))
        assert engine.run(operation).state == "done"
        assert state(db, f"/s{seed}") == story.states[story.backups[-1]]


class Meeting(QuickFiles):
    """A copy waits until ``number`` copies run at the same time, and a little longer for one too many."""

    def __init__(self, root: Path, number: int) -> None:
        super().__init__(root)
        self.number, self.now, self.most = number, 0, 0
        self._met, self._lock = threading.Event(), threading.Lock()

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            is_last = self.now == self.number
        if is_last:
            time.sleep(0.2)
            self._met.set()
        self._met.wait(300)
        self._met.set()  # If it waited in vain, the number of copies shows it.
        try:
            return super().copy(source, source_name, name, checksum)
        finally:
            with self._lock:
                self.now -= 1


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("who", ["who asks", "who takes over"])
def test_as_many_shards_at_a_time_as_there_are_workers(
    in_files: Told, copy_of: Callable[[Told], Told], number: int, who: str
) -> None:
    folder, story = copy_of(in_files).folder, in_files.story
    clock, files = ManualClock(TOLD_AT), Meeting(folder, number)
    with (
        open_at(folder, clock=clock) as other,
        open_at(folder, clock=clock, files=files, workers=number, parts_together=1) as db,
    ):
        if who == "who asks":
            db.sql("RESTORE c INTO 'r' WITH (MODE = 'copy')")
        else:
            _, operation = started(other, RestoreRequest(collection="c", into="r", copy=True))
            clock.sleep(3600)
            assert db.wait(operation).state == "done"
        assert files.most == number
        assert state(db, "/r") == story.states[story.backups[-1]]


def test_progress_only_grows(on_sqlite: tuple[Database, Story]) -> None:
    db, _ = on_sqlite
    engine, operation = started(db, RestoreRequest(collection="c", into="r"))
    seen = []
    while engine.step(operation):
        info = db.operation(operation)
        seen.append((info.percent, info.progress["increment"], info.progress["bytes"]))
    assert seen == sorted(seen)
    assert seen[0][0] < 50 < seen[-1][0]
    info = db.operation(operation)
    assert info.percent == 100.0
    assert info.progress["bytes"] == info.progress["bytes_total"]
    assert info.progress["increment"] == info.progress["increments"] == 3


def test_a_broken_chain_is_refused_before_anything_is_made(on_sqlite: tuple[Database, Story]) -> None:
    db, story = on_sqlite
    with db._runtime.catalog.write() as tx:
        middle = paths.require(tx.conn, f"/.backups/collections/c/{story.backups[2]}")
        record = middle.record(BackupRecord)
        orders = record.tables["/orders"]
        broken = replace(orders, slice=replace(orders.slice, before=Digest(orders.slice.before.rows)))
        paths.set_body(tx, middle.id, replace(record, tables={**record.tables, "/orders": broken}))
    with pytest.raises(Corrupted):
        db.sql("RESTORE c INTO 'r'")
    assert [p.kind for p in db.verify("c")] == ["broken_chain", "broken_chain"]
    db.sql(f"RESTORE c AT '{story.backups[1]}' INTO 'r'")
    assert state(db, "/r") == story.states[story.backups[1]]


def test_operations_are_listed_and_forgotten(on_sqlite: tuple[Database, Story]) -> None:
    db, _ = on_sqlite
    operation = db.sql("RESTORE c INTO 'r'").operation_id
    assert operation is not None
    info = db.operation(operation)
    assert (info.kind, info.state, info.percent) == ("restore", "done", 100.0)
    assert info.result is not None
    assert info.result["rebuilt_indexes"] == []
    db.forget(operation)
    from strandline.errors import OperationNotFound

    with pytest.raises(OperationNotFound):
        db.forget(operation)
    with pytest.raises(OperationNotFound):
        db.operation(operation)
