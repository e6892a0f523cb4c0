"""Measure CHECK, and COMPACT of a chain with few changed rows, compared with the load of the table.

    python bench/compact.py [--rows 1500000] [--changed 0.001] [--increments 3] [--file-mb 4] [--folder DIR]

The table has an index, and random keys are changed. Files of a few MB stand for those of a table that is as
many times larger: nearly every file has changed keys. Prints a table; the exit code does not depend on it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from strandline import Settings  # noqa: E402

TABLE = """CREATE TABLE t (id Int64 NOT NULL, customer Int64, amount Double, note Utf8, PRIMARY KEY (id),
                           INDEX by_customer GLOBAL SYNC ON (customer) COVER (amount))"""
OPTIONS = "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
SPREAD = 7919
"""Changed keys are this far apart, and wrap around."""


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run(rows: int, changed: int, increments: int, settings: Settings, folder: Path) -> None:
    report = Report()
    db = strandline.connect(folder / "warehouse", settings=settings)
    spark = db._runtime.spark
    db.sql(f"{TABLE}; CREATE BACKUP COLLECTION c (TABLE t) {OPTIONS}")

    def frame(keys: str, salt: int) -> Any:
        return spark.sql(
            f"""SELECT k AS id, pmod(xxhash64(k, {salt}), {rows // 10}) AS customer, k * 0.25 AS amount,
                       concat('note ', hex(xxhash64(k, {salt} + 1))) AS note FROM {keys}"""
        )

    loaded = seconds(lambda: db.table("t").upsert(frame(f"(SELECT id AS k FROM range({rows}))", 0)))
    report.note(f"load of {rows:,} rows with an index", f"{loaded:.1f} s")
    db.sql("BACKUP c")
    full = db.collection("c").backups()[-1].name
    each = changed // increments
    for number in range(increments):
        first = number * each
        keys = f"(SELECT (id * {SPREAD}) % {rows} AS k FROM range({first}, {first + each}))"
        db.table("t").upsert(frame(keys, number + 1))
        db.sql("BACKUP c INCREMENTAL")
    checked = seconds(lambda: report.holds("check", "no finding", db.check("/t").ok))
    report.at_most("check / load", checked / loaded, 0.6, detail=f"{checked:.2f} s")
    taken = seconds(lambda: db.sql("COMPACT c"))
    detail = f"{taken:.2f} s, {changed:,} rows changed"
    report.at_most("COMPACT / load", taken / loaded, 0.2, detail=detail)
    db.sql(f"DROP BACKUP c '{full}' CONFIRM")
    restored = seconds(lambda: db.sql("RESTORE c INTO `restored` WITH (VERIFY = 'data')"))
    report.note("restore, with a comparison of all rows", f"{restored:.2f} s")
    same = db.describe("/restored/t")["digest"] == db.describe("/t")["digest"]
    report.holds("the restored table's digest", "that of the table", same)
    db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--changed", type=float, default=0.001, help="fraction of the rows")
    parser.add_argument("--increments", type=int, default=3)
    parser.add_argument("--file-mb", type=float, default=4)
    folder_options(parser)
    given = parser.parse_args()
    settings = Settings(target_file_bytes=int(given.file_mb * 2**20))
    with folder_of(given) as folder:
        run(given.rows, int(given.rows * given.changed), given.increments, settings, folder)


if __name__ == "__main__":
    main()
