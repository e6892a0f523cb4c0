"""A script that uses the whole public API. It passes mypy --strict, and ``test_public_api.py`` runs it."""

from __future__ import annotations

import os
import tempfile
import threading
from datetime import datetime, timedelta, timezone

from typing_extensions import assert_type

import strandline
import strandline.duckdb
from strandline import (
    Alarm,
    AlarmDelivery,
    Attempt,
    Attention,
    AuditEntry,
    BackupInfo,
    BackupReport,
    BackupTable,
    Batch,
    CheckReport,
    Collection,
    CollectionInfo,
    CollectionStatus,
    CommitEvent,
    CopyResult,
    DamagedObject,
    Database,
    Decision,
    DroppedCollection,
    Entry,
    Exported,
    FilePlan,
    FilePlanPart,
    Index,
    Keep,
    LastBackup,
    LastVerification,
    Loaded,
    NewToken,
    OpenBackup,
    Operation,
    OperationInfo,
    OperationStatus,
    Owner,
    PlannedTable,
    PlanStep,
    Problem,
    Protection,
    RemoteCollection,
    RemoteDatabase,
    RemoteResult,
    RemoteSchedule,
    RemoteTable,
    Report,
    RestorePlan,
    RestoreResult,
    Result,
    Scan,
    Schedule,
    ScheduleInfo,
    ScheduleRun,
    SegmentInfo,
    Settings,
    ShardInfo,
    StageInfo,
    Status,
    Stream,
    StreamLag,
    StreamStatus,
    Suggestion,
    Table,
    Thresholds,
    TokenInfo,
    VerifyReport,
    VersionEvent,
    WriteStatus,
    errors,
)


def open_warehouse(folder: str) -> Database:
    assert strandline.__version__
    return strandline.connect(folder, settings=Settings(workers=2), create=True)


def write_rows(db: Database) -> None:
    result = db.sql(
        """
        CREATE TABLE orders (id Uint64 NOT NULL, total Int64, PRIMARY KEY (id), INDEX by_total GLOBAL SYNC ON (total));
        CREATE TABLE customers (id Uint64 NOT NULL, name Utf8, PRIMARY KEY (id));
        ALTER TABLE orders ADD CHANGEFEED feed WITH (MODE = 'UPDATES', FORMAT = 'JSON')
        """
    )
    assert_type(result, Result)
    table = db.table("orders")
    assert_type(table, Table)
    assert_type(table.upsert([{"id": 1, "total": 10}, {"id": 2, "total": 20}]), "int | None")
    table.insert([{"id": 3, "total": 30}])
    table.replace([{"id": 3}])
    table.delete([3])
    assert table.get(1) == {"id": 1, "total": 10}
    with db.transaction() as transaction:
        assert_type(transaction, Database)
        db.sql("UPSERT INTO customers (id, name) VALUES (:id, :name)", {"id": 1, "name": "Ada"})
    made = db.create_table(
        "made",
        [{"id": 1, "v": "a"}],
        key=["id"],
        indexes=[Index("by_v", ["v"], cover=[], unique=True, asynchronous=False)],
        types={"id": "Uint64"},
        if_not_exists=True,
    )
    assert_type(made, Table)
    db.sql("DROP TABLE made")
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "orders.csv")
        exported = db.export(place, table="orders", where="id < 3", format="csv", at=db.step, overwrite=True)
        assert_type(exported, Exported)
        assert (exported.place, exported.format, exported.files, exported.rows) == (place, "csv", 1, 2)
        db.export(os.path.join(folder, "ids"), query="SELECT id FROM orders")
        loaded = db.load("made", [place], key=["id"], types={"id": "Uint64"}, mode="upsert", format="csv")
        assert_type(loaded, Loaded)
        assert (loaded.table, loaded.created, loaded.files, loaded.read, loaded.before) == (
            "/made",
            True,
            1,
            2,
            0,
        )
        assert loaded.step == db.step
    db.sql("DROP TABLE made")
    scan = table.scan(["id"], "total > :least", params={"least": 10}, view="by_total", at=db.step)
    assert_type(scan, Scan)
    assert scan.rows(10) == [(2,)]
    assert scan.columns == ("id",)
    for row in db.sql("SELECT id FROM orders ORDER BY id LIMIT 1"):
        assert row == (1,)
    assert table.describe()["rows"] == 2
    assert result.warnings == () and result.rows_changed is None and result.operation_id is None
    assert result.rows_inserted is None and result.rows_updated is None and result.rows_deleted is None


def follow_changes(db: Database) -> None:
    stream = db.stream("/orders/feed")
    assert_type(stream, Stream)
    for batch in stream.poll(timeout=0.0, max_commits=10):
        assert_type(batch, Batch)
        assert batch.records
        stream.commit(batch.step)
    assert stream.position == stream.head
    assert_type(stream.lag(), StreamLag)
    assert stream.lag(after=stream.position).rows == 0
    assert stream.records(after=stream.position) == []


