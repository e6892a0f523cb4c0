"""Measure tables with two indexes, relative to plain Spark with the same rows in the same run.

    python bench/tables.py [--rows 5000000] [--folder DIR] [--keep]

Prints a table of figures; the exit code does not depend on them. Needs about 3 GB of disk for 5 million rows.
At its end it measures the cost of each further index, up to 20; bench/indexes.py measures that alone.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import pyarrow as pa  # noqa: E402

import strandline  # noqa: E402
from bench.indexes import Indexes  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id Int64 NOT NULL, customer Int64, day Int32, amount Double, note Utf8, PRIMARY KEY (id)"
INDEXES = "INDEX by_day GLOBAL SYNC ON (day), INDEX by_customer GLOBAL SYNC ON (customer) COVER (amount)"
PER_DAY = 20_000
PER_CUSTOMER = 10


def values(spark: SparkSession, ids: DataFrame, customers: int, salt: int = 0) -> DataFrame:
    """Return five columns of about 80 bytes per row: ``day`` follows the key, ``customer`` does not."""
    from pyspark.sql import functions as F

    mixed = F.xxhash64("id", F.lit(salt))
    return ids.select(
        "id",
        F.pmod(F.xxhash64("id", F.lit(salt + 1)), F.lit(customers)).alias("customer"),
        F.floor(F.col("id") / PER_DAY).cast("int").alias("day"),
        (F.pmod(mixed, F.lit(1_000_000)) / 100).cast("double").alias("amount"),
        F.concat(
            F.lit("order "), F.hex(mixed), F.lit(" "), F.sha2(F.col("id").cast("string"), 256).substr(1, 32)
        ).alias("note"),
    )


@contextmanager
def clocked(seconds: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - start)


def best(times: int, work: Callable[[], Any]) -> float:
    """Return the shortest time of several runs, which is the least disturbed one."""
    seconds: list[float] = []
    for _ in range(times):
        with clocked(seconds):
            work()
    return min(seconds)


def scan(df: DataFrame) -> None:
    """Read every value of every row."""
    df.write.format("noop").mode("overwrite").save()


def bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


class Bench:
    def __init__(self, rows: int, folder: Path) -> None:
        self.rows = rows
        self.customers = max(1, rows // PER_CUSTOMER)
        self.folder = folder
        self.report = Report()
        self.db = strandline.connect(folder / "warehouse")
        self.spark = self.db._runtime.spark
        self.random = random.Random(1)

    def run(self) -> None:
        self._source()
        self._load()
        self._small_commits()
        self._changes()
        self._large_commit()
        self._lookup()
        self._many_commits()
        self.db.close()
        Indexes(self.folder, self.report).run()

    # --- one section for each figure -----------------------------------------------------------------------

    def _source(self) -> None:
        ids = self.spark.range(0, self.rows, 1, 8)
        from pyspark.sql import functions as F

        shuffled = values(self.spark, ids, self.customers).repartition(8, F.xxhash64("id"))
        shuffled.write.mode("overwrite").parquet(self._path("source"))
        scan(self.spark.read.parquet(self._path("source")).orderBy("id"))  # The JVM is warm from here on.
        self.source = self.spark.read.parquet(self._path("source"))

    def _load(self) -> None:
        plain: list[float] = []
        ours: list[float] = []
        for number in range(2):
            with clocked(plain):
                self.source.orderBy("id").write.mode("overwrite").option("compression", "zstd").parquet(
                    self._path("plain")
                )
            self.db.sql(f"CREATE TABLE alone{number} ({COLUMNS})")
            with clocked(ours):
                self.db.table(f"alone{number}").upsert(self.source)
        detail = f"{min(ours):.1f} s, the first one {ours[0]:.1f} s, plain {min(plain):.1f} s"
        self.report.at_most(
            "bulk load of the table alone / sorted Parquet write", min(ours) / min(plain), 1.5, detail=detail
        )
        self._bytes("alone1")
        for number in range(2):
            self.db.sql(f"DROP TABLE alone{number}")
        self.db.sql(f"CREATE TABLE t ({COLUMNS}, {INDEXES})")
        indexed: list[float] = []
        with clocked(indexed):
            self.db.table("t").upsert(self.source)
        self.report.note(
            "bulk load with both indexes",
            f"{indexed[0]:.1f} s, {indexed[0] / min(plain):.2f}x the sorted Parquet write",
        )
        with strandline.connect(
            self.folder / "warehouse", settings=strandline.Settings(history_seconds=0, grace_seconds=0)
        ) as other:
            other.collect()

    def _bytes(self, table: str) -> None:
        with self.db._runtime.catalog.read() as conn:
            from strandline.catalog import chains, paths
            from strandline.catalog.transactions import current_step

            chain = chains.load(conn, paths.require(conn, f"/{table}").id, current_step(conn))
        ours, plain = sum(s.bytes for s in chain.segments), bytes_of(self.folder / "plain")
        detail = f"{ours / 1e6:.0f} MB, plain {plain / 1e6:.0f} MB"
        self.report.at_most("bytes on disk / plain Parquet", ours / plain, 1.2, detail=detail)

    def _small_commits(self) -> None:
        self.db.sql(f"CREATE TABLE small ({COLUMNS}, {INDEXES})")
        few = min(100_000, self.rows)
        self.db.table("small").upsert(
            values(self.spark, self.spark.range(0, few, 1, 2), max(1, few // PER_CUSTOMER))
        )
        for table, rows, limit in (("small", few, 50.0), ("t", self.rows, 250.0)):
            # In a new process, with empty caches and without a JVM.
            script = [
                sys.executable,
                __file__,
                "--upserts",
                table,
                "--rows",
                str(rows),
                "--folder",
                str(self.folder),
            ]
            out = subprocess.run(script, check=True, capture_output=True, text=True).stdout.split()
            first, median, jvm = float(out[0]), float(out[1]), out[2] == "True"
            detail = f"first {first:.0f} ms"
            self.report.at_most(
                f"10-row UPSERT with both indexes on {rows:,} rows", median, limit, " ms", detail
            )
            self.report.holds(
                "  without a JVM", "a JVM was started" if jvm else "no JVM was started", not jvm
            )

    def _large_commit(self) -> None:
        reading = best(3, lambda: scan(self.db.table("t").df()))
        seconds: list[float] = []
        for number in range(3):
            data = self._changed(50_000, 100 + number)
            with clocked(seconds):
                self.db.table("t").upsert(data)
        detail = f"{min(seconds):.2f} s, scan {reading:.2f} s"
        self.report.at_most(
            "50,000-row UPSERT / full scan of the table", min(seconds) / reading, 1.0, detail=detail
        )

    def _changes(self) -> None:
        for number in range(10):
            self.db.table("t").upsert(self._changed(self.rows // 1000, 200 + number))
        self._compare_scans("scan after 10 change commits / plain Parquet scan", 1.5)

    def _lookup(self) -> None:
        wanted = [self.random.randrange(self.customers) for _ in range(6)]

        def ask(source: str) -> float:
            seconds: list[float] = []
            for customer in wanted:
                with clocked(seconds):
                    self.db.sql(
                        f"SELECT id, amount, note FROM {source} WHERE customer = {customer}"
                    ).collect()
            return statistics.median(seconds[1:])

        direct, indexed = ask("t"), ask("t VIEW by_customer")
        detail = f"{indexed * 1000:.0f} ms, without {direct * 1000:.0f} ms"
        self.report.at_least(
            "index lookup, times faster than the predicate alone", direct / indexed, 10, detail=detail
        )

    def _many_commits(self) -> None:
        commits = 2_000
        seconds: list[float] = []
        batches = [upserted(self.random, self.rows, self.customers) for _ in range(commits)]
        table = self.db.table("t")
        with clocked(seconds):
            for batch in batches:
                table.upsert(batch)
        self.report.note("2,000 ten-row commits", f"{commits / seconds[0]:.1f} commits per second")
        self._compare_scans("scan after 2,000 ten-row commits / plain Parquet scan", 2.0)
        files = sum(1 for _ in self.db._runtime.files.names("data"))
        self.report.note("  data files of all tables and indexes", str(files))

    # --- what they share -----------------------------------------------------------------------------------

    def _compare_scans(self, figure: str, target: float) -> None:
        """Compare a scan of the table with a scan of the same rows written by Spark."""
        table = self.db.table("t")
        seconds: list[float] = []
        with clocked(seconds):
            scan(table.df())
        table.df().orderBy("id").write.mode("overwrite").option("compression", "zstd").parquet(
            self._path("same")
        )
        same = self.spark.read.parquet(self._path("same"))
        plain = best(5, lambda: scan(same))
        ours = best(5, lambda: scan(table.df()))
        detail = f"{ours:.2f} s, plain {plain:.2f} s, first {seconds[0]:.2f} s"
        self.report.at_most(figure, ours / plain, target, detail=detail)

    def _changed(self, number: int, salt: int) -> pa.Table:
        """Return new values for some existing rows, spread over the table."""
        ids = sorted(self.random.sample(range(self.rows), min(number, self.rows)))
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "customer": pa.array([(i * 7919 + salt) % self.customers for i in ids], pa.int64()),
                "day": pa.array([i // PER_DAY for i in ids], pa.int32()),
                "amount": pa.array([float(i % 1000) for i in ids], pa.float64()),
                "note": pa.array([f"changed {salt} {i:032d}" for i in ids], pa.string()),
            }
        )

    def _path(self, name: str) -> str:
        return str(self.folder / name)


def upserted(rng: random.Random, rows: int, customers: int) -> list[dict[str, Any]]:
    """Return ten rows: nine existing ones, spread over the table, and a new one."""
    ids = [*rng.sample(range(rows), 9), rng.randrange(rows, 2 * rows)]
    return [
        {
            "id": i,
            "customer": rng.randrange(customers),
            "day": i // PER_DAY,
            "amount": rng.random(),
            "note": f"small change of row {i:040d}",
        }
        for i in ids
    ]


def has_java_child() -> bool:
    """Return True if this process or one of its children is a JVM."""
    import os

    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            parents[int(entry.name)] = int(rest[1]), name
    ours = {os.getpid()}
    while found := {pid for pid, (parent, _) in parents.items() if parent in ours} - ours:
        ours |= found
    return any(parents[pid][1] == "java" for pid in ours if pid in parents)


def upserts(folder: Path, table: str, rows: int) -> None:
    """Make thirty ten-row commits; print the milliseconds of the first, their median, and if a JVM runs."""
    rng = random.Random(2)
    seconds: list[float] = []
    with strandline.connect(folder / "warehouse") as db:
        for _ in range(31):
            batch = upserted(rng, rows, max(1, rows // PER_CUSTOMER))
            with clocked(seconds):
                db.table(table).upsert(batch)
        print(seconds[0] * 1000, statistics.median(seconds[1:]) * 1000, has_java_child())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    folder_options(parser)
    parser.add_argument("--upserts", metavar="TABLE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.upserts:
        upserts(given.folder, given.upserts, given.rows)
        return
    with folder_of(given) as folder:
        bench = Bench(given.rows, folder)
        bench.run()
        print(f"\n{given.rows:,} rows\n{bench.report.render()}")


if __name__ == "__main__":
    main()
