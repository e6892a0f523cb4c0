"""Measure what a person waits for: commands on metadata, and the time from installation to the demo.

    python bench/cli.py [--tables 1000] [--runs 5] [--install]

Each figure is the median of cold runs: a new process, with nothing cached but the operating system's pages.
Modules are compiled, as in an installed package. The first figures are for comparison: an interpreter that
does nothing, and one that imports what every catalog command needs. The last two commands read and write
rows, which also loads Arrow. ``--install`` also creates a virtual environment, installs Strandline into it
and runs the demo; this downloads all dependencies.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import strandline  # noqa: E402
from bench.report import Report  # noqa: E402

LIMIT = 0.5

SCALE = ("pass", "import sqlalchemy", "import sqlalchemy, typer")
METADATA = (
    ["ls"],
    ["ls", "--long"],
    ["tree"],
    ["describe", "/t0000"],
    ["show-backup", "nightly"],
    ["operations", "list"],
    ["sql", "SHOW TABLES"],
    ["--help"],
)
ROWS = (["sql", "SELECT v FROM t0000 WHERE k = 1"], ["sql", "UPSERT INTO t0000 (k, v) VALUES (2, 'two')"])


def make_tables(folder: str, count: int) -> None:
    with strandline.connect(folder) as db:
        db.sql(
            "; ".join(
                f"CREATE TABLE t{i:04} (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))" for i in range(count)
            )
        )
        db.sql("UPSERT INTO t0000 (k, v) VALUES (1, 'one')")
        db.sql("CREATE BACKUP COLLECTION nightly (TABLE t0000) WITH (STORAGE = 'cluster')")
        db.sql("BACKUP nightly")


def seconds(command: list[str], runs: int) -> float:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def measure_commands(report: Report, tables: int, runs: int) -> None:
    for code in SCALE:
        report.note(f"python -c '{code}'", f"{seconds([sys.executable, '-c', code], runs):.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        make_tables(folder, tables)
        strandline_ = [sys.executable, "-m", "strandline.cli", "-w", folder]
        for args in METADATA:
            report.at_most(
                f"strandline {' '.join(args)}, {tables} tables",
                seconds([*strandline_, *args], runs),
                LIMIT,
                " s",
            )
        for args in ROWS:  # These load Arrow, which takes most of the time.
            report.note(f"strandline {' '.join(args)}", f"{seconds([*strandline_, *args], runs):.2f} s")


def measure_install(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        bin_ = Path(folder, "bin")
        started = time.perf_counter()
        subprocess.run(
            [bin_ / "pip", "install", "--quiet", str(ROOT), "-c", str(ROOT / "constraints.txt")], check=True
        )
        installed = time.perf_counter()
        subprocess.run([bin_ / "strandline", "demo"], check=True, stdout=subprocess.DEVNULL)
        report.note("pip install", f"{installed - started:.0f} s")
        report.note("from pip install to the end of the demo", f"{time.perf_counter() - started:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--install", action="store_true")
    chosen = parser.parse_args()
    report = Report()
    measure_commands(report, chosen.tables, chosen.runs)
    if chosen.install:
        measure_install(report)
    print("\n" + report.render())


if __name__ == "__main__":
    main()
