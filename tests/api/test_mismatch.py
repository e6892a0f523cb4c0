"""Statements with mismatching versions in the catalog: retries, waits and errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline import Database, Settings
from strandline.catalog import paths
from strandline.errors import SchemaMismatch
from tests.catalogs import ManualClock, counted

IMPL = "/t/by_v/indexImplTable"
STATEMENTS = {
    "a read": "SELECT k FROM t WHERE k = 1",
    "a read through the index": "SELECT k FROM t VIEW by_v WHERE v = 'a'",
    "a change": "UPSERT INTO t (k, v) VALUES (1, 'b')",
}


class Pauses(ManualClock):
    """A clock that records waits, and runs something during them."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.slept.append(seconds)
        self.meanwhile()


@pytest.fixture
def clock() -> Pauses:
    return Pauses()


def damaged(connect: Callable[..., Database], clock: Pauses, **settings: float) -> Database:
    """A warehouse with a wrong version of an implementation table in its catalog."""
    db = connect("w", clock=clock, settings=Settings(**settings))  # type: ignore[arg-type]
    db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a')")
    set_version(db, 2)
    return connect("w", clock=clock, settings=Settings(**settings))  # type: ignore[arg-type]


def set_version(db: Database, version: int) -> None:
    with db._runtime.catalog.write() as tx:
        impl = paths.require(tx.conn, IMPL)
        tx.conn.exec_driver_sql(f"UPDATE paths SET version = {version} WHERE id = {impl.id}")


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_statement_is_planned_again_three_times_and_then_fails(
    connect: Callable[..., Database], clock: Pauses, statement: str
) -> None:
    db = damaged(connect, clock)
    with pytest.raises(SchemaMismatch, match=f"{IMPL}: /t expects version 1, got 2"):
        db.sql(statement).rows()
    assert clock.slept == [0.1, 0.1, 0.1]
    seen, cured, failed = mismatches(db)
    assert (seen, cured, failed) == (4, 0, 1)


def test_how_often_and_how_long_are_settings(connect: Callable[..., Database], clock: Pauses) -> None:
    db = damaged(connect, clock, schema_retries=2, schema_retry_seconds=0.75)
    with pytest.raises(SchemaMismatch):
        db.sql(STATEMENTS["a read"])
    assert clock.slept == [0.75, 0.75]


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_what_is_put_right_in_the_meantime_is_not_noticed(
    connect: Callable[..., Database], clock: Pauses, statement: str
) -> None:
    db = damaged(connect, clock)

    def put_right() -> None:
        if len(clock.slept) == 2:
            set_version(db, 1)

    clock.meanwhile = put_right
    result = db.sql(statement)
    assert result.rows_changed == 1 or result.rows() == [(1,)]
    assert clock.slept == [0.1, 0.1]
    assert mismatches(db) == (2, 1, 0)
    db._runtime.session.tell()
    story = db.sql("SHOW VERSIONS OF t").rows()
    assert [(row[1], row[-1]) for row in story if row[1] != "published"] == [
        ("mismatch", f"{IMPL}: expected 1, got 2"),
        ("mismatch", f"{IMPL}: expected 1, got 2"),
        ("cured", f"{IMPL}: expected 1, got 2"),
    ]


def mismatches(db: Database) -> tuple[float, ...]:
    metrics = db._runtime.metrics
    results = ("seen", "cured", "failed")
    return tuple(counted(metrics, "schema_mismatches_total", result=result) for result in results)


def test_who_asks_for_a_description_gets_what_the_catalog_says(
    connect: Callable[..., Database], clock: Pauses
) -> None:
    """Also if the cache has something else, and if the versions do not match."""
    db = damaged(connect, clock)
    set_version(db, 1)
    db.sql(STATEMENTS["a read"]).rows()
    with (
        db._runtime.catalog.write() as tx
    ):  # Change it without a publication, so that the cache is not invalidated.
        paths.set_version(tx, paths.require(tx.conn, "/t").id, 7)
        paths.set_version(tx, paths.require(tx.conn, IMPL).id, 8)
    assert db.sql(STATEMENTS["a read"]).rows() == [(1,)], "it is remembered"
    assert (db.describe("/t")["version"], db.describe(IMPL)["version"]) == (7, 8)
    assert ("version", "7") in db.sql("DESCRIBE t").rows()
