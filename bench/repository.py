"""What it costs to keep backups in a repository, in ratios to the simplest way to the same end, on the same
machine in the same run.

    python bench/repository.py [--rows 500000] [--increments 5] [--folder DIR] [--keep]

A table with two indexes is backed up into a folder: in full, then what changed, 1 % of the rows each time, in
one place of the table or all over it. Prints a table of figures. The exit code says nothing about them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import pyarrow as pa  # noqa: E402

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from bench.tables import COLUMNS, INDEXES, PER_CUSTOMER, PER_DAY, bytes_of, clocked, values  # noqa: E402

SHARDS = 8


class Bench:
    def __init__(self, rows: int, increments: int, folder: Path) -> None:
        self.rows = rows
        self.increments = increments
        self.folder = folder
        self.report = Report()
        self.db = strandline.connect(
            folder / "warehouse", settings=strandline.Settings(history_seconds=0, grace_seconds=0)
        )

    def run(self) -> None:
        spark = self.db.runtime.spark
        for name, spread in (("here", 1), ("everywhere", 100)):
            bounds = ", ".join(str(self.rows * n // SHARDS) for n in range(1, SHARDS))
            self.db.sql(f"CREATE TABLE {name} ({COLUMNS}, {INDEXES}) WITH (PARTITION_AT_KEYS = ({bounds}))")
            rows = values(spark, spark.range(0, self.rows, 1, SHARDS), self.rows // PER_CUSTOMER)
            self.db.table(name).upsert(rows)
            self.db.compact(f"/{name}")
            self._synthetic_full(name, spread)
        self.db.close()

    def _collection(self, name: str, table: str) -> Path:
        """A collection of its own, and the folder of its repository."""
        where = self.folder / name
        self.db.sql(
            f"""CREATE BACKUP COLLECTION {name} (TABLE {table})
                    WITH (STORAGE = '{where}', INCREMENTAL_BACKUP_ENABLED = 'true');
                BACKUP {name}"""
        )
        return where

    def _changed(self, number: int, spread: int) -> pa.Table:
        """New values for 1 % of the rows: every ``spread``-th from somewhere on."""
        count = self.rows // 100
        first = self.rows // 2 + number * count if spread == 1 else number
        ids = [first + i * spread for i in range(count)]
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "customer": pa.array([i % (self.rows // PER_CUSTOMER) for i in ids], pa.int64()),
                "day": pa.array([i // PER_DAY for i in ids], pa.int32()),
                "amount": pa.array([float(i % 1000) for i in ids], pa.float64()),
                "note": pa.array([f"changed {number} {i:032d}" for i in ids], pa.string()),
            }
        )

    def _synthetic_full(self, table: str, spread: int) -> None:
        """A full backup that is folded from its chain, against one that is taken anew and sent."""
        where = self._collection(f"chain_{table}", table)
        for number in range(self.increments):
            self.db.table(table).upsert(self._changed(number, spread))
            self.db.sql(f"BACKUP chain_{table} INCREMENTAL")
        self.db.compact(f"/{table}")  # so that both have the same number of rows to move
        before = bytes_of(where)
        folded: list[float] = []
        fresh: list[float] = []
        with clocked(folded):
            self.db.sql(f"COMPACT chain_{table}")
        written = bytes_of(where) - before
        with clocked(fresh):
            anew = self._collection(f"fresh_{table}", table)
        sent = bytes_of(anew)
        what = f"{self.rows:,} rows, {self.increments} increments of 1 % {table}"
        times = f"{folded[0] / fresh[0]:.2f}x ({folded[0]:.2f} s, a full backup sent anew {fresh[0]:.2f} s)"
        self.report.note(f"synthetic full / fresh full, {what}", times)
        detail = f"{written / 1e6:.1f} MB, a full backup {sent / 1e6:.1f} MB"
        self.report.at_most("... bytes written to the repository", written / sent, 1.1, detail=detail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--increments", type=int, default=5)
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        bench = Bench(given.rows, given.increments, folder)
        bench.run()
    print(bench.report.render())


if __name__ == "__main__":
    main()
