"""Measure a scan on Spark of a table with changes, relative to plain Parquet with the same rows.

    python bench/scan.py [--rows 1000000] [--keys whole,text,composite] [--commits 10] [--share 0.001]
                         [--small 2000] [--rounds 7] [--folder DIR] [--keep]

Loads a table for each kind of key, then measures scans of all columns, of one column, and of the rows that
satisfy a condition: after ``--commits`` commits that each change the share ``--share`` of the rows, and after
``--small`` commits of ten rows. Both scans run in the same session and take turns. Prints a table of figures;
the exit code does not depend on them.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import pyarrow as pa  # noqa: E402

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402
from bench.tables import scan  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES = "customer Int64, day Int32, amount Double, note Utf8"
KEYS = {
    "whole": ("id Int64 NOT NULL", "id"),
    "text": ("code Utf8 NOT NULL", "code"),
    "composite": ("tenant Int32 NOT NULL, code Utf8 NOT NULL", "tenant, code"),
}
TENANTS = 50


def keys_of(kind: str, ids: Sequence[int]) -> dict[str, pa.Array]:
    """Return the key columns of some rows; the same as in ``rows_of``."""
    if kind == "whole":
        return {"id": pa.array(ids, pa.int64())}
    code = {"code": pa.array([f"{i * 7919 % 1_000_003:07d}-order-{i:012d}" for i in ids], pa.string())}
    return code if kind == "text" else {"tenant": pa.array([i % TENANTS for i in ids], pa.int32())} | code


def rows_of(spark: SparkSession, kind: str, rows: int) -> DataFrame:
    """Return rows of about 100 bytes."""
    keys = {
        "whole": [],
        "text": ["concat(lpad(id * 7919 % 1000003, 7, '0'), '-order-', lpad(id, 12, '0')) AS code"],
        "composite": [
            f"CAST(id % {TENANTS} AS int) AS tenant",
            "concat(lpad(id * 7919 % 1000003, 7, '0'), '-order-', lpad(id, 12, '0')) AS code",
        ],
    }[kind]
    return spark.range(0, rows, 1, 4).selectExpr(
        *(keys or ["id"]),
        "pmod(xxhash64(id, 1), 100000) AS customer",
        "CAST(id / 20000 AS int) AS day",
        "pmod(xxhash64(id, 2), 1000000) / 100D AS amount",
        "concat('order ', hex(xxhash64(id, 3)), ' ', substr(sha2(CAST(id AS string), 256), 1, 32)) AS note",
    )


def changed(kind: str, ids: Sequence[int], salt: int) -> pa.Table:
    return pa.table(
        keys_of(kind, ids)
        | {
            "customer": pa.array([(i + salt) % 100_000 for i in ids], pa.int64()),
            "day": pa.array([i // 20_000 for i in ids], pa.int32()),
            "amount": pa.array([float(i % 1000) for i in ids], pa.float64()),
            "note": pa.array([f"changed {salt} {i:032d}" for i in ids], pa.string()),
        }
    )


class Bench:
    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.given, self.folder, self.report = given, folder, Report()
        self.random = random.Random(1)
        self.db = strandline.connect(folder / "warehouse")
        self.spark = self.db.spark

    def run(self) -> None:
        for kind in self.given.keys.split(","):
            self._load(kind)
            self._compare(kind, "loaded")
            share = max(1, round(self.given.rows * self.given.share))
            self._commit(kind, self.given.commits, share)
            self._compare(kind, f"{self.given.commits} commits of {share:,}")
            if self.given.small:
                self._commit(kind, self.given.small, 10)
                self._compare(kind, f"{self.given.small:,} commits of 10")
        self.db.close()

    def _load(self, kind: str) -> None:
        columns, key = KEYS[kind]
        self.db.sql(f"CREATE TABLE {kind} ({columns}, {VALUES}, PRIMARY KEY ({key}))")
        self.db.table(kind).upsert(rows_of(self.spark, kind, self.given.rows))

    def _commit(self, kind: str, commits: int, rows: int) -> None:
        table, began = self.db.table(kind), time.process_time()
        for number in range(commits):
            ids = sorted(self.random.sample(range(self.given.rows), rows))
            table.upsert(changed(kind, ids, number))
        self.report.note(
            f"{kind}: {commits:,} commits of {rows:,}",
            f"{(time.process_time() - began) / commits * 1000:.1f} ms of CPU",
        )

    def _compare(self, kind: str, state: str) -> None:
        table, key = self.db.table(kind), KEYS[kind][1].split(", ")
        path = str(self.folder / f"plain-{kind}")
        table.df().orderBy(*key).write.mode("overwrite").option("compression", "zstd").parquet(path)

        def plain() -> DataFrame:
            return self.spark.read.parquet(path)

        few = self.given.rows // 20_000 // 2
        asked: dict[str, tuple[Callable[[DataFrame], Any], float]] = {
            "all columns": (scan, 1.1),
            "one column": (lambda df: scan(df.select("amount")), 1.5),
            "sum of one column": (lambda df: df.selectExpr("sum(amount)").collect(), 1.5),
            "one day": (lambda df: scan(df.where(f"day = {few}")), 1.5),
        }
        for what, (ask, target) in asked.items():
            ours: list[float] = []
            others: list[float] = []
            for _ in range(self.given.rounds):
                for seconds, frame in ((others, plain), (ours, table.df)):
                    began = time.perf_counter()
                    ask(frame())
                    seconds.append(time.perf_counter() - began)
            middle = statistics.median(ours[1:]) / statistics.median(others[1:])
            detail = (
                f"median {middle:.2f}x; {min(ours) * 1000:.0f} ms, plain {min(others) * 1000:.0f} ms, "
                f"first {ours[0] * 1000:.0f} ms"
            )
            self.report.at_most(
                f"{kind}, {state}: {what} / plain", min(ours) / min(others), target, detail=detail
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", default=",".join(KEYS))
    parser.add_argument("--commits", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.001)
    parser.add_argument("--small", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=7)
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        bench = Bench(given, folder)
        bench.run()
        print(f"\n{given.rows:,} rows\n{bench.report.render()}")


if __name__ == "__main__":
    main()
