"""DESCRIBE HISTORY: what each commit of a table did, on both catalogs."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

import strandline
from strandline import CommitEvent, Database
from tests.catalogs import ManualClock
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW, NoSpark, refused


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000.0)


@pytest.fixture
def db(tmp_path: Path, catalog_url: str | None, clock: ManualClock) -> Iterator[Database]:
    settings = replace(ARROW, history_seconds=100.0, grace_seconds=0.0)
    with strandline.connect(
        tmp_path,
        catalog=catalog_url,
        files=QuickFiles(tmp_path),
        spark=NoSpark(),  # type: ignore[arg-type]
        settings=settings,
        clock=clock,
    ) as db:
        db.sql(
            "CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"
        )
        yield db


def told(events: list[CommitEvent]) -> list[tuple[object, ...]]:
    return [(e.statement, e.inserted, e.updated, e.deleted, e.rows) for e in events]


def test_each_statement_is_recorded_with_its_rows(db: Database) -> None:
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    before = db.step
    db.sql("UPSERT INTO t (k, v) VALUES (3, 'x'), (4, 'd')")
    db.sql("UPDATE t SET n = 1 WHERE k < 3")
    db.sql("DELETE FROM t WHERE k = 1")
    db.sql("DELETE FROM t ON (k) VALUES (2), (99)")
    db.sql(
        "MERGE INTO t USING (VALUES (3), (4), (5), (6)) AS s (k) ON t.k = s.k WHEN MATCHED AND s.k = 3 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"
    )
    db.sql(f"RESTORE TABLE t TO VERSION AS OF {before}")
    with db.transaction():
        db.sql("DELETE FROM t WHERE k = 1")
        db.sql("UPSERT INTO t (k) VALUES (7)")
    events = db.table("/t").history()
    assert told(events) == [
        ("DELETE, UPSERT", 1, 0, 1, 3),
        ("RESTORE", 3, 0, 3, 3),
        ("MERGE", 2, 1, 1, 3),
        ("DELETE", 0, 0, 1, 2),
        ("DELETE", 0, 0, 1, 3),
        ("UPDATE", 0, 2, 0, 4),
        ("UPSERT", 1, 1, 0, 4),
        ("UPSERT", 3, 0, 0, 3),
        ("CREATE TABLE", 0, None, None, 0),
    ]
    assert all(e.author is not None and f":{os.getpid()}" in e.author for e in events)
    assert getpass.getuser() in str(events[0].author)
    assert [e.step for e in events] == sorted((e.step for e in events), reverse=True)
    assert [row[0] for row in db.sql("DESCRIBE HISTORY t LIMIT 2").rows()] == [e.step for e in events[:2]]
    # Each listed step can be read, with as many rows.
    for event in events:
        assert event.readable
        found = db.sql(f"SELECT k FROM t VERSION AS OF {event.step}").rows()
        assert len(found) == event.rows


def test_a_statement_that_is_undone_in_a_transaction_is_not_recorded(db: Database) -> None:
    with db.transaction():
        db.sql("UPSERT INTO t (k) VALUES (1)")
        with pytest.raises(strandline.errors.PreconditionFailed):
            db.sql(
                "MERGE INTO t USING (VALUES (1), (1)) AS s (k) ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = 1"
            )
        with pytest.raises(strandline.errors.PreconditionFailed):
            db.sql("DELETE FROM t; INSERT INTO t (k) VALUES (2), (2)")
    assert told(db.table("/t").history(1)) == [("UPSERT", 1, 0, 0, 1)]


def test_a_compaction_and_an_operation_are_in_it(db: Database) -> None:
    db.sql("UPSERT INTO t (k) VALUES (1), (2)")
    db.compact("/t")
    (compacted,) = db.table("/t").history(1)
    assert (compacted.statement, compacted.rows) == ("COMPACTION", 2)
    db.sql("CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster')")
    db.sql("BACKUP c; DROP TABLE t")
    restored = db.sql("RESTORE c").operation_id
    (event,) = db.table("/t").history(1)
    assert (event.operation_id, event.operation, event.rows) == (restored, "restore", 2)


def test_commits_of_old_versions_have_no_author(db: Database) -> None:
    db.sql("UPSERT INTO t (k) VALUES (1)")
    with db._runtime.catalog.write() as tx:
        tx.conn.execute(
            text("UPDATE commits SET author = NULL, statement = NULL, inserted = NULL, updated = NULL")
        )
    (event,) = db.table("/t").history(1)
    assert (event.author, event.statement, event.inserted) == (None, None, None)


def test_history_ends_where_states_can_be_read_no_more(db: Database, clock: ManualClock) -> None:
    for number in range(20):
        db.sql(f"UPSERT INTO t (k) VALUES ({number})")
        clock.sleep(10)
        if number % 5 == 4:
            db.compact("/t")
            db.maintain()
    events = db.table("/t").history()
    assert 10 <= len(events) < 20
    for event in events:
        if not event.readable:
            assert event == events[-1]
            continue
        assert len(db.sql(f"SELECT k FROM t VERSION AS OF {event.step}").rows()) == event.rows


def test_refused(db: Database) -> None:
    with refused(db, "PATH_NOT_FOUND"):
        db.sql("DESCRIBE HISTORY nope")
    with refused(db, "SYNTAX_ERROR"):
        db.sql("DESCRIBE HISTORY t LIMIT 0")
    with refused(db, "INVALID_ARGUMENT"):
        db.table("/t").history(-1)
