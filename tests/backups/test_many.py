"""Cost of backups of many tables in catalog statements.

It grows with the number of changed tables, never with the square of all tables, and hardly with the unchanged
ones.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from strandline import Database, records
from strandline.catalog import operations
from strandline.operations.streams import StreamPart
from tests.backups.reading import CLUSTER, HERE, contents, last, leaks, open_at, streams
from tests.backups.test_death import Places
from tests.catalogs import Death, ManualClock, is_session
from tests.crash.mortal import bury, connect
from tests.effort import EVERY
from tests.tables.examples import rows

pytestmark = pytest.mark.slow

FEW, MANY = 12, 96
COLUMNS = "(k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"


def make(db: Database, count: int) -> None:
    """Create tables with an index and a row each, and a collection of them."""
    names = [f"t{i:03}" for i in range(count)]
    db.sql("; ".join(f"CREATE TABLE {name} {COLUMNS}" for name in names))
    db.sql("; ".join(f"UPSERT INTO {name} (k, v, n) VALUES (1, 'a', 1)" for name in names))
    db.sql(f"CREATE BACKUP COLLECTION c {members(count)} {CLUSTER}")


def members(count: int) -> str:
    return f"({', '.join(f'TABLE t{i:03}' for i in range(count))})"


def change(db: Database, count: int, value: str = "b") -> None:
    db.sql("; ".join(f"UPSERT INTO t{i:03} (k, v, n) VALUES (1, '{value}', 2)" for i in range(count)))


@contextlib.contextmanager
def counted(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count transactions, statements and records that are read."""
    catalog, counts = db._runtime.catalog, Counter[str]()
    write, from_text = catalog.write, records.from_text

    def count(*_: Any) -> None:
        counts["statements"] += not is_session()

    def writing() -> Any:
        counts["transactions"] += not is_session()
        return write()

    def reading(*args: Any) -> Any:
        counts["records"] += 1
        return from_text(*args)

    event.listen(catalog.database.engine, "before_cursor_execute", count)
    with monkeypatch.context() as patched:
        patched.setattr(catalog, "write", writing)
        patched.setattr(records, "from_text", reading)
        yield counts
    event.remove(catalog.database.engine, "before_cursor_execute", count)


Measure = Callable[..., Counter[str]]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measure]:
    """Return a function that measures a statement, in a catalog of ``count`` tables, after ``prepare``."""
    opened: list[Database] = []

    def run(count: int, prepare: Callable[[Database], None], statement: str, **settings: Any) -> Counter[str]:
        # The clock stands still: noting a slow part would be an extra transaction.
        db = open_at(tmp_path / str(len(opened)), clock=ManualClock(), settings=settings)
        opened.append(db)
        make(db, count)
        prepare(db)
        with counted(db, monkeypatch) as counts:
            db.sql(statement)
        return counts

    yield run
    for db in opened:
        db.close()


def nothing(db: Database) -> None:
    pass


def full_first(db: Database) -> None:
    db.sql("BACKUP c")
    change(db, 3)


def two_first(db: Database) -> None:
    full_first(db)
    db.sql("BACKUP c INCREMENTAL")


