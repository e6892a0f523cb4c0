"""Measure full backups and increments as the table grows, and their effect on writers.

    python bench/backup.py [--sizes 500000,2000000,8000000] [--changes 100000] [--folder DIR] [--keep]

All figures except one are ratios within one run. Prints a table; the exit code does not depend on it. Needs
about 3 GB of disk for the default sizes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = "id Int64 NOT NULL, customer Int64, day Int32, amount Double, note Utf8, PRIMARY KEY (id)"
INDEX = "INDEX by_customer GLOBAL SYNC ON (customer) COVER (amount)"
OPTIONS = "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
FULL_RATIO, FULL_SECONDS, INCREMENT_RATIO, WRITE_RATIO = 1.5, 2.0, 1.5, 1.1


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Bench:
    def __init__(self, sizes: list[int], changes: int, folder: Path) -> None:
        self.sizes = sorted(sizes)
        self.changes = min(changes, self.sizes[0])
        self.folder = folder
        self.report = Report()
        self.db = strandline.connect(folder / "warehouse")
        self.spark = self.db._runtime.spark
        self.salt = 0

    def run(self) -> None:
        self._load()
        self._full()
        self._increments()
        self._one_percent()
        self._writers()
        self.db.close()

    # --- one section for each figure -----------------------------------------------------------------------

    def _load(self) -> None:
        for size in self.sizes:
            self.db.sql(
                f"""CREATE TABLE t{size} ({COLUMNS}, {INDEX});
                    CREATE BACKUP COLLECTION c{size} (TABLE t{size}) {OPTIONS}"""
            )
            taken = seconds(
                lambda size=size: self.db.table(f"t{size}").upsert(
                    self._rows(self.spark.range(0, size, 1, 8))
                )
            )
            self.report.note(f"load of {size:,} rows with an index", f"{taken:.1f} s")

    def _full(self) -> None:
        taken = {
            size: min(seconds(lambda size=size: self.db.sql(f"BACKUP c{size}")) for _ in range(3))
            for size in self.sizes
        }
        smallest, largest = self.sizes[0], self.sizes[-1]
        shown = ", ".join(f"{size:,}: {t:.2f} s" for size, t in taken.items())
        self.report.at_most(
            "full backup, largest table / smallest",
            taken[largest] / taken[smallest],
            FULL_RATIO,
            detail=shown,
        )
        self.report.at_most(f"full backup of {largest:,} rows", taken[largest], FULL_SECONDS, " s")

    def _increments(self) -> None:
        taken: dict[int, list[float]] = {size: [] for size in self.sizes}
        for _ in range(3):
            self.salt += 1
            for size in self.sizes:  # In turn, so that other load on the machine affects all of them.
                self._change(size, self.changes, self.sizes[0])
                taken[size].append(seconds(lambda size=size: self.db.sql(f"BACKUP c{size} INCREMENTAL")))
        best = {size: min(times) for size, times in taken.items()}
        shown = ", ".join(f"{size:,}: {t:.2f} s" for size, t in best.items())
        figure = f"increment of {self.changes:,} changes, largest table / smallest"
        self.report.at_most(figure, best[self.sizes[-1]] / best[self.sizes[0]], INCREMENT_RATIO, detail=shown)

    def _one_percent(self) -> None:
        size = self.sizes[-1]
        times = []
        for _ in range(3):
            self.salt += 1
            self._change(size, size // 100, size)
            times.append(seconds(lambda: self.db.sql(f"BACKUP c{size} INCREMENTAL")))
        ours = min(times)
        files = [str(self.db._runtime.files.path(name)) for name in self._files(size)]
        copies = self.folder / "copies"

        def copy() -> None:
            shutil.rmtree(copies, ignore_errors=True)
            copies.mkdir()
            subprocess.run(["cp", *files, str(copies)], check=True)
            subprocess.run(["sync", "-f", str(copies)], check=True)  # Ours are durable, too.

        copied = min(seconds(copy) for _ in range(2))
        target = str(self.folder / "rewritten")
        rewritten = min(
            seconds(lambda: self.db.table(f"t{size}").df().write.mode("overwrite").parquet(target))
            for _ in range(2)
        )
        changed = f"increment of 1 % of {size:,} rows"
        volume = sum(Path(f).stat().st_size for f in files) / 1e6
        self.report.note(
            f"{changed} / cp of the table's files",
            f"{ours / copied:.2f}x ({ours:.2f} s, cp {copied:.2f} s, {volume:.0f} MB)",
        )
        self.report.note(
            f"{changed} / Spark rewrite of the table", f"{ours / rewritten:.2f}x (rewrite {rewritten:.2f} s)"
        )

    def _writers(self) -> None:
        """Compare commits to two equal tables, one of them with streams.

        The commits take turns, so that other load on the machine affects both.
        """
        for name in ("off", "on"):
            self.db.sql(f"CREATE TABLE {name} ({COLUMNS}, {INDEX})")
            self.db.table(name).upsert(self._rows(self.spark.range(0, self.sizes[0], 1, 4)))
        self.db.sql(f"CREATE BACKUP COLLECTION writers (TABLE `on`) {OPTIONS}; BACKUP writers")
        for rows, commits in ((10, 150), (5_000, 12)):
            rng = random.Random(rows)
            taken: dict[str, list[float]] = {"off": [], "on": []}
            for number in range(commits + 2):
                batch = [self._row(i, number) for i in rng.sample(range(self.sizes[0]), rows)]
                for name in ("off", "on") if number % 2 else ("on", "off"):
                    taken[name].append(
                        seconds(lambda name=name, batch=batch: self.db.table(name).upsert(batch))
                    )
            off, on = (statistics.median(taken[name][2:]) for name in ("off", "on"))
            detail = f"{on * 1000:.1f} ms, without {off * 1000:.1f} ms"
            self.report.at_most(
                f"{rows:,}-row UPSERT, with streams / without", on / off, WRITE_RATIO, detail=detail
            )

    # --- what they share -----------------------------------------------------------------------------------

    def _rows(self, ids: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        mixed = F.xxhash64("id", F.lit(self.salt))
        return ids.select(
            "id",
            F.pmod(mixed, F.lit(max(1, self.sizes[0] // 10))).alias("customer"),
            F.floor(F.col("id") / 20_000).cast("int").alias("day"),
            (F.pmod(mixed, F.lit(1_000_000)) / 100).cast("double").alias("amount"),
            F.concat(
                F.lit("order "),
                F.hex(mixed),
                F.lit(" "),
                F.sha2(F.col("id").cast("string"), 256).substr(1, 32),
            ).alias("note"),
        )

    def _change(self, size: int, count: int, among: int) -> None:
        """Write new values for ``count`` of the first ``among`` rows, evenly spread.

        Equal arguments give equal changes in every table.
        """
        from pyspark.sql import functions as F

        ids = self.spark.range(0, count, 1, 2).select((F.col("id") * (among // count)).alias("id"))
        self.db.table(f"t{size}").upsert(self._rows(ids))

    def _row(self, number: int, salt: int) -> dict[str, Any]:
        note = f"changed {salt} {number:032d}"
        return {
            "id": number,
            "customer": (number * 7919 + salt) % 1000,
            "day": number // 20_000,
            "amount": number / 7,
            "note": note,
        }

    def _files(self, size: int) -> list[str]:
        from strandline.catalog import chains, paths
        from strandline.catalog.transactions import current_step

        with self.db._runtime.catalog.read() as conn:
            ids = [paths.require(conn, p).id for p in (f"/t{size}", f"/t{size}/by_customer/indexImplTable")]
            found = [s for i in ids for s in chains.load(conn, i, current_step(conn)).segments]
        return [s.file for s in found if s.file is not None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="500000,2000000,8000000")
    parser.add_argument("--changes", type=int, default=100_000)
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        bench = Bench([int(size) for size in given.sizes.split(",")], given.changes, folder)
        bench.run()
        print(f"\n{bench.report.render()}")


if __name__ == "__main__":
    main()
