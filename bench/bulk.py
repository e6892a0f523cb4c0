"""Measure bulk ways in and out beside plain Spark, and how much memory they take at two sizes.

    python bench/bulk.py [--rows 2000000] [--times 10] [--bulk-bytes 262144] [--folder DIR] [--keep]

Loads CSV files, writes a DataFrame with ``format("strandline")``, and exports a table to folders of CSV and
Parquet files, with ``rows`` and with ``rows`` / ``times`` rows in random order. Each size has its own
process. Plain Spark reads the same input and writes files of the same kind, sorted by key where the result
is a table. The budget of the process is small, so that executors do the work as with much larger data.
Memory is the highest of the calling process, and of all Python processes of Spark: its tasks, and the commit
of a DataFrame. Prints a table of figures; the exit code does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from strandline import Settings  # noqa: E402

MOST_TIME, MOST_MEMORY = 1.5, 1.3
WAYS = ("CSV load", "data source write", "export to CSV", "export to Parquet")


class Peaks:
    """The highest memory of this process and of its Python descendants since ``reset``, in MB."""

    def __init__(self) -> None:
        self.workers = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Forget the peak of this process, where the system allows it, and those of the workers."""
        self.workers = 0.0
        Path("/proc/self/clear_refs").write_text("5")

    @property
    def own(self) -> float:
        return _megabytes(os.getpid(), "VmHWM")

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for pid in _descendants(os.getpid()):
                self.workers = max(self.workers, _megabytes(pid, "VmRSS"))


def _megabytes(pid: int, field: str) -> float:
    """Return a figure of a Python process; 0 for a process that is gone or is not Python."""
    try:
        told = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    said = dict(line.partition(":")[::2] for line in told)
    return int(said[field].split()[0]) / 1024 if "python" in said["Name"] and field in said else 0.0


def _descendants(pid: int) -> Iterator[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield child
        yield from _descendants(child)


class Bench:
    """The measurements of one size."""

    def __init__(self, rows: int, folder: Path, settings: Settings) -> None:
        self.rows = rows
        self.folder = folder
        self.db = strandline.connect(folder / "warehouse", settings=settings)
        self.spark = self.db.spark
        strandline.register(self.spark, str(folder / "warehouse"))
        self.peaks = Peaks()
        self.figures: dict[str, dict[str, float]] = {}

    def run(self) -> dict[str, dict[str, float]]:
        """Return seconds and megabytes by way."""
        schema = "id LONG, customer STRING, amount DOUBLE"
        source = self.spark.range(0, self.rows, 1, 8).selectExpr(
            f"id * 7919 % {self.rows} AS id",
            "concat('customer ', id % 5000) AS customer",
            "rand(1) AS amount",
        )
        source.write.option("header", "true").csv(self._at("in"))
        frame = self.spark.read.schema(schema).option("header", "true").csv(self._at("in"))
        self.spark.range(100).selectExpr("id", "id AS v").mapInArrow(lambda b: b, "id LONG, v LONG").count()

        def sort(place: str) -> None:
            ordered = frame.repartitionByRange("id").sortWithinPartitions("id")
            ordered.write.option("compression", "zstd").parquet(self._at(place))

        def save() -> None:
            frame.write.format("strandline").option("key", "id").mode("append").save("/saved")

        types = {"id": "Int64", "customer": "Utf8", "amount": "Double"}
        loads = self._at("in/*.csv")
        self._compare(
            "CSV load", lambda: self.db.load("/loaded", loads, key=["id"], types=types), lambda: sort("p1")
        )
        self._compare("data source write", save, lambda: sort("p2"))
        stored = self.spark.read.parquet(self._at("p1"))
        for kind in ("CSV", "Parquet"):
            out, plain = self._at(f"out {kind}"), self._at(f"plain {kind}")
            self._compare(
                f"export to {kind}",
                partial(self.db.sql, f"EXPORT loaded TO '{out}' WITH (FORMAT = '{kind}')"),
                partial(getattr(stored.write, kind.lower()), plain),
            )
        assert self.db.describe("/loaded")["rows"] == self.db.describe("/saved")["rows"] == self.rows
        self.db.close()
        return self.figures

    def _compare(self, way: str, ours: Callable[[], Any], plain: Callable[[], Any]) -> None:
        theirs = _clock(plain)
        time.sleep(0.5)  # Workers of the job before end or become idle.
        self.peaks.reset()
        seconds = _clock(ours)
        self.figures[way] = {
            "seconds": seconds,
            "plain": theirs,
            "own": self.peaks.own,
            "workers": self.peaks.workers,
        }

    def _at(self, name: str) -> str:
        return str(self.folder / name)


def _clock(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--times", type=int, default=10, help="the other size has that many times fewer rows")
    parser.add_argument("--bulk-bytes", type=int, default=1 << 18)
    parser.add_argument("--only", action="store_true", help="measure one size, and print it as JSON")
    folder_options(parser)
    given = parser.parse_args()
    if given.only:
        settings = replace(Settings(), bulk_bytes=given.bulk_bytes, bulk_rows=1000, shard_bytes=8 << 20)
        print(json.dumps(Bench(given.rows, given.folder, settings).run()))
        return
    report = Report()
    with folder_of(given) as folder:
        few = _measure(given.rows // given.times, folder / "few", given)
        many = _measure(given.rows, folder / "many", given)
    for way in WAYS:
        one, other = few[way], many[way]
        report.at_most(
            f"{way}: time, plain Spark is 1",
            other["seconds"] / other["plain"],
            MOST_TIME,
            detail=f"{other['seconds']:.1f} s, {given.rows:,} rows",
        )
        for who, where in (("own", "calling process"), ("workers", "largest Python of Spark")):
            report.at_most(
                f"{way}: memory of the {where}, {given.times} times fewer rows are 1",
                other[who] / max(one[who], 1),
                MOST_MEMORY,
                detail=f"{other[who]:.0f} MB",
            )


def _measure(rows: int, folder: Path, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    folder.mkdir(parents=True)
    command = [sys.executable, __file__, "--only", "--rows", str(rows), "--folder", str(folder)]
    done = subprocess.run(
        [*command, "--bulk-bytes", str(given.bulk_bytes)], stdout=subprocess.PIPE, text=True, check=True
    )
    if not given.keep:
        shutil.rmtree(folder)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