STATEMENTS: dict[str, tuple[Callable[[Database], None], str]] = {
    "full backup": (nothing, "BACKUP c"),
    "full backup that replaces streams": (full_first, "BACKUP c"),
    "increment": (full_first, "BACKUP c INCREMENTAL"),
    "restore": (two_first, "RESTORE c INTO `r`"),
    "restore over tables": (two_first, "RESTORE c WITH (REPLACE = 'true')"),
    "drop": (two_first, "DROP BACKUP COLLECTION c"),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_eight_times_the_tables_take_no_more_transactions_and_hardly_more_statements(
    measure: Measure, name: str
) -> None:
    prepare, statement = STATEMENTS[name]
    few, many = measure(FEW, prepare, statement), measure(MANY, prepare, statement)
    assert many["transactions"] == few["transactions"]
    assert many["statements"] <= few["statements"] + 15
    assert many["records"] <= few["records"] * MANY / FEW + 20, "each record is read a fixed number of times"


def test_parts_that_wait_for_a_thread_are_not_read_at_each_step(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A restore from a repository has parts with slow work for each table. They are read once or twice."""
    read = Counter[int]()
    find = operations.open_parts

    def in_repository(db: Database) -> None:
        count = len([entry for entry in db.ls("/") if entry.type == "table"])
        storage = f"(STORAGE = '{tmp_path / f'repository{count}'}', INCREMENTAL_BACKUP_ENABLED = 'true')"
        db.sql(f"CREATE BACKUP COLLECTION far {members(count)} WITH {storage}; BACKUP far")

    def open_parts(*args: Any) -> Any:
        found = find(*args)
        read[now] += len(found)
        return found

    monkeypatch.setattr(operations, "open_parts", open_parts)
    counts = {}
    for now in (FEW, MANY):
        counts[now] = measure(now, in_repository, "RESTORE far INTO `r`", workers=2)
    each = counts[MANY]["transactions"] / counts[FEW]["transactions"]
    assert each > 0.5 * MANY / FEW, "most transactions are those of single parts"
    assert read[MANY] <= 1.5 * read[FEW] * MANY / FEW


def test_an_increment_takes_a_transaction_or_two_for_each_table_that_has_changed(measure: Measure) -> None:
    def changed(count: int) -> Counter[str]:
        def prepare(db: Database) -> None:
            db.sql("BACKUP c")
            change(db, count)

        return measure(MANY, prepare, "BACKUP c INCREMENTAL")

    none, some, more = changed(0), changed(4), changed(8)
    # One for the slice of each table, and one for that of its index; other phases share transactions.
    assert more["transactions"] - some["transactions"] == 2 * 4
    assert more["statements"] - some["statements"] < 60 * 4
    assert none["transactions"] < 6


def test_those_that_have_not_changed_join_an_increment(tmp_path: Path) -> None:
    with open_at(tmp_path) as db:
        make(db, FEW)
        db.sql("BACKUP c")
        change(db, 2)
        ended = db.operation(str(db.sql("BACKUP c INCREMENTAL").operation_id))
        # A slice for each of 2 tables and their indexes, one part for each old stream, one part for all
        # others.
        assert (ended.parts, ended.parts_done) == (4 + 4 + 1, 4 + 4 + 1)
        record = last(db)
        assert [table.slice.rows for table in record.tables.values()] == [1, 1] + [0] * (FEW - 2)
        for path, table in record.tables.items():
            assert streams(db, path) == streams(db, f"{path}/by_v/indexImplTable") == [record.stream]
            assert db.describe(f"{path}/{record.stream}")["position"] == record.step
            assert table.slice.version == db.describe(path)["version"]
        change(db, FEW, "c")
        db.sql("BACKUP c INCREMENTAL; RESTORE c INTO `r`")
        assert {row for i in range(FEW) for row in rows(db, f"SELECT v FROM `r/t{i:03}`")} == {("c",)}
        assert all(len(found) == 1 for found in contents(db).values())
        assert db.verify("c") == []
        assert leaks(db) == []


def test_a_digest_that_does_not_fit_is_looked_into(tmp_path: Path) -> None:
    """A table counts as unchanged only if its digest is the one recorded at the last cut."""
    with open_at(tmp_path) as db:
        make(db, 2)
        db.sql("BACKUP c")
        with db._runtime.catalog.write() as tx:
            tx.conn.exec_driver_sql("UPDATE tables SET digest = replace(digest, '0', '1')")
            tx.conn.exec_driver_sql("UPDATE commits SET digest = replace(digest, '0', '1')")
        with pytest.raises(Exception, match="was recorded"):
            db.sql("BACKUP c INCREMENTAL")


TOGETHER = replace(HERE, parts_together=4)


@pytest.mark.parametrize("statement", ["BACKUP c", "BACKUP c INCREMENTAL", "RESTORE c INTO `r`"])
def test_a_death_after_any_transaction_is_survived(tmp_path: Path, statement: str) -> None:
    """Unchanged tables in bulk, restores of inline rows, and transitions of several parts at once."""
    with open_at(tmp_path) as db:
        make(db, 5)
        two_first(db)
    stride = 1 if EVERY else 5
    for number in itertools.count(1):
        with open_at(tmp_path) as db:
            if number % 3 == 0:  # a new chain now and then, so that later iterations do not take longer
                again = f"CREATE BACKUP COLLECTION c {members(5)} {CLUSTER}"
                db.sql(f"DROP BACKUP COLLECTION c; {again}; BACKUP c")
            change(db, 2, f"v{number}")
            db.sql("BACKUP c INCREMENTAL")
            change(db, 1, f"w{number}")
        fate = Places(1 + (number - 1) * stride)
        mortal = connect(tmp_path, None, fate, TOGETHER)
        try:
            mortal.sql(statement)
            mortal.close()
        except Death:
            bury(mortal, tmp_path, None)
        with open_at(tmp_path) as db:
            db.resume()
            assert all(operation.state == "done" for operation in db.operations()), fate.place
            if any(entry.name == "r" for entry in db.ls()):
                assert rows(db, "SELECT v FROM `r/t000`") == [(f"v{number}",)]
                assert rows(db, "SELECT k FROM `r/t001` VIEW by_v WHERE v = 'v1'") == [(1,)] * (number == 1)
                db.sql("; ".join(f"DROP TABLE `r/t{i:03}`" for i in range(5)))
            db.sql("BACKUP c INCREMENTAL")
            assert {row[1] for row in contents(db)["/t000"].values()} == {f"w{number}"}
            assert leaks(db) == [], fate.place
        if not fate.dead:
            assert number * stride > 6
            return


def test_a_part_that_cannot_go_on_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that fail together are retried one by one."""
    with open_at(tmp_path) as db:
        make(db, 4)
        healthy, sizes = StreamPart.propose, list[int]()

        def sick(self: Any, tx: Any, run: Any, parts: Any, made: Any) -> Any:
            sizes.append(len(parts))
            if len(parts) > 1:
                raise ValueError("too many")
            return healthy(self, tx, run, parts, made)

        monkeypatch.setattr(StreamPart, "propose", sick)
        db.sql("BACKUP c")
        assert sizes == [8, *[1] * 8]
        assert db.operations()[-1].state == "done"
        assert leaks(db) == []