def look_around(db: Database, folder: str) -> None:
    entries = db.ls("/", depth=None)
    assert_type(entries, list[Entry])
    assert ("orders", "table", "/orders") in entries
    assert db.describe("/orders")["type"] == "table"
    assert [found["path"] for found in db.overview("/") if found["type"] == "table"]
    assert db.busy() == {}
    events = db.versions("/orders")
    assert_type(events, list[VersionEvent])
    assert_type(db.table("/orders").history(5), list[CommitEvent])
    assert_type(db.table("/orders").segments(), list[SegmentInfo])
    file_plan = db.files("/orders", pack=os.path.join(folder, "packed"))
    assert_type(file_plan, FilePlan)
    parts: tuple[FilePlanPart, ...] = file_plan.parts
    assert sum(part.rows for part in parts) >= 2
    assert "SELECT" in strandline.duckdb.query(file_plan)
    assert "strandline" in db.metrics()
    status = db.status(backup_warning=26 * 3600)
    assert_type(status, Status)
    attention: tuple[Attention, ...] = status.attention
    suggestions: tuple[Suggestion, ...] = status.suggestions
    collections: tuple[CollectionStatus, ...] = status.collections
    operations: tuple[OperationStatus, ...] = status.operations
    streams: tuple[StreamStatus, ...] = status.streams
    writes: WriteStatus = status.writes
    amplification: float | None = writes.write_amplification
    assert amplification is None or amplification >= 1.0
    assert len(attention) + len(suggestions) + len(collections) + len(operations) + len(streams) > 0
    last: LastBackup | None = collections[0].last_full if collections else None
    verified: LastVerification | None = collections[0].verified if collections else None
    assert (last, verified) == (None, None)
    protections: list[Protection] = [collection.protection for collection in collections]
    assert all(protection.is_met is None for protection in protections)
    assert Thresholds()


def care(db: Database) -> None:
    checked = db.check("/orders")
    assert_type(checked, CheckReport)
    problems: list[Problem] = checked.problems
    assert checked.ok and not problems
    assert_type(db.maintain(), Report)
    assert_type(db.compact("/orders"), bool)
    assert_type(db.collect(), Report)
    assert db.pin("before") == db.pins()["before"]
    db.unpin("before")


def back_up(db: Database) -> Collection:
    c = db.create_collection(
        "nightly",
        tables=["orders", "customers"],
        storage="cluster",
        incremental=True,
        omit_indexes=False,
        retention=Keep(last=5, daily=7, weekly=4),
        minimum=2,
        max_chain=10,
        compact_chain=False,
        rpo="26h",
        proved_within="7d",
        check=True,
    )
    assert_type(c, Collection)
    assert [found.name for found in db.collections()] == [db.collection("nightly").name]
    assert_type(c.info(), CollectionInfo)
    full = c.backup(copies=2, max_bytes_per_second=1e9)
    assert_type(full, BackupInfo)
    assert_type(full.time, datetime)
    db.table("orders").upsert([{"id": 4, "total": 40}])
    operation = c.backup(incremental=True, wait=False)
    assert_type(operation, Operation[BackupInfo])
    increment = operation.wait(timeout=60, on_progress=lambda info: None)
    assert_type(increment, BackupInfo)
    assert c.backup(full_if_needed=True).full_because is None
    assert c.backups()[1] == c.backup_info(increment.name) == increment
    assert_type(operation.info(), OperationInfo)
    shards: list[ShardInfo] = operation.info().shards
    stages: list[StageInfo] = operation.info().stages
    attempts: list[tuple[Attempt, ...]] = [tuple(shard.errors) for shard in shards]
    owner: Owner | None = operation.info().owner
    assert stages and not any(attempts) and owner is None
    assert [found.id for found in db.operations(kind="incremental backup", limit=1)] != []
    assert db.wait(operation.id).is_over
    assert db.operation(operation.id).state == "done"
    assert db.resume() == []
    assert db.forget(operation.id) == 1
    return c


def restore(db: Database, c: Collection) -> None:
    first = c.backups()[0]
    plan = c.plan_restore(at=first.name, tables={"orders": "orders_before"})
    assert_type(plan, RestorePlan)
    tables: tuple[PlannedTable, ...] = plan.tables
    steps: tuple[PlanStep, ...] = plan.steps
    assert plan.is_possible and len(tables) == 1 and steps
    result = c.restore(at=first.step, tables={"orders": "orders_before"}, verify="data", mode="copy")
    assert_type(result, RestoreResult)
    later = datetime.now(timezone.utc) + timedelta(days=1)
    restored = c.restore(at=later, tables=["orders"], replace=True, changefeeds=True, deadline=60, wait=False)
    assert_type(restored, Operation[RestoreResult])
    assert restored.wait().tables == ("/orders",)
    backup = c.open(at=first.name)
    assert_type(backup, OpenBackup)
    table = backup.table("orders")
    assert_type(table, BackupTable)
    assert table.scan(["id"], where="id = 1").rows() == [(1,)]


