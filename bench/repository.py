"""Compare backups to a repository with ``cp -r``: first and later backups, encryption, restore, compaction.

    python bench/repository.py [--rows 8000000] [--increments 5] [--folder DIR] [--keep]

A table with two indexes, and repositories in folders next to the warehouse. Compared actions take turns, so
that other load on the machine affects both; the best run of each counts. A backup is durable when it returns.
So ``cp -r`` is measured alone, and with ``sync`` of each file and folder that it wrote. A restore from a
repository also compares rows with digests and indexes with tables, which ``cp`` does not. Prints a table of
figures; the exit code does not depend on them. Needs about 8 GB of disk for 8 million rows.
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import pyarrow as pa  # noqa: E402

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from bench.tables import COLUMNS, INDEXES, PER_CUSTOMER, PER_DAY, bytes_of, clocked, values  # noqa: E402

TIMES = 3
SHARDS = 8
KEY = "STRANDLINE_BENCH_KEY"


class Bench:
    def __init__(self, rows: int, increments: int, folder: Path) -> None:
        self.rows = rows
        self.increments = increments
        self.folder = folder
        self.report = Report()
        os.environ[KEY] = base64.b64encode(os.urandom(32)).decode()
        settings = strandline.Settings(history_seconds=0, grace_seconds=0, repository_key_env=KEY)
        self.db = strandline.connect(folder / "warehouse", settings=settings)
        self.spark = self.db._runtime.spark

    def run(self) -> None:
        bounds = ", ".join(str(self.rows * n // SHARDS) for n in range(1, SHARDS))
        self.db.sql(f"CREATE TABLE orders ({COLUMNS}, {INDEXES}) WITH (PARTITION_AT_KEYS = ({bounds}))")
        ids = self.spark.range(0, self.rows, 1, SHARDS)
        self.db.table("orders").upsert(values(self.spark, ids, self.rows // PER_CUSTOMER))
        self.db.compact("orders")
        self._first()
        self._from_disk()
        self._restore()
        self._verify()
        self._second()
        self._synthetic_full("here", 1)
        self._synthetic_full("everywhere", 100)
        self.db.close()

    # --- one section for each figure -----------------------------------------------------------------------

    def _first(self) -> None:
        plain: list[float] = []
        sealed: list[float] = []
        copied: list[float] = []
        synced: list[float] = []
        for number in range(TIMES):
            for seconds, name, more in (
                (plain, f"plain{number}", ""),
                (sealed, f"sealed{number}", ", ENCRYPTION = 'true'"),
            ):
                self._collection(name, more)
                with clocked(seconds):
                    self.db.sql(f"BACKUP {name}")
            self._copy(copied, synced)
        self._against_cp("first backup", min(plain), copied, synced)
        detail = f"{min(sealed):.2f} s, plain {min(plain):.2f} s"
        self.report.at_most("encrypted backup / plain", min(sealed) / min(plain), 1.5, detail=detail)

    def _from_disk(self) -> None:
        """Do the same with files that must be read from the disk, like those of a nightly backup.

        The files that ``cp`` writes are still in the page cache when it returns; the durable figure is with
        ``sync``.
        """
        plain: list[float] = []
        copied: list[float] = []
        synced: list[float] = []
        for number in range(TIMES):
            self._collection(f"read{number}")
            self._forget(self.folder / "warehouse")
            with clocked(plain):
                self.db.sql(f"BACKUP read{number}")
            self._forget(self.folder / "plain0")
            self._copy(copied, synced)
        self._against_cp("first backup of files that are on disk only", min(plain), copied, synced)

    def _against_cp(self, figure: str, ours: float, copied: list[float], synced: list[float]) -> None:
        size = bytes_of(self.folder / "plain0" / "objects") / 1e6
        rate = f"{size / ours:.0f} MB/s, {size:.0f} MB in {ours:.2f} s"
        for what, seconds in (("cp -r", min(copied)), ("cp -r and sync", min(synced))):
            detail = f"{rate}, {what} {seconds:.2f} s"
            self.report.at_least(f"{figure}, its throughput / {what}", seconds / ours, 0.8, detail=detail)

    def _forget(self, folder: Path) -> None:
        """Drop the files from the page cache."""
        for file in folder.rglob("*.parquet"):
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)  # Only pages that are on the disk can be dropped.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def _copy(self, copied: list[float], synced: list[float]) -> None:
        """Copy the objects of a repository: the files that a backup uploads."""
        there = self.folder / "cp"
        both: list[float] = []
        with clocked(both):
            with clocked(copied):
                subprocess.run(["cp", "-r", str(self.folder / "plain0" / "objects"), str(there)], check=True)
            subprocess.run(["sync", str(there), *map(str, there.rglob("*"))], check=True)
        synced += both
        shutil.rmtree(there)

    def _restore(self) -> None:
        seconds: dict[str, list[float]] = {"plain0": [], "sealed0": []}
        copied: list[float] = []
        synced: list[float] = []
        for _ in range(TIMES):
            for name, each in seconds.items():
                with clocked(each):
                    self.db.sql(f"RESTORE {name} INTO restored")
                self.db.sql("DROP TABLE `restored/orders`")
                self.db.collect()
            self._copy(copied, synced)
        plain, sealed = (min(each) for each in seconds.values())
        detail = (
            f"{plain:.2f} s with its verification, cp -r {min(copied):.2f} s, and sync {min(synced):.2f} s"
        )
        self.report.note("restore from the repository / cp -r", f"{plain / min(copied):.2f}x ({detail})")
        self.report.note("restore from the repository / cp -r and sync", f"{plain / min(synced):.2f}x")
        self.report.at_most("encrypted restore / plain", sealed / plain, 1.5, detail=f"{sealed:.2f} s")

    def _verify(self) -> None:
        seconds: dict[str, list[float]] = {"chain": [], "checksums": []}
        for _ in range(TIMES):
            for level, each in seconds.items():
                with clocked(each):
                    assert self.db.verify("plain0", level=level, again=True) == []
        chain, checksums = (min(each) for each in seconds.values())
        detail = f"{chain:.3f} s, checksums {checksums:.2f} s"
        self.report.note("verification: chain / checksums", f"{chain / checksums:.3f}x ({detail})")

    def _second(self) -> None:
        before = bytes_of(self.folder / "plain0")
        self._change(0, 100)
        seconds: list[float] = []
        with clocked(seconds):
            self.db.sql("BACKUP plain0")
        more = bytes_of(self.folder / "plain0") - before
        self.report.at_most(
            "second full backup, 1 % changed, its bytes / the first",
            more / before,
            0.05,
            detail=f"{more / 1e6:.1f} MB in {seconds[0]:.2f} s, the first {before / 1e6:.0f} MB",
        )

    def _synthetic_full(self, where: str, spread: int) -> None:
        """Compare a full backup compacted from its chain with a new one that is uploaded.

        ``where``: what changes, in words.
        """
        chain = self._collection(f"chain_{where}", ", INCREMENTAL_BACKUP_ENABLED = 'true'")
        self.db.sql(f"BACKUP chain_{where}")
        for number in range(self.increments):
            self._change(number + 1, spread)
            self.db.sql(f"BACKUP chain_{where} INCREMENTAL")
        self.db.compact("/orders")  # So that both have the same number of rows to move.
        before = bytes_of(chain)
        folded: list[float] = []
        fresh: list[float] = []
        with clocked(folded):
            self.db.sql(f"COMPACT chain_{where}")
        written = bytes_of(chain) - before
        anew = self._collection(f"fresh_{where}")
        with clocked(fresh):
            self.db.sql(f"BACKUP fresh_{where}")
        sent = bytes_of(anew)
        times = f"{folded[0] / fresh[0]:.2f}x ({folded[0]:.2f} s, a new full backup {fresh[0]:.2f} s)"
        self.report.note(f"synthetic full / fresh full, {self.increments} increments of 1 % {where}", times)
        detail = f"{written / 1e6:.1f} MB, a full backup {sent / 1e6:.1f} MB"
        self.report.at_most("... bytes written to the repository", written / sent, 1.1, detail=detail)

    # --- what they share -----------------------------------------------------------------------------------

    def _collection(self, name: str, more: str = "") -> Path:
        """Create a collection; return the folder of its repository."""
        where = self.folder / name
        self.db.sql(f"CREATE BACKUP COLLECTION {name} (TABLE orders) WITH (STORAGE = '{where}'{more})")
        return where

    def _change(self, number: int, spread: int) -> None:
        """Write new values for 1 % of the rows: every ``spread``-th from an offset."""
        count = self.rows // 100
        first = self.rows // 2 + number * count if spread == 1 else number
        ids = [first + i * spread for i in range(count)]
        self.db.table("orders").upsert(
            pa.table(
                {
                    "id": pa.array(ids, pa.int64()),
                    "customer": pa.array([i % (self.rows // PER_CUSTOMER) for i in ids], pa.int64()),
                    "day": pa.array([i // PER_DAY for i in ids], pa.int32()),
                    "amount": pa.array([float(i % 1000) for i in ids], pa.float64()),
                    "note": pa.array([f"changed {number} {i:032d}" for i in ids], pa.string()),
                }
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--increments", type=int, default=5)
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        bench = Bench(given.rows, given.increments, folder)
        bench.run()
        print(f"\n{given.rows:,} rows, two indexes\n{bench.report.render()}")


if __name__ == "__main__":
    main()
