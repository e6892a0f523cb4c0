"""Measure the cost of each verification level, and the size of the stored results.

    python bench/verify.py [--tables 200] [--increments 20] [--rows 2000] [--storage repository]

Many small tables with an index each, a full backup, and increments that change every table. Each level runs
three times: for everything, for new objects only (there are none), and for a sample of 10 percent. ``kept``
is the number of rows and the bytes of text in the catalog's table ``verified`` afterwards.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import func, select

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import strandline  # noqa: E402
from strandline import Database  # noqa: E402
from strandline.backups.verify.verification_history import LEVELS  # noqa: E402
from strandline.catalog import sqltables  # noqa: E402


def fill(db: Database, folder: Path, given: argparse.Namespace) -> None:
    storage = "cluster" if given.storage == "cluster" else str(folder / "repository")
    names = [f"t{number:04}" for number in range(given.tables)]
    db.sql(
        "; ".join(
            f"CREATE TABLE {name} (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL SYNC ON (v))"
            for name in names
        )
    )
    db.sql(
        f"CREATE BACKUP COLLECTION c ({', '.join(f'TABLE {name}' for name in names)}) "
        f"WITH (STORAGE = '{storage}', INCREMENTAL_BACKUP_ENABLED = 'true')"
    )
    for name in names:
        db.table(name).upsert([{"k": k, "v": f"{name} {k}"} for k in range(given.rows)])
    db.sql("BACKUP c")
    for number in range(given.increments):
        with db.transaction():
            for name in names:
                db.table(name).upsert([{"k": number, "v": f"{name} {number}"}])
        db.sql("BACKUP c INCREMENTAL")


def measure(db: Database) -> None:
    print(f"{'level':<10} {'all':>9} {'new':>9} {'10 %':>9} {'all, CPU':>9} {'objects':>9} {'MB':>7}")
    for level in LEVELS:
        seconds, work = [], time.process_time()
        report = None
        for options in ({"again": True}, {}, {"sample": 10}):
            began = time.perf_counter()
            found = db.verify("c", level=level, **options)
            seconds.append(time.perf_counter() - began)
            assert found == [], found
            if report is None:
                report, work = found, time.process_time() - work
        assert report is not None
        objects, size = (sum(getattr(b, name) for b in report.backups) for name in ("objects", "bytes"))
        times = " ".join(f"{s:8.2f}s" for s in seconds)
        print(f"{level:<10} {times} {work:8.2f}s {objects:>9} {size / 1e6:>7.1f}")
    with db._runtime.catalog.read() as conn:
        texts = sqltables.verified.c.body
        rows, size = conn.execute(select(func.count(), func.sum(func.length(texts)))).one()
    print(f"kept: {rows} rows, {size / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--increments", type=int, default=20)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--storage", choices=("repository", "cluster"), default="repository")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, strandline.connect(Path(name) / "w") as db:
        fill(db, Path(name), given)
        measure(db)


if __name__ == "__main__":
    main()