def keep_backups(db: Database, c: Collection, folder: str) -> None:
    report = c.verify(level="checksums", again=True)
    assert_type(report, VerifyReport)
    reports: list[BackupReport] = report.backups
    damaged: list[DamagedObject] = report.repaired
    assert reports and not damaged and not db.verify("nightly", sample=50)
    assert not c.repair() and not db.repair("nightly") and db.verified("nightly")
    copied = c.copy_to(os.path.join(folder, "copy"), encryption=False)
    assert_type(copied, CopyResult)
    assert_type(c.copy_to(os.path.join(folder, "copy"), wait=False).wait(), CopyResult)
    attached = db.attach(os.path.join(folder, "copy"), name="copy", take_over=False, encryption=False)
    assert_type(attached, Collection)
    assert_type(attached.drop(purge=True), DroppedCollection)
    assert_type(c.merge_increments(), list[BackupInfo])
    assert c.compact().kind == "full"
    last = c.backups()[-1]
    c.pin(last.name)
    decisions = c.prune(keep=Keep(last=1, within="30d", monthly=1, yearly=1), dry_run=True)
    assert_type(decisions, list[Decision])
    assert all(decision.reasons for decision in decisions)
    c.unpin(last.name)
    assert_type(c.drop_backup(last.name, dry_run=True), list[Decision])
    try:
        db.cancel("nothing")
    except errors.OperationNotFound as error:
        assert (error.code, error.hint != "") == ("OPERATION_NOT_FOUND", True)


def schedule_backups(db: Database) -> None:
    made = db.create_schedule(
        "nights", "nightly", full="0 2 * * 0", verify="0 5 * * *", timezone="Europe/Berlin"
    )
    assert_type(made, Schedule)
    assert_type(made.alter(incremental="0 2 * * 1-6", sample=10), ScheduleInfo)
    made.pause()
    made.resume()
    assert_type(made.runs(limit=1), list[ScheduleRun])
    assert_type(db.run_due(), list[ScheduleRun])
    stop = threading.Event()
    stop.set()
    db.run_schedules(stop, on_run=lambda run: None, on_error=lambda error: None)
    assert [info.name for info in db.schedules()] == [db.schedule("nights").info().name]
    made.drop()


def keep_tokens(db: Database) -> None:
    made = db.create_token("robot", role="operate", paths=["/sales"], expires=3600)
    assert_type(made, NewToken)
    assert made.token.startswith("sl_")
    listed: list[TokenInfo] = db.tokens()
    assert [token.id for token in listed] == [made.id]
    assert_type(db.revoke_token(made.id), TokenInfo)
    entries: list[AuditEntry] = db.audit(limit=10)
    assert [entry.result for entry in entries] == ["ok", "ok"]
    try:
        remote = RemoteDatabase("http://127.0.0.1:1", made.token)
        collection: RemoteCollection = remote.collection("nightly")
        schedule: RemoteSchedule = remote.schedule("nights")
        table: RemoteTable = remote.table("/orders")
        assert (collection.name, schedule.name, table.path) == ("nightly", "nights", "/orders")
        found: RemoteResult = remote.sql("SELECT 1")
        assert not found.truncated
    except errors.Unavailable as error:
        assert error.code == "UNAVAILABLE"


def send_alarms(db: Database) -> None:
    assert_type(db.check_alarms(backup_warning=3600), list[AlarmDelivery])
    assert_type(db.alarms(cleared=True), list[Alarm])
    for alarm in db.alarms():
        assert_type(db.acknowledge_alarm(alarm.kind, alarm.subject, by="ada"), Alarm)
    stop = threading.Event()
    stop.set()
    db.run_alarms(stop, on_sent=lambda sent: None, on_error=lambda error: None, chain_warning=40)
    try:
        db.test_alarm_channel("ops")
    except strandline.errors.StrandlineError as error:
        assert error.code == "INVALID_ARGUMENT"


def use_spark(db: Database, folder: str) -> None:
    strandline.register(db.spark, folder)
    assert db.table("orders").df().count() == db.sql("SELECT * FROM orders").df.count()
    assert db.collection("nightly").open().table("orders").df().columns == ["id", "total"]
    assert db.stream("/orders/feed").read().columns


def main(folder: str) -> None:
    """Run all but what needs Spark."""
    with open_warehouse(folder) as db:
        write_rows(db)
        follow_changes(db)
        look_around(db, os.path.dirname(folder))
        care(db)
        c = back_up(db)
        restore(db, c)
        keep_backups(db, c, os.path.dirname(folder))
        schedule_backups(db)
        keep_tokens(db)
        send_alarms(db)
    db.close()
