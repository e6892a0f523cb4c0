"""Measure plans from the cache, and the effect of concurrent copies, streams and DDL on readers.

    python bench/catalog.py [--seconds 60] [--readers 8] [--catalog URL]

Prints a table of figures; the exit code does not depend on them. Needs no Spark. ``bench/many.py`` measures
the cost of many tables.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

from bench.report import Report  # noqa: E402
from strandline.catalog.connection import Catalog  # noqa: E402
from tests.planning_readers import Load, Readings, prepare, read, run_load  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument(
        "--catalog", help="URL of an empty PostgreSQL database; SQLite in a temporary folder by default"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = chosen.catalog or f"sqlite:///{folder}/catalog.db"
        catalog = Catalog(url)
        catalog.open()
        prepare(catalog)
        report = Report()
        report.note(
            "machine", f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} before the start"
        )
        alone = read(url, min(5.0, chosen.seconds), 0)
        report.at_least(
            "plans from the cache, one process alone",
            alone.plans / alone.seconds,
            5000,
            "/s",
            per_cpu([alone]),
        )
        show(
            report,
            run_load(catalog, url, Path(folder) / "stop", readers=chosen.readers, seconds=chosen.seconds),
            chosen.readers,
            chosen.seconds,
        )
        catalog.close()
    print()
    print(report.render())


def per_cpu(readers: Sequence[Readings]) -> str:
    """Return a rate that does not depend on how many processes share the machine."""
    rate = sum(r.plans for r in readers) / sum(r.cpu_seconds for r in readers)
    return f"{rate:.0f} per second of processor time"


def show(report: Report, load: Load, readers: int, seconds: float) -> None:
    rates = [r.plans / r.seconds for r in load.readers]
    report.note(
        f"load of {seconds:.0f} s",
        f"{readers} reader processes, {load.operations} operations in {load.changes} rounds of changes",
    )
    report.at_least(
        "plans per process under load, slowest",
        min(rates),
        5000,
        "/s",
        f"mean {sum(rates) / len(rates):.0f}/s, {per_cpu(load.readers)}",
    )
    report.at_most("failed queries", float(sum(len(r.errors) for r in load.readers)), 0, "")
    plans, versions = sum(r.plans for r in load.readers), max(r.versions for r in load.readers)
    report.note("plans in all", f"{plans}, of {versions} versions of tables")
    seen, cured = sum(r.seen for r in load.readers), sum(r.cured for r in load.readers)
    report.note("mismatches", f"{seen} seen, {cured} plans cured by a retry")
    report.note("last part to publication", f"{load.publication_delay * 1000:.1f} ms on average")
    count, total, quick, slow = (sum(r.delays[i] for r in load.readers) for i in range(4))
    share = (
        f"{100 * quick / max(count, 1):.0f} % within 50 ms, {100 * slow / max(count, 1):.0f} % within 250 ms"
    )
    report.note("publication to cache", f"{1000 * total / max(count, 1):.1f} ms on average, {share}")


if __name__ == "__main__":
    main()
