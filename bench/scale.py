"""Measure the driver's own process as a table grows: memory, bytes read and written, processor time.

    python bench/scale.py [--sizes 500000,2000000,8000000,32000000] [--changes 80000] [--folder DIR] [--keep]

Spark does the rest, so none of these should grow. Each action is measured in a new process, from its start to
its end, without Spark's processes. Prints a table; the exit code does not depend on it. Needs about 15 GB of
disk for the default sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from bench.tables import COLUMNS, best, clocked, values  # noqa: E402

INDEX = "INDEX by_customer GLOBAL SYNC ON (customer) COVER (amount)"
OPTIONS = "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
ACTIONS = ("load", "restore by copy", "check", "increment")
GROWTH, COPY = 1.3, 0.8
TIMES = 7


@dataclass(frozen=True)
class Cost:
    """The resources that a process has used so far."""

    memory: float
    """Peak memory in MB."""
    read: float
    written: float
    cpu: float

    @staticmethod
    def now() -> Cost:
        io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        status = Path("/proc/self/status").read_text().splitlines()
        peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
        return Cost(int(peak) / 1e3, int(io["rchar"]) / 1e6, int(io["wchar"]) / 1e6, time.process_time())


# --- in the process that is measured ----------------------------------------------------------------------


def act(folder: Path, action: str, size: int, changes: int) -> dict[str, Any]:
    """Run one action on the table; return the resources that it used in this process."""
    gone = strandline.Settings(history_seconds=0, grace_seconds=0) if action == "copy" else None
    with strandline.connect(folder / f"w{size}", settings=gone) as db:
        begun, taken = Cost.now(), time.perf_counter()
        if action == "load":
            spark = db._runtime.spark
            db.sql(f"CREATE TABLE t ({COLUMNS}, {INDEX}); CREATE BACKUP COLLECTION c (TABLE t) {OPTIONS}")
            db.table("t").upsert(values(spark, spark.range(0, size, 1, 16), size // 10))
        elif action == "change":
            from pyspark.sql import functions as F

            spark = db._runtime.spark
            ids = spark.range(0, changes, 1, 2).select((F.col("id") * (size // changes)).alias("id"))
            db.table("t").upsert(values(spark, ids, size // 10, salt=7))
        elif action == "full backup":
            db.sql("BACKUP c")
        elif action == "restore by copy":
            db.sql("RESTORE c INTO 'copied' WITH (MODE = 'copy', VERIFY = 'data')")
        elif action == "check":
            if problems := db.check("/t").problems:
                raise SystemExit(f"the table is not as it should be: {problems[0].message}")
        elif action == "increment":
            db.sql("BACKUP c INCREMENTAL")
        elif action == "copy":
            return copying(db, folder)
        cost, seconds = Cost.now(), time.perf_counter() - taken
        return {
            **vars(cost),
            "own": cost.read + cost.written - begun.read - begun.written,
            "seconds": seconds,
        }


def copying(db: strandline.Database, folder: Path) -> dict[str, Any]:
    """Measure copying the segments as a restore does, before it checks their rows.

    Compared with ``cp -r`` of the same files, and with ``cp -r`` and ``sync``, because our copies are
    durable. The measurements alternate, because other load on the machine changes.
    """
    from strandline.catalog import chains, paths
    from strandline.catalog.transactions import current_step
    from strandline.errors import StrandlineError
    from strandline.storage.segment_files import Copies
    from strandline.storage.spark.tasks import on_executors
    from strandline.storage.throttle import Throttle

    with db._runtime.catalog.read() as conn:
        ids = [paths.require(conn, p).id for p in ("/t", "/t/by_customer/indexImplTable")]
        tables = [chains.load(conn, i, current_step(conn)).segments for i in ids]
    found = [s for segments in tables for s in segments]
    files = [db._runtime.files.path(s.file) for s in found if s.file is not None]
    source, target = folder / "cp-from", folder / "cp-to"
    source.mkdir()
    for number, file in enumerate(files):
        (source / str(number)).symlink_to(file)

    def plain() -> None:
        subprocess.run(["cp", "-rL", str(source), str(target)], check=True)

    def durable() -> None:
        plain()
        subprocess.run(["sync", "-f", str(target)], check=True)

    store, made = db._runtime.store, list[list[Any] | StrandlineError]()

    def ours() -> None:
        wanted = [
            Copies(segments, db._runtime.session.file_name(i))
            for i, segments in zip(ids, tables, strict=True)
        ]
        throttle = Throttle(db._runtime.limits, db._runtime.clock)
        made[:] = store.copy(wanted, throttle, among=sum(s.bytes for s in found))

    db._runtime.spark.range(1).collect()  # A session that is already running takes no time to start.
    seconds: dict[str, list[float]] = {"cp": [], "durable": [], "ours": []}
    for _ in range(TIMES + 1):
        for way, work in (("cp", plain), ("durable", durable), ("ours", ours)):
            os.sync()  # Pages that others have not written yet must not be counted.
            with clocked(seconds[way]):
                work()
            # Each one finds the memory that the last copy has freed.
            if way == "ours":
                for each in made:
                    if isinstance(each, StrandlineError):
                        raise each
                    store.discard(each)
            else:
                shutil.rmtree(target)
    idle = {n: best(3, partial(on_executors, db._runtime.spark, abs, range(n))) for n in (2, 6)}
    shutil.rmtree(source)
    size = sum(Path(f).stat().st_size for f in files)
    # The first run of each is cold: files not cached, code not compiled, no Python on executors.
    medians = {way: statistics.median(each[1:]) for way, each in seconds.items()}
    return {**medians, "bytes": size, "idle": list(idle.values())}


# --- in the process that reports --------------------------------------------------------------------------


class Bench:
    def __init__(self, sizes: list[int], changes: int, folder: Path) -> None:
        self.sizes = sorted(sizes)
        self.changes = min(changes, self.sizes[0])
        self.folder = folder
        self.report = Report()

    def run(self) -> None:
        costs: dict[str, list[dict[str, Any]]] = {action: [] for action in ACTIONS}
        for size in self.sizes:
            with self._removed(size):
                for action in ("load", "full backup", "restore by copy", "check", "change", "increment"):
                    found = self._measured(action, size)
                    if action in costs:
                        costs[action].append(found)
                        self._note(action, size, found)
                if size == self.sizes[-1]:
                    self._copy(size)
        for action in ACTIONS:
            self._growth(action, costs[action])

    def _note(self, action: str, size: int, found: dict[str, Any]) -> None:
        self.report.note(
            f"{action}, {size:,} rows",
            f"{found['memory']:.0f} MB at most, {found['read']:.1f} MB read, "
            f"{found['written']:.1f} MB written ({found['own']:.1f} MB since it began), "
            f"{found['cpu']:.2f} s of {found['seconds']:.1f} s",
        )

    def _growth(self, action: str, found: list[dict[str, Any]]) -> None:
        for what, of in (
            ("peak memory", lambda f: f["memory"]),
            ("bytes read and written", lambda f: f["read"] + f["written"]),
            ("processor time", lambda f: f["cpu"]),
        ):
            smallest, largest = of(found[0]), of(found[-1])
            detail = f"{smallest:.1f} to {largest:.1f}"
            self.report.at_most(
                f"{action}: {what}, largest / smallest", largest / smallest, GROWTH, detail=detail
            )

    def _copy(self, size: int) -> None:
        found = self._measured("copy", size)
        few, more = found["idle"]
        self.report.note("a job of 2 and of 6 tasks that do nothing", f"{few:.2f} s and {more:.2f} s")
        volume = found["bytes"] / 1e6
        rates = {way: f"{volume / found[way]:.0f} MB/s" for way in ("ours", "cp", "durable")}
        what = f"copy of the segments of {size:,} rows, speed /"
        detail = f"{rates['ours']}, cp {rates['cp']}, {volume:.0f} MB"
        self.report.at_least(f"{what} cp -r", found["cp"] / found["ours"], COPY, detail=detail)
        detail = f"{rates['ours']}, cp and sync {rates['durable']}"
        self.report.at_least(f"{what} cp -r; sync", found["durable"] / found["ours"], COPY, detail=detail)

    def _measured(self, action: str, size: int) -> dict[str, Any]:
        script = [sys.executable, __file__, "--act", action, "--sizes", str(size)]
        script += ["--changes", str(self.changes), "--folder", str(self.folder)]
        out = subprocess.run(script, check=True, stdout=subprocess.PIPE, text=True).stdout
        return dict(json.loads(out.splitlines()[-1]))

    @contextmanager
    def _removed(self, size: int) -> Iterator[None]:
        """Keep only one table at a time on the disk."""
        yield
        shutil.rmtree(self.folder / f"w{size}", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="500000,2000000,8000000,32000000")
    parser.add_argument("--changes", type=int, default=80_000)
    parser.add_argument("--act", help=argparse.SUPPRESS)
    folder_options(parser)
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    if given.act:
        print(json.dumps(act(given.folder, given.act, sizes[0], given.changes)))
        return
    with folder_of(given) as folder:
        bench = Bench(sizes, given.changes, folder)
        bench.run()
        print(f"\n{bench.report.render()}")


if __name__ == "__main__":
    main()
