"""Measure queries in the process against plain DuckDB on the same Parquet files, and against Spark.

    python bench/queries.py [--rows 1000000] [--folder DIR] [--keep] [--no-spark]

Prints a table of figures; the exit code does not depend on them. The queries of the process run before Spark
is started. Each is run ``TIMES`` times in turns with the same query of DuckDB on the files of the tables; the
best processor time counts. A note has the time of DuckDB on a file that pyarrow writes with its defaults: one
row group instead of many small ones, and no zstd.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import duckdb  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from strandline import Database, Settings  # noqa: E402

TIMES = 15
JOINED = 100_000
QUERIES = {
    "SELECT count(*)": "SELECT count(*) AS n FROM big",
    "GROUP BY over all rows": "SELECT g, count(*) AS n, sum(v) AS total, max(d) AS most FROM big GROUP BY g",
    "GROUP BY of a text with LIKE": "SELECT s, count(*) AS n FROM big WHERE s LIKE 'name 1%' GROUP BY s",
    f"join of two tables of {JOINED:,} rows": (
        "SELECT a.g, count(*) AS n, sum(b.v) AS total FROM a JOIN b ON a.k = b.other GROUP BY a.g"
    ),
}
UPDATE = "UPDATE big SET v = coalesce(v, 0) + 1 WHERE k = 4711"


def rows_of(count: int) -> pa.Table:
    """Return rows with a key, a group, numbers and a short text."""
    ids = range(count)
    return pa.table(
        {
            "k": pa.array(ids, pa.int64()),
            "other": pa.array(((i * 7919) % count for i in ids), pa.int64()),
            "g": pa.array((i % 1000 for i in ids), pa.int32()),
            "v": pa.array((i % 977 for i in ids), pa.int64()),
            "d": pa.array((i / 8 for i in ids), pa.float64()),
            "s": pa.array((f"name {i % 200}" for i in ids), pa.string()),
        }
    )


def best(*each: Callable[[], object]) -> list[float]:
    """Return the best processor time of each function, run in turns."""
    found = [float("inf")] * len(each)
    for _ in range(TIMES):
        for place, run in enumerate(each):
            start = time.process_time()
            run()
            found[place] = min(found[place], time.process_time() - start)
    return found


def load(db: Database, folder: Path, count: int) -> None:
    for name, size in (("big", count), ("a", JOINED), ("b", JOINED)):
        rows = rows_of(size)
        pq.write_table(rows, folder / f"{name}.parquet")
        db.create_table(name, rows, key=["k"])


def measure(folder: Path, count: int, *, with_spark: bool) -> None:
    report = Report()
    with strandline.connect(folder / "warehouse", settings=Settings(bulk_rows=10**9, bulk_bytes=10**9)) as db:
        load(db, folder, count)
    with strandline.connect(folder / "warehouse", settings=Settings(engine="process")) as db:
        same, other = duckdb.connect(), duckdb.connect()
        for name in ("big", "a", "b"):
            paths = [part.file for part in db.files(f"/{name}").parts]
            same.execute(f"CREATE VIEW {name} AS FROM read_parquet({paths})")
            other.execute(f"CREATE VIEW {name} AS FROM read_parquet('{folder}/{name}.parquet')")
        for name, text in QUERIES.items():
            ours, theirs, others = best(
                lambda text=text: db.sql(text).to_arrow(),
                lambda text=text: same.sql(text).to_arrow_table(),
                lambda text=text: other.sql(text).to_arrow_table(),
            )
            detail = f"{ours * 1000:.1f} ms, DuckDB {theirs * 1000:.1f} ms of processor time"
            report.at_most(name, ours / theirs, 1.5, detail=detail)
            report.note(f"{name}, DuckDB on a file of pyarrow", f"{others * 1000:.1f} ms")
        (update,) = best(lambda: db.sql(UPDATE))
        report.note("UPDATE of one row with an expression", f"{update * 1000:.0f} ms")
        report.holds("without a JVM", "pyspark is not loaded", "pyspark" not in sys.modules)
    if with_spark:
        with strandline.connect(folder / "warehouse", settings=Settings(engine="spark")) as db:
            db.sql("SELECT 1").to_arrow()
            for name, text in QUERIES.items():
                walls = []
                for _ in range(TIMES):
                    start = time.perf_counter()
                    db.sql(text).to_arrow()
                    walls.append(time.perf_counter() - start)
                report.note(f"{name}, on a Spark that runs", f"{min(walls) * 1000:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--no-spark", action="store_true")
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, given.rows, with_spark=not given.no_spark)


if __name__ == "__main__":
    main()
