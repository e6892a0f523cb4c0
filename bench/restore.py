"""Measure restores of a full backup and ten increments of 1 % each, of a table with two indexes.

    python bench/restore.py [--rows 8000000] [--increments 10] [--folder DIR] [--keep]

Compares a restore by reference with one by copy; the copy with ``cp -r`` of the same files; and restored
indexes with indexes rebuilt on Spark. Prints a table of figures; the exit code does not depend on them. Needs
about 6 GB of disk for 8 million rows.

A copy is durable when the restore returns, so ``cp -r`` is followed by ``sync`` of each file and folder that
it wrote. Both read files from the page cache. A restore by copy also compares all rows with the backup, which
``cp`` does not, so only its copying is compared.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import pyarrow as pa  # noqa: E402
from sqlalchemy import select  # noqa: E402

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from bench.tables import COLUMNS, INDEXES, PER_CUSTOMER, PER_DAY, clocked, values  # noqa: E402
from strandline.catalog import paths, sqltables  # noqa: E402

TIMES = 3
SMALLER = 8
"""The second table, which shows the cost of size, is smaller by this factor."""
SHARDS = 4


class Bench:
    def __init__(self, rows: int, increments: int, folder: Path) -> None:
        self.rows = rows
        self.increments = increments
        self.folder = folder
        self.report = Report()
        self.db = strandline.connect(
            folder / "warehouse", settings=strandline.Settings(history_seconds=0, grace_seconds=0)
        )
        self.spark = self.db._runtime.spark
        self.random = random.Random(1)
        self.restores = 0

    def run(self) -> None:
        for table, rows in (("small", self.rows // SMALLER), ("large", self.rows)):
            self._fill(table, rows)
        self._by_reference()
        self._by_copy()
        self._indexes()
        self.db.close()

    # --- what is restored ----------------------------------------------------------------------------------

    def _fill(self, table: str, rows: int) -> None:
        """Create a table and a collection with the same name: a full backup, then increments of 1 % each."""
        bounds = ", ".join(str(rows * n // SHARDS) for n in range(1, SHARDS))
        self.db.sql(
            f"""CREATE TABLE {table} ({COLUMNS}, {INDEXES}) WITH (PARTITION_AT_KEYS = ({bounds}));
                CREATE BACKUP COLLECTION {table} (TABLE {table})
                    WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true');
                CREATE BACKUP COLLECTION {table}_bare (TABLE {table})
                    WITH (STORAGE = 'cluster', OMIT_INDEXES = 'true')"""
        )
        self.db.table(table).upsert(values(self.spark, self.spark.range(0, rows, 1, 8), rows // PER_CUSTOMER))
        self.db.sql(f"BACKUP {table}")
        for number in range(self.increments):
            self.db.table(table).upsert(self._changed(rows, number))
            self.db.sql(f"BACKUP {table} INCREMENTAL")
        self.db.sql(f"BACKUP {table}_bare")

    def _changed(self, rows: int, salt: int) -> pa.Table:
        """Return new values for 1 % of the rows, spread evenly; every second one moves in an index."""
        ids = sorted(self.random.sample(range(rows), rows // 100))
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "customer": pa.array([(i * 7919 + salt) % (rows // PER_CUSTOMER) for i in ids], pa.int64()),
                "day": pa.array([i // PER_DAY for i in ids], pa.int32()),
                "amount": pa.array([float(i % 1000) for i in ids], pa.float64()),
                "note": pa.array([f"changed {salt} {i:032d}" for i in ids], pa.string()),
            }
        )

    # --- one section for each figure -----------------------------------------------------------------------

    def _by_reference(self) -> None:
        small = self._best(lambda to: self._restore("small", to))
        large = self._best(lambda to: self._restore("large", to))
        detail = f"{self.rows:,} rows, {self.increments} increments, 2 indexes"
        self.report.at_most("restore by reference", large, 5.0, " s", detail)
        detail = f"{large:.2f} s for {self.rows:,} rows, {small:.2f} s for {self.rows // SMALLER:,}"
        self.report.at_most(f"by reference, {SMALLER} times the rows", large / small, 1.5, detail=detail)
        self.reference = large

    def _by_copy(self) -> None:
        here = self.folder / "same"
        size = self._same_files(here)
        plain: list[float] = []
        ours: list[float] = []
        copying: list[float] = []
        for number in range(TIMES):  # In turns, so that other load on the machine affects both.
            there = self.folder / f"cp{number}"
            with clocked(plain):
                subprocess.run(["cp", "-r", str(here), str(there)], check=True)
                subprocess.run(["sync", str(there), *map(str, there.rglob("*"))], check=True)
            shutil.rmtree(there)
            with self._target() as target, clocked(ours):
                self._restore("large", target, "MODE = 'copy'")
            stages = self.db.operations()[-1].stages
            copying.append(sum(stage.seconds or 0.0 for stage in stages if stage.increment is not None))
        self.copied = min(ours)
        detail = f"{min(copying):.2f} s, cp -r and sync {min(plain):.2f} s, {size / 1e6:.0f} MB"
        self.report.at_most(
            "copying in a restore by copy / cp -r of the same files",
            min(copying) / min(plain),
            1.5,
            detail=detail,
        )
        self.report.note(
            "restore by copy, with all rows compared with the backup's, and indexes with tables",
            f"{self.copied:.2f} s",
        )

    def _indexes(self) -> None:
        rebuilt = self._best(lambda to: self._restore("large_bare", to), 2)
        detail = f"{self.reference:.2f} s, with indexes built again on Spark {rebuilt:.2f} s"
        self.report.at_least(
            "restore with its indexes by reference, times faster",
            rebuilt / self.reference,
            5.0,
            detail=detail,
        )
        rebuilt = self._best(lambda to: self._restore("large_bare", to, "MODE = 'copy'"), 2)
        detail = f"{self.copied:.2f} s, the table copied and its indexes built again {rebuilt:.2f} s"
        self.report.at_least(
            "restore with its indexes by copy, times faster", rebuilt / self.copied, 5.0, detail=detail
        )

    # --- what they share -----------------------------------------------------------------------------------

    def _restore(self, collection: str, target: str, settings: str = "MODE = 'reference'") -> None:
        self.db.sql(f"RESTORE {collection} INTO '{target}' WITH ({settings})")

    @contextmanager
    def _target(self) -> Iterator[str]:
        """Yield a directory; drop its tables and their files afterwards."""
        self.restores += 1
        target = f"restored{self.restores}"
        yield target
        for entry in self.db.ls(f"/{target}"):
            self.db.sql(f"DROP TABLE `{target}/{entry.name}`")
        self.db.collect()

    def _best(self, work: Callable[[str], None], times: int = TIMES) -> float:
        """Return the shortest time of several runs, which is the least disturbed one."""
        seconds: list[float] = []
        for _ in range(times):
            with self._target() as target, clocked(seconds):
                work(target)
        return min(seconds)

    def _same_files(self, folder: Path) -> int:
        """Link all files that the restore of the large table copies; return their size."""
        with self.db._runtime.catalog.read() as conn:
            below = paths.subtree(conn, paths.require(conn, "/.backups/collections/large"))
            ids = select(sqltables.chains.c.segment_id).where(
                sqltables.chains.c.table_id.in_([p.id for p in below])
            )
            files = (
                conn.execute(select(sqltables.segments.c.file).where(sqltables.segments.c.id.in_(ids)))
                .scalars()
                .all()
            )
        size = 0
        for file in filter(None, files):
            there = folder / file
            there.parent.mkdir(parents=True, exist_ok=True)
            os.link(self.db._runtime.files.path(file), there)
            size += there.stat().st_size
        return size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--increments", type=int, default=10)
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        bench = Bench(given.rows, given.increments, folder)
        bench.run()
        print(f"\n{given.rows:,} rows, {given.increments} increments of 1 %\n{bench.report.render()}")


if __name__ == "__main__":
    main()
