"""Measure ``format("strandline")`` against ``table.df()`` and plain Parquet, and access without a JVM.

    python bench/access.py [--rows 1000000] [--folder DIR] [--keep]

Measures scans, key ranges, a load and streams on Spark; reading rows as Arrow data in a process without a
JVM; and loading, showing and exporting rows on the command line without a JVM. Prints a table of figures; the
exit code does not depend on them. Needs about 1 GB of disk for a million rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.csv as pa_csv  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from bench.tables import COLUMNS, best, clocked, scan, values  # noqa: E402

STREAMED = 10
"""Number of commits in the stream."""


ARROW = """
import resource, sys, time
import strandline

db = strandline.connect(sys.argv[1])
table, half = db.table("direct"), int(sys.argv[2])
table.scan(["id"]).to_arrow()  # what is loaded by the first
ways = {
    "to_reader(), a batch at a time": lambda: sum(b.num_rows for b in table.scan().to_reader()),
    "to_reader(), the first batch": lambda: next(iter(table.scan().to_reader())).num_rows,
    "to_arrow()": lambda: table.scan().to_arrow().num_rows,
    "  two columns with a condition": lambda: table.scan(
        ["id", "amount"], "customer IN (?, ?) AND amount > ?", params=[1, 2, 10]
    ).to_arrow().num_rows,
    "  half of the keys": lambda: table.scan(where="id < ?", params=[half]).to_arrow().num_rows,
    "  SELECT, as plain tuples": lambda: sum(1 for _ in db.sql("SELECT id, amount FROM direct")),
}
for name, way in ways.items():
    best, rows = None, 0
    for _ in range(3):
        began = time.perf_counter()
        rows = way()
        took = time.perf_counter() - began
        best = took if best is None else min(best, took)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{name}: {best:.2f} s for {rows:,} rows, at most {held} MB so far")
print(f"  PySpark was loaded: {'pyspark' in sys.modules}")
db.close()
"""


class Bench:
    def __init__(self, rows: int, folder: Path) -> None:
        self.rows = rows
        self.folder = folder
        self.report = Report()
        self.db = strandline.connect(folder / "warehouse")
        self.spark = self.db.spark
        strandline.register(self.spark, str(folder / "warehouse"))

    def run(self) -> None:
        self._head()
        self._load()
        self._scan()
        self._arrow()
        self._follow()
        self.db.close()

    def _head(self) -> None:
        """Measure the command line alone, with twice as many rows and without Java."""
        rows, folder = 2 * self.rows, self.folder / "by command"
        some = pa.table(
            {
                "id": pa.array(np.random.default_rng(1).permutation(rows)),
                "customer": pa.array([f"customer {n % 5000}" for n in range(rows)]),
                "amount": pa.array(np.random.default_rng(2).random(rows)),
            }
        )
        folder.mkdir()
        pq.write_table(some, folder / "some.parquet")
        pa_csv.write_csv(some, folder / "some.csv")
        strandline.connect(folder / "warehouse").close()
        steps = {
            "load of CSV": "load big {folder}/some.csv --key id",
            "load of Parquet": "load big2 {folder}/some.parquet --key id",
            "sql --format csv | head": "sql 'SELECT * FROM big' --format csv | head -n 5",
            "sql --format csv | wc": "sql 'SELECT * FROM big' --format csv | wc -l",
            "export as Parquet": "export big {folder}/big.parquet",
            "export as JSON lines": "export big {folder}/big.jsonl",
        }
        for what, arguments in steps.items():
            seconds: list[float] = []
            for _ in range(3 if "head" in what else 1):
                with clocked(seconds):
                    self._command(arguments.format(folder=f"'{folder}'"), folder / "warehouse")
            self.report.note(f"{what}, {rows:,} rows, no JVM", f"{min(seconds):.2f} s")

    def _command(self, arguments: str, warehouse: Path) -> None:
        around = {"PYTHONPATH": str(HERE.parent / "src"), "STRANDLINE_WAREHOUSE": str(warehouse)}
        around |= {"JAVA_HOME": "/nonexistent", "SPARK_HOME": "/nonexistent"}
        subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"'{sys.executable}' -m strandline.cli {arguments}"],
            env={**os.environ, **around},
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def _load(self) -> None:
        rows = values(self.spark, self.spark.range(0, self.rows, 1, 4), max(1, self.rows // 10))
        rows.write.parquet(str(self.folder / "source"))
        source = self.spark.read.parquet(str(self.folder / "source"))
        seconds: list[float] = []
        for name in ("staged", "direct"):
            self.db.sql(f"CREATE TABLE {name} ({COLUMNS})")
        with clocked(seconds):
            source.orderBy("id").write.option("compression", "zstd").parquet(str(self.folder / "plain"))
        with clocked(seconds):
            self.db.table("direct").upsert(source)
        with clocked(seconds):
            source.write.format("strandline").mode("append").save("/staged")
        for what, took in zip(
            ("sorted Parquet", "table.upsert(df)", 'write.format("strandline")'), seconds, strict=True
        ):
            self.report.note(f"load by {what}", f"{took:.1f} s, {self.rows / took:,.0f} rows/s")

    def _scan(self) -> None:
        ways = {
            "plain Parquet": lambda: self.spark.read.parquet(str(self.folder / "plain")),
            "table.df()": lambda: self.db.table("direct").df(),
            'format("strandline")': lambda: self.spark.read.format("strandline").load("/direct"),
        }
        low = self.rows // 2
        for name, frame in ways.items():
            whole = best(3, lambda frame=frame: scan(frame()))
            some = best(3, lambda frame=frame: scan(frame().where(f"id BETWEEN {low} AND {low + 99}")))
            self.report.note(f"scan of {name}", f"{whole:.2f} s, {self.rows / whole:,.0f} rows/s")
            self.report.note("  100 rows by key", f"{some:.2f} s")
        two = best(
            3,
            lambda: scan(self.spark.read.format("strandline").option("columns", "id,amount").load("/direct")),
        )
        self.report.note('  two columns of format("strandline")', f"{two:.2f} s")

    def _arrow(self) -> None:
        """Measure in a new process, which reports its times and whether it loaded PySpark."""
        done = subprocess.run(
            [sys.executable, "-c", ARROW, str(self.folder / "warehouse"), str(self.rows // 2)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2])},
        )
        for line in done.stdout.splitlines():
            what, _, took = line.partition(": ")
            self.report.note(what, took)

    def _follow(self) -> None:
        self.db.sql(f"CREATE TABLE followed ({COLUMNS}); CREATE TABLE copy ({COLUMNS})")
        self.db.sql("ALTER TABLE followed ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
        each = max(1, self.rows // STREAMED)
        for number in range(STREAMED):
            ids = self.spark.range(number * each, (number + 1) * each, 1, 2)
            self.db.table("followed").upsert(values(self.spark, ids, 1000))
        changes = self.spark.readStream.format("strandline").option("changefeed", "/followed/f").load()
        for sink in ("noop", "strandline"):
            seconds: list[float] = []
            kept = changes.select("id", "customer", "day", "amount", "note")
            writer = kept.writeStream.format(sink).option(
                "checkpointLocation", str(self.folder / f"checkpoint-{sink}")
            )
            with clocked(seconds):
                writer.trigger(availableNow=True).start("/copy").awaitTermination()
            took = seconds[0]
            self.report.note(
                f"stream of {each * STREAMED:,} changes into {sink}", f"{each * STREAMED / took:,.0f} rows/s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        bench = Bench(given.rows, folder)
        bench.run()
        print(f"\n{given.rows:,} rows\n{bench.report.render()}")


if __name__ == "__main__":
    main()
