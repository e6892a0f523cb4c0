"""Measure writers beside operations of other processes that write to the same catalog in a loop.

    python bench/fairness.py [--seconds 15] [--rounds 2] [--parts 400] [--catalog URL]

Two processes upsert ten rows at a time, each into its own table: alone, beside a process that backs up these
tables in a loop, and beside one that restores a table of many shards in a loop. Rounds alternate, so that
other load on the machine changes all of them. Prints a table; the exit code does not depend on it. Needs no
Spark.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import strandline  # noqa: E402
from bench.report import Report  # noqa: E402
from strandline import Database  # noqa: E402

WRITERS = ("a", "b")
OPTIONS = "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
INDEX = "INDEX by_v GLOBAL SYNC ON (v)"
SHARE = 0.5


class Counted(NamedTuple):
    """What one process has done: statements, and seconds of processor time."""

    statements: int
    busy: float


def prepare(db: Database, parts: int) -> None:
    for name in WRITERS:
        db.sql(f"CREATE TABLE {name} (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), {INDEX})")
    keys = ", ".join(str(10 * n) for n in range(1, parts))
    db.sql(
        "CREATE TABLE sharded (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k)) "
        f"WITH (PARTITION_AT_KEYS = ({keys}))"
    )
    db.table("sharded").upsert([{"k": n, "v": "x"} for n in range(10 * parts)])
    db.sql(f"CREATE BACKUP COLLECTION large (TABLE sharded) {OPTIONS}")
    db.sql("BACKUP large")
    db.table("sharded").upsert([{"k": 10 * n, "v": "y"} for n in range(parts)])
    db.sql("BACKUP large INCREMENTAL")
    db.sql("CREATE TABLE c (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    db.table("c").upsert([{"k": 1, "v": "x"}])
    db.sql(f"CREATE BACKUP COLLECTION small (TABLE a, TABLE b, TABLE c) {OPTIONS}")


def work(db: Database, role: str, until: float) -> int:
    """Do one thing in a loop; return how often."""
    count = 0
    while time.time() < until:
        if role in WRITERS:
            db.table(role).upsert([{"k": 100 * count + n, "v": str(n)} for n in range(10)])
        elif role == "backup":
            db.sql("BACKUP small")
        else:
            db.sql(f"RESTORE large INTO `r{os.getpid()}-{count}`")
        count += 1
    return count


def run(folder: str, catalog: str | None, role: str, seconds: float) -> None:
    """Be one of the processes: work for ``seconds`` from the line of input on, then print a count."""
    with strandline.connect(folder, catalog=catalog) as db:
        if role in WRITERS:
            db.table(role).upsert([{"k": 0, "v": "first"}])
        print("ready", flush=True)
        sys.stdin.readline()
        busy = time.process_time()
        count = work(db, role, time.time() + seconds)
        print(count, time.process_time() - busy, flush=True)


def measure(folder: str, catalog: str | None, roles: Sequence[str], seconds: float) -> dict[str, Counted]:
    options = ["--catalog", catalog] if catalog else []
    command = [sys.executable, __file__, "--folder", folder, "--seconds", str(seconds), *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*command, "--role", role], **pipes) for role in roles]  # type: ignore[call-overload]
    for process in started:
        process.stdout.readline()
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    found = {}
    for role, process in zip(roles, started, strict=True):
        statements, busy = process.communicate()[0].split()
        found[role] = Counted(int(statements), float(busy))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parts", type=int, default=400)
    parser.add_argument("--catalog", help="URL of an empty PostgreSQL database; SQLite by default")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--role", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role:
        run(chosen.folder, chosen.catalog, chosen.role, chosen.seconds)
        return
    report = Report()
    report.note(
        "machine", f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} before the start"
    )
    beside = {"alone": (), "beside BACKUP in a loop": ("backup",), "beside RESTORE in a loop": ("restore",)}
    totals = dict.fromkeys(beside, 0)
    with tempfile.TemporaryDirectory() as folder:
        with strandline.connect(folder, catalog=chosen.catalog) as db:
            prepare(db, chosen.parts)
        for _ in range(chosen.rounds):
            for name, others in beside.items():
                found = measure(folder, chosen.catalog, (*WRITERS, *others), chosen.seconds)
                totals[name] += sum(found[writer].statements for writer in WRITERS)
                print(f"  {name}: {found}", flush=True)
    spent = chosen.rounds * chosen.seconds
    report.note("two writers alone", f"{totals['alone'] / spent:.1f} statements/s")
    for name in list(beside)[1:]:
        share = totals[name] / max(totals["alone"], 1)
        report.at_least(
            f"two writers {name}", share, SHARE, detail=f"{totals[name] / spent:.1f} statements/s"
        )
    print()
    print(report.render())


if __name__ == "__main__":
    main()
