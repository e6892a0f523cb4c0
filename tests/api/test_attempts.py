"""Retried statements: input is read once, and garbage-collected files are not reported as damage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import update

from strandline import Database, Settings
from strandline.catalog import sqltables
from strandline.errors import Conflict, Corrupted
from strandline.storage.arrow import scan as scanning
from strandline.tables.snapshot import Reader
from tests.catalogs import forget
from tests.crash.mortal import DEAD
from tests.effort import EVERY
from tests.tables.examples import assert_sound, content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = "CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n))"
ROWS = [{"k": 1, "v": "new"}, {"k": 2, "v": "new"}]


def before_its_commit(db: Database, act: Callable[[], Any], times: int = 1) -> list[int]:
    """Run something before each of the first commits of ``db``; return a function with the number of runs."""
    db._runtime.session.ensure()  # From here on, only commits write to the catalog.
    catalog, write = db._runtime.catalog, db._runtime.catalog.write
    happened: list[Any] = []

    def interrupted() -> Any:
        is_commit = (
            threading.current_thread().name != "strandline-session"
        )  # The lease is renewed at any time.
        if is_commit and len(happened) < times:
            happened.append(1)
            act()
        return write()

    catalog.write = interrupted  # type: ignore[method-assign]
    return happened


@pytest.fixture
def pair(connect: Callable[..., Database]) -> tuple[Database, Database]:
    db, other = connect("shared"), connect("shared")
    db.sql(f"{CREATE}; UPSERT INTO t (k, v, n) VALUES (1, 'old', 0), (2, 'old', 0), (3, 'old', 0)")
    return db, other


@pytest.mark.parametrize(
    "rows",
    [lambda: (dict(row) for row in ROWS), lambda: iter(ROWS), lambda: map(dict, ROWS), lambda: ROWS],
    ids=["generator", "iterator", "map", "list"],
)
def test_rows_that_can_be_read_once_are_written_although_the_commit_is_repeated(
    pair: tuple[Database, Database], rows: Callable[[], Any]
) -> None:
    db, other = pair
    happened = before_its_commit(db, lambda: other.sql("UPDATE t SET n = n + 1 WHERE k = 1"), times=3)
    db.table("t").upsert(rows())
    assert len(happened) == 3
    assert content(other, "/t") == [(1, "new", 3), (2, "new", 0), (3, "old", 0)]
    assert_sound(other, "/t")


def test_keys_that_can_be_read_once_are_erased_although_the_commit_is_repeated(
    pair: tuple[Database, Database],
) -> None:
    db, other = pair
    happened = before_its_commit(db, lambda: other.sql("UPDATE t SET n = n + 1 WHERE k = 1"))
    db.table("t").delete(k for k in (1, 2))
    assert happened
    assert content(other, "/t") == [(3, "old", 0)]
    assert_sound(other, "/t")


def test_a_commit_gives_up_after_its_tries(connect: Callable[..., Database]) -> None:
    db, other = connect("shared", settings=Settings(commit_tries=3)), connect("shared")
    db.sql(f"{CREATE}; UPSERT INTO t (k, v, n) VALUES (1, 'old', 0)")
    happened = before_its_commit(db, lambda: other.sql("UPDATE t SET n = n + 1 WHERE k = 1"), times=100)
    with pytest.raises(Conflict, match="3 times in a row"):
        db.sql("UPDATE t SET n = n * 2 WHERE k = 1")
    assert len(happened) == 3
    assert content(other, "/t") == [(1, "old", 3)]


@pytest.mark.parametrize(
    ("is_empty", "bulk_rows"),
    [
        pytest.param(False, 0, id="a table with rows-on Spark"),
        pytest.param(True, 1000, id="an empty table-few rows"),
        *([(True, 0), (False, 1000)] if EVERY else []),
    ],
)
def test_a_dataframe_whose_source_changes_is_evaluated_once(
    connect: Callable[..., Database], spark: SparkSession, tmp_path: Path, bulk_rows: int, is_empty: bool
) -> None:
    """The rows of the first evaluation are written to table and index, despite retries of the commit.

    Exhaustive runs try all pairs.
    """
    from pyspark.sql import functions as F

    db, other = connect("shared", spark=spark, settings=Settings(bulk_rows=bulk_rows)), connect("shared")
    db.sql(CREATE if is_empty else f"{CREATE}; UPSERT INTO t (k, v, n) VALUES (1, 'old', 7), (5, 'old', 7)")
    source = tmp_path / "source"
    source.write_text("first")
    name = str(source)

    @F.udf("string", useArrow=False)
    def now() -> str:
        with open(name) as file:
            return file.read()

    frame = spark.range(1, 4).select(F.col("id").alias("k"), now.asNondeterministic()().alias("v"))

    def meanwhile() -> None:
        source.write_text("second")
        other.sql("UPSERT INTO t (k, n) VALUES (2, 1)")

    happened = before_its_commit(db, meanwhile)
    db.table("t").upsert(frame)
    assert happened
    kept = [] if is_empty else [(5, "old", 7)]
    assert content(db, "/t") == [
        (1, "first", None if is_empty else 7),
        (2, "first", 1),
        (3, "first", None),
        *kept,
    ]
    assert_sound(db, "/t")


# --- garbage collection during a sleep of the process ---------------------------------------------------

FILES = Settings(inline_rows=0, history_seconds=0.0, grace_seconds=0.0, commit_tries=5)


def scan(reader: Reader) -> set[tuple[Any, ...]]:
    """Scan as a process with empty caches."""
    forget(reader.runtime)
    view = reader.view("/t")
    found = scanning.scan(reader.runtime.store.cache, view.state)
    return set(zip(*found.to_pydict().values(), strict=True))


def bury(db: Database, connect: Callable[..., Database]) -> None:
    """Expire the session; then others write, compact and collect garbage."""
    with connect("shared", settings=FILES) as other:
        other.sql("UPDATE t SET v = 'new' WHERE k = 1")
        other.compact("/t")
        with other._runtime.catalog.write() as tx:
            tx.conn.execute(
                update(sqltables.sessions)
                .where(sqltables.sessions.c.id == db._runtime.session.id)
                .values(pid=DEAD)
            )
    with connect("shared", settings=FILES) as collector:
        assert collector.collect().removed_files > 0
    forget(db._runtime)


def test_a_reader_that_was_taken_for_dead_reads_again(connect: Callable[..., Database]) -> None:
    db = connect("shared", settings=FILES)
    db.sql(f"{CREATE}; UPSERT INTO t (k, v, n) VALUES (1, 'old', 0)")
    slept: list[str] = []

    def read(reader: Reader) -> set[tuple[Any, ...]]:
        reader.view("/t")
        if not slept:
            slept.append(db._runtime.session.id)
            bury(db, connect)
        return scan(reader)

    with db._guard():
        assert db._transactions.read(read) == {(1, "new", 0)}
    assert db._runtime.session.id not in slept


@pytest.mark.parametrize("statement", ["SELECT * FROM t", "UPDATE t SET n = n + 1"])
def test_a_transaction_that_was_taken_for_dead_is_a_conflict(
    connect: Callable[..., Database], statement: str
) -> None:
    """It cannot be retried automatically, and its files were garbage-collected: this is no damage."""
    db = connect("shared", settings=FILES)
    db.sql(f"{CREATE}; UPSERT INTO t (k, v, n) VALUES (1, 'old', 0)")
    with pytest.raises(Conflict, match="collected meanwhile"), db.transaction():
        db.sql("SELECT * FROM t WHERE k = 1")
        bury(db, connect)
        db.sql(statement)
    assert content(db, "/t") == [(1, "new", 0)]


def test_a_file_that_is_missing_in_a_live_session_is_damage(connect: Callable[..., Database]) -> None:
    db = connect("shared", settings=FILES)
    db.sql(f"{CREATE}; UPSERT INTO t (k, v, n) VALUES (1, 'old', 0)")
    for name in list(db._runtime.files.names("data")):
        db._runtime.files.remove(name)
    with pytest.raises(Corrupted, match="missing"), db._guard():
        db._transactions.read(scan)
