"""Measure small reads and commits beside many segments that no writer has merged, and on wide tables.

    python bench/small.py [--rows 200000] [--segments 500,1000,2000,4000] [--columns 100,500] [--folder DIR]

Also compares a commit of ten rows with two indexes to a bare transaction of the catalog, which changes one
row and waits for the disk once, and counts its SQL statements. Nothing is merged or compacted meanwhile.

Measures processor time of this process, so that other work on the machine matters little. Needs no Spark.
Prints a table of figures; the exit code does not depend on them.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
from sqlalchemy import event, text  # noqa: E402

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402

COLUMNS = "id Int64 NOT NULL, customer Int64, amount Double, note Utf8, PRIMARY KEY (id)"
INDEX = "INDEX by_customer GLOBAL SYNC ON (customer) COVER (amount)"
PER_CUSTOMER = 100
CHANGED = 3
UNMERGED = strandline.Settings(compaction_share=0.0, bulk_rows=1_000_000, bulk_bytes=1 << 30)


def cpu_ms(times: int, work: Callable[[], Any]) -> float:
    """Return the median processor time of several runs, in milliseconds."""
    work()
    taken = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return 1000 * statistics.median(taken)


def wall_ms(times: int, work: Callable[[], Any]) -> float:
    """Return the median time of several runs, in milliseconds."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)


class Bench:
    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.given, self.report, self.random = given, Report(), random.Random(1)
        self.db = strandline.connect(folder / "warehouse", settings=UNMERGED)
        self.customers = max(1, given.rows // PER_CUSTOMER)

    def run(self) -> None:
        self._segments()
        self._wide()
        self._floor()
        self.db.close()

    def _segments(self) -> None:
        self.db.sql(f"CREATE TABLE t ({COLUMNS}, {INDEX})")
        table, commits = self.db.table("t"), 0
        table.upsert(self._rows(np.arange(self.given.rows), 0))
        ways: dict[str, tuple[Callable[[], Any], float]] = {
            "get": (lambda: table.get(self.random.randrange(self.given.rows)), 2.0),
            f"index lookup of {PER_CUSTOMER} rows": (self._lookup, 8.0),
            f"commit of {CHANGED} rows": (self._commit, 0.0),
        }
        first: dict[str, float] = {}
        for wanted in map(int, self.given.segments.split(",")):
            while commits < wanted:
                self._commit()
                commits += 1
            for what, (work, target) in ways.items():
                taken = cpu_ms(15, work)
                figure = f"{what}, {wanted:,} segments"
                if target:
                    self.report.at_most(figure, taken, target, " ms")
                else:
                    self.report.note(figure, f"{taken:.2f} ms")
                if what in first:
                    self.report.at_most("  / with the fewest segments", taken / first[what], 1.3)
                first.setdefault(what, taken)

    def _commit(self) -> None:
        ids = sorted(self.random.sample(range(self.given.rows), CHANGED))
        self.db.table("t").upsert(self._rows(np.array(ids), self.random.random()))

    def _lookup(self) -> None:
        customer = self.random.randrange(self.customers)
        self.db.sql(f"SELECT id, amount, note FROM t VIEW by_customer WHERE customer = {customer}").collect()

    def _rows(self, ids: Any, salt: float) -> pa.Table:
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "customer": pa.array(ids * 7919 % self.customers, pa.int64()),
                "amount": pa.array(ids + salt, pa.float64()),
                "note": pa.array([f"order {i} of many" for i in ids.tolist()]),
            }
        )

    def _floor(self) -> None:
        """Compare a small commit with the least that a durable commit costs."""
        catalog, rows = self.db._runtime.catalog, self.given.rows // 2
        self.db.sql(f"CREATE TABLE small ({COLUMNS}, {INDEX}, INDEX by_note GLOBAL SYNC ON (note))")
        table, texts = self.db.table("small"), list[str]()
        table.upsert(self._rows(np.arange(rows), 0))

        def upsert() -> None:
            some = self._rows(np.array(sorted(self.random.sample(range(rows), 10))), self.random.random())
            customers = pa.array([self.random.randrange(self.customers) for _ in range(10)], pa.int64())
            table.upsert(some.set_column(1, "customer", customers))

        def bare() -> None:
            with catalog.write() as tx:
                tx.conn.execute(text("UPDATE clock SET step = step + 1 WHERE id = 1"))

        for _ in range(20):
            upsert()
        event.listen(
            catalog.database.engine, "before_cursor_execute", lambda conn, cursor, sql, *_: texts.append(sql)
        )
        upsert()
        self.report.note("SQL statements of a 10-row upsert with two indexes", str(len(texts)))
        least, taken = wall_ms(60, bare), wall_ms(60, upsert)
        detail = f"{taken:.2f} ms, {least:.2f} ms"
        self.report.at_most("10-row upsert with two indexes / bare commit", taken / least, 3.0, detail=detail)

    def _wide(self) -> None:
        rows = self.given.rows // 4
        before: tuple[int, float] | None = None
        for width in map(int, self.given.columns.split(",")):
            values = ", ".join(f"c{i} Int64" for i in range(1, width))
            self.db.sql(f"CREATE TABLE wide{width} (id Int64 NOT NULL, {values}, PRIMARY KEY (id))")
            table, generator = self.db.table(f"wide{width}"), np.random.default_rng(1)
            table.upsert(_wide_rows(np.arange(rows), width))
            some = _wide_rows(np.sort(generator.choice(rows, 2_000, replace=False)), width)
            taken = cpu_ms(5, lambda table=table, some=some: table.upsert(some))
            self.report.note(f"upsert of 2,000 rows with {width} columns", f"{taken:.0f} ms")
            if before is not None:
                growth = taken / before[1] / (width / before[0])
                self.report.at_most("  growth / growth of the number of columns", growth, 1.5)
            before = before or (width, taken)


def _wide_rows(ids: Any, width: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64())}
        | {f"c{i}": pa.array(ids * (i + 1) % 1000, pa.int64()) for i in range(1, width)}
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--segments", default="500,1000,2000,4000")
    parser.add_argument("--columns", default="100,500")
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        bench = Bench(given, folder)
        bench.run()
        print(f"\n{given.rows:,} rows\n{bench.report.render()}")


if __name__ == "__main__":
    main()
