"""Each process reports the metrics of the whole warehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event

from strandline import Database
from strandline.backups.collection import CollectionRequest
from strandline.backups.verify.verification_history import BackupReport, Level
from strandline.catalog import paths, verifications
from strandline.errors import PreconditionFailed
from tests.backups.reading import backups, open_at
from tests.catalogs import ManualClock, is_session

CREATE = "CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"
COLLECTION = (
    "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
)


@pytest.fixture
def opened(tmp_path: Path, catalog_url: str | None) -> Iterator[Callable[..., Database]]:
    """Open the same warehouse with a further connection, as another process would."""
    found: list[Database] = []
    clock = ManualClock()

    def make(**settings: object) -> Database:
        found.append(open_at(tmp_path / "w", catalog_url, clock=clock, settings=settings))
        return found[-1]

    yield make
    for db in found:
        db.close()


def samples(db: Database) -> dict[tuple[str, ...], float]:
    """Parse metrics: values by name and labels."""
    return {
        (s.name.removeprefix("strandline_"), *s.labels.values()): s.value
        for family in text_string_to_metric_families(db.metrics())
        for s in family.samples
    }


def counters(db: Database) -> dict[tuple[str, ...], float]:
    return {key: value for key, value in samples(db).items() if key[0].endswith(("_total", "_count", "_sum"))}


def test_a_new_process_says_what_others_have_counted(opened: Callable[..., Database]) -> None:
    first = opened()
    first.sql(f"{CREATE}; {COLLECTION}; UPSERT INTO t (k, v) VALUES (1, 'a'); BACKUP c")
    first._runtime.metrics.part_retries.labels("shard").inc()
    first._runtime.metrics.mismatches.labels("seen").inc(2)
    counted = counters(first)
    first.close()
    assert counted["publications_total",] == 3
    assert counted["claims_total", "claimed"] == 3
    assert counted["operations_total", "backup", "done"] == 1
    second = opened()
    assert counters(second) == counted
    assert (counted["part_retries_total", "shard"], counted["schema_mismatches_total", "seen"]) == (1, 2)
    assert not any("kind" in labels for _, labels, _ in second._runtime.metrics.samples()), (
        "it counted nothing"
    )


def test_what_processes_count_adds_up_whoever_has_told_it(opened: Callable[..., Database]) -> None:
    first, second = opened(), opened()
    first.sql(CREATE)
    second.sql("CREATE TABLE u (k Int64 NOT NULL, PRIMARY KEY (k))")
    key = ("publications_total",)
    assert (samples(first)[key], samples(second)[key]) == (1, 1), "each knows its own"
    first._runtime.session.tell()
    assert (samples(first)[key], samples(second)[key]) == (1, 2)
    second._runtime.session.tell()
    first.sql("DROP TABLE u")
    assert (samples(first)[key], samples(second)[key]) == (3, 2)
    first._runtime.session.tell()
    first._runtime.session.tell()
    assert (samples(first)[key], samples(second)[key]) == (3, 3)


def test_the_session_tells_by_itself(opened: Callable[..., Database]) -> None:
    db, other = opened(session_seconds=0.05), opened()
    db.sql(f"{CREATE}; UPSERT INTO t (k, v) VALUES (1, 'a')")
    while samples(other)["publications_total",] < 1:
        db._runtime.session._wake.set()


def test_the_state_of_backups(opened: Callable[..., Database]) -> None:
    db = opened()
    clock = db._runtime.clock
    db.sql(f"{CREATE}; {COLLECTION}")
    assert samples(db)["backups", "c"] == 0
    assert ("backup_timestamp_seconds", "c") not in samples(db), "there is none yet"
    times = []
    for number, statement in enumerate(("BACKUP c", "BACKUP c INCREMENTAL", "BACKUP c INCREMENTAL")):
        clock.sleep(3600)
        db.sql(f"UPSERT INTO t (k, v) VALUES ({number}, 'a'); {statement}")
        times.append(clock.now())
    seen = samples(opened())
    assert seen["backups", "c"] == seen["backup_chain_length", "c"] == 3
    assert seen["backup_timestamp_seconds", "c"] == times[-1]
    last = db.sql("SHOW BACKUPS IN c").rows()[-1]
    assert seen["backup_bytes", "c"] == last[6] > 0
    assert seen["backup_restorable_here_until_timestamp_seconds", "c"] == times[-1]
    assert not [key for key in seen if key[0] == "backup_verified_timestamp_seconds"]
    assert seen["operations_listed", "backup", "done"] == 1
    assert seen["operations_listed", "incremental backup", "done"] == 2
    clock.sleep(60)
    db.verify("c", level="chain")
    seen = samples(opened())
    assert seen["backup_verified_timestamp_seconds", "c", "chain"] == clock.now()
    assert seen["backups_not_restorable", "c", "chain"] == 0
    report(db, backups(db)[-1], "checksums", restorable=False)
    seen = samples(opened())
    assert seen["backups_not_restorable", "c", "checksums"] == 1
    assert seen["backup_restorable_here_until_timestamp_seconds", "c"] == times[-2]
    clock.sleep(60)
    report(db, backups(db)[-1], "chain", restorable=True)
    assert samples(db)["backup_restorable_here_until_timestamp_seconds", "c"] == times[-2], "it promises less"
    report(db, backups(db)[-1], "restore", restorable=True)
    assert samples(db)["backup_restorable_here_until_timestamp_seconds", "c"] == times[-1]


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_backups_that_do_not_leave_the_machine(opened: Callable[..., Database], tmp_path: Path) -> None:
    db, place = opened(), tmp_path / "repository"
    clock = db._runtime.clock
    db.sql(f"{CREATE}; {COLLECTION}; BACKUP c")
    seen = samples(db)
    assert ("backup_restorable_until_timestamp_seconds", "c") not in seen, "it is lost with the warehouse"
    assert ("backups_unsent", "c") not in seen, "there is no repository"
    db.sql(f"ALTER BACKUP COLLECTION c SET (STORAGE = '{place}')")
    assert samples(db)["backups_unsent", "c"] == 1
    clock.sleep(3600)
    db.sql("BACKUP c INCREMENTAL")
    sent, seen = clock.now(), samples(db)
    assert seen["backup_restorable_until_timestamp_seconds", "c"] == sent
    assert seen["backups_unsent", "c"] == 0
    assert ("backup_unsent_since_timestamp_seconds", "c") not in seen
    place.rename(tmp_path / "away")
    times = []
    for _ in range(2):
        clock.sleep(24 * 3600)
        times.append(clock.now())
        with pytest.raises(PreconditionFailed):
            db.sql("BACKUP c INCREMENTAL")
    seen = samples(opened())
    assert seen["backup_restorable_until_timestamp_seconds", "c"] == sent
    assert seen["backup_restorable_here_until_timestamp_seconds", "c"] == times[-1]
    assert seen["backup_timestamp_seconds", "c"] == times[-1]
    assert seen["backups_unsent", "c"] == 2
    assert seen["backup_unsent_since_timestamp_seconds", "c"] == times[0]
    assert seen["tables_unprotected",] == 0
    db.sql("CREATE TABLE u (k Int64 NOT NULL, PRIMARY KEY (k))")
    assert samples(db)["tables_unprotected",] == 1


def report(db: Database, backup: str, level: Level, *, restorable: bool) -> None:
    """Record the result of a verification."""
    found = BackupReport(backup=backup, level=level, objects=1, bytes=1, problems=1, restorable=restorable)
    with db._runtime.catalog.write() as tx:
        path = paths.require(tx.conn, f"/.backups/collections/c/{backup}")
        verifications.add(tx, level, [(path.id, found)])


def test_what_streams_hold_and_how_late_they_are(opened: Callable[..., Database]) -> None:
    db = opened(inline_rows=0)
    clock = db._runtime.clock
    db.sql(f"{CREATE}; {COLLECTION}; BACKUP c")
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'UPDATES', FORMAT = 'JSON')")
    seen = samples(db)
    assert (seen["stream_lag_seconds", "/t/f"], seen["stream_lag_steps", "/t/f"]) == (0, 0)
    assert seen["backup_held_bytes", "c"] == seen["stream_held_bytes", "/t/f"] == 0
    step = db.sql("UPSERT INTO t (k, v) VALUES (0, 'z')").step
    assert step is not None
    clock.sleep(5)
    seen = samples(db)
    assert (seen["stream_lag_seconds", "/t/f"], seen["stream_held_bytes", "/t/f"]) == (5, 0)
    db.stream("/t/f").commit(step)
    seen = samples(db)
    assert (seen["stream_lag_seconds", "/t/f"], seen["stream_lag_steps", "/t/f"]) == (0, 0)
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a')")
    clock.sleep(30)
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'b')")
    clock.sleep(30)
    db.compact("t")
    seen = samples(opened())
    assert seen["stream_lag_seconds", "/t/f"] == 60
    assert seen["stream_lag_steps", "/t/f"] == 2
    held = db.describe("/t/f")["held_bytes"]
    assert seen["stream_held_bytes", "/t/f"] == held > 0
    assert seen["backup_held_bytes", "c"] > held, "of the index as well"
    db.stream("/t/f").commit(db.step)
    seen = samples(db)
    assert (seen["stream_lag_seconds", "/t/f"], seen["stream_held_bytes", "/t/f"]) == (0, 0)


def test_an_operation_that_does_not_end_is_seen(opened: Callable[..., Database]) -> None:
    db = opened()
    db.sql(f"{CREATE}; {COLLECTION}; BACKUP c")
    assert ("operations_unfinished_since_timestamp_seconds", "backup") not in samples(db)
    db._runtime.clock.sleep(100)
    began = db._runtime.clock.now()
    db._operations.engine.start("backup", CollectionRequest(collection="c"))  # No process carries it out.
    db._runtime.clock.sleep(100)
    seen = samples(opened())
    assert seen["operations_listed", "backup", "running"] == 1
    assert seen["operations_unfinished_since_timestamp_seconds", "backup"] == began


def test_a_small_upsert_asks_for_nothing_of_it(opened: Callable[..., Database]) -> None:
    db = opened()
    db.sql(f"{CREATE}; {COLLECTION}; UPSERT INTO t (k, v) VALUES (1, 'a'); BACKUP c")
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'b')")
    db._runtime.session.tell()
    statements: list[str] = []

    def note(conn: object, cursor: object, statement: str, *_: object) -> None:
        if not is_session():
            statements.append(statement)

    engine = db._runtime.catalog.database.engine
    event.listen(engine, "before_cursor_execute", note)
    db.sql("UPSERT INTO t (k, v) VALUES (3, 'c')")
    event.remove(engine, "before_cursor_execute", note)
    assert any("segments" in statement for statement in statements)
    named = ("board", "claimed", "noticed", "counts", "claims")
    assert [s for s in statements if any(name in s for name in named)] == []
    assert not any(db._runtime.catalog.ledger.news()), "nothing will have to be told later, either"
