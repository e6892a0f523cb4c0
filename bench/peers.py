"""Measure the same work on Strandline, Delta and Iceberg: one Spark session, the same rows.

    python bench/peers.py [--rows 1000000 10000000] [--keys number text composite] [--write PAGE]

``make peers`` fetches the classes of the two others into build/peers, then runs this. Results are compared
row by row (by sums of hashes) before a time counts; a difference ends the run. Prints a table per size and
kind of key: seconds, lower is better. Needs about 6 GB of disk for 10 million rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import strandline  # noqa: E402
from bench import comparison  # noqa: E402
from bench.comparison import Compared, Disagreement  # noqa: E402
from bench.peer_data import INDEXES, KEYS, Changes, Orders, Source, digest, expected  # noqa: E402
from bench.peer_systems import Delta, Iceberg, Peer, Rows, Strandline, System  # noqa: E402
from bench.report import folder_of, folder_options  # noqa: E402
from strandline import Database, Settings  # noqa: E402

JARS = ROOT / "build" / "peers"
SYSTEMS = ("Strandline", "Delta", "Iceberg")
CUSTOMERS = 6
"""Number of lookups by index; the first one does not count."""
WARM = 10_000
"""Rows of a first run that does not count."""
SMALL = 20_000
"""Rows of the table that is read while a writer runs."""


def spark_options(jars: Sequence[Path], folder: Path) -> dict[str, str]:
    """Return the settings of the session, as users of the two table formats tune them for this size."""
    return {
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(folder / "iceberg"),
        "spark.sql.warehouse.dir": str(folder / "delta"),
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.merge.materializeSource": "none",
    }


class Bench:
    """One size and one kind of key."""

    def __init__(self, db: Database, orders: Orders, folder: Path, rounds: int, only: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        self.db, self.orders, self.folder, self.rounds = db, orders, folder, rounds
        self.spark = db.spark
        self.systems = systems(db, orders, folder, only)
        self.source = Source(self.spark, orders, folder)
        self.result = Compared(orders.rows, orders.kind)

    def run(self) -> Compared:
        self._load()
        self._each("full backup by reference", lambda system: system.keep)
        self._each("full backup, copied", lambda system: system.back_up)
        self._change()
        for what, columns in (("all columns", self.orders.columns), ("one column", ("amount",))):
            for turn in range(self.rounds):
                self._each(f"scan of {what}, after the changes", partial(scanning, columns), turn)
        self._look_up()
        self._each("restore by copy, compared", lambda system: system.restore)
        for system in self.systems:
            self._check(f"{system.name}, restored", system.restored(), self.orders.columns)
        return self.result

    def _each(self, work: str, of: Callable[[System], Callable[[], Any]], turn: int = 0) -> None:
        """Run the work on each system; another one begins in each turn."""
        first = turn % len(self.systems)
        for system in self.systems[first:] + self.systems[:first]:
            run = of(system)
            started = time.perf_counter()
            run()
            self.result.add(work, system.name, time.perf_counter() - started)

    def _load(self) -> None:
        for turn in range(self.rounds):
            name = f"{self.orders.kind}_{self.orders.rows}_{turn}"
            self._each(
                "load with two indexes", lambda s, name=name: partial(s.load, name, self.source.first), turn
            )
            self._check_all()
            if turn < self.rounds - 1:
                for system in self.systems:
                    system.drop(name)

    def _change(self) -> None:
        for turn in range(self.rounds):
            for work, count in (("10-row upsert", 10), ("1 % upsert", max(10, self.orders.rows // 100))):
                changes = self.source.changes(count, f"{work} {turn}")
                self._each(work, lambda system, changes=changes: partial(system.upsert, changes), turn)
                self.source.apply(changes, f"{work} {turn}")
                self._check_all()
            self._each("increment of 1 %", lambda system: system.increment, turn)

    def _look_up(self) -> None:
        for work, of in (
            ("covered columns of a customer, by index", lambda s: s.covered),
            ("rows of a customer, by index", lambda s: s.whole),
        ):
            for system in self.systems:
                seconds = []
                for number in range(CUSTOMERS):
                    started = time.perf_counter()
                    found: Rows = of(system)(number * 97 % self.orders.customers)
                    seconds.append(time.perf_counter() - started)
                    self._compare_rows(f"{system.name}: {work}", found, number * 97 % self.orders.customers)
                self.result.add(work, system.name, statistics.median(seconds[1:]))

    def _compare_rows(self, what: str, found: Rows, customer: int) -> None:
        whole = what.endswith(": rows of a customer, by index")
        columns = self.orders.columns if whole else self.orders.index_columns("by_customer")
        rows = self.source.now.where(f"customer = {customer}").select(*columns).collect()
        if sorted(found) != sorted(tuple(row) for row in rows):
            raise SystemExit(f"{what}: {len(found)} rows differ from the {len(rows)} expected")

    def _check_all(self) -> None:
        wanted = dict(expected(self.source))
        for system in self.systems:
            self._check(f"{system.name}, table", system.rows(), self.orders.columns, wanted[""])
            for index in INDEXES:
                columns = self.orders.index_columns(index)
                self._check(f"{system.name}, {index}", system.index(index), columns, wanted[index])

    def _check(self, what: str, frame: Any, columns: Sequence[str], wanted: Any = None) -> None:
        found = digest(frame, columns)
        wanted = wanted or digest(self.source.now, columns)
        if found != wanted:
            raise SystemExit(f"{what}: {found} is not the expected {wanted}")


def scanning(columns: Sequence[str], system: System) -> Callable[[], None]:
    """Return a reading of every value of some columns.

    Not a write to Spark's ``noop`` sink, which Delta refuses for a table with deletion vectors.
    """

    def scan() -> None:
        system.rows().select(*columns)._jdf.queryExecution().toRdd().count()

    return scan


def systems(db: Database, orders: Orders, folder: Path, only: Sequence[str]) -> list[System]:
    made: list[System] = []
    if "Strandline" in only:
        made.append(Strandline(db, orders, folder))
    kinds: tuple[type[Peer], ...] = (Delta, Iceberg)
    for kind in kinds:
        if kind.name in only:
            place = folder / kind.name.lower()
            place.mkdir()
            made.append(kind(db.spark, orders, place))
    return made


def disagree(db: Database, folder: Path, seconds: float, only: Sequence[str]) -> list[Disagreement]:
    """Read table and index again and again while a writer runs; count the reads in which they differ."""
    folder.mkdir(parents=True)
    source = Source(db.spark, Orders("number", SMALL), folder)
    changes = source.changes(10, "changes")
    found = []
    with ThreadPoolExecutor(1) as pool:
        for system in systems(db, source.orders, folder, only):
            system.load("beside", source.first)
            stop = threading.Event()
            writes = pool.submit(upsert_until, stop, system, source, changes)
            reads = wrong = 0
            end = time.monotonic() + seconds
            while time.monotonic() < end and not writes.done():
                reads += 1
                wrong += not system.agrees()
            stop.set()
            found.append(Disagreement(system.name, reads, wrong, writes.result()))
    return found


def upsert_until(stop: threading.Event, system: System, source: Source, changes: Changes) -> int:
    """Upsert the same rows with a new customer each time; return how often."""
    count = 0
    while not stop.is_set():
        count += 1
        rows = [
            {**row, "customer": (row["customer"] + count) % source.orders.customers}
            for row in changes.rows or []
        ]
        frame = source.spark.createDataFrame(rows, changes.frame.schema)
        system.upsert(Changes(frame, rows))
    return count


def find_jars() -> list[Path]:
    """Return the classes that tools/peers.sh fetches; end with the reason if they are not there."""
    jars = sorted(JARS.glob("*.jar"))
    if not jars:
        raise SystemExit(
            f"{JARS} has no classes of Delta and Iceberg: run make peers, which needs mvn and a network"
        )
    return jars


def run(given: argparse.Namespace, folder: Path) -> tuple[list[Compared], list[Disagreement]]:
    own = dict(option.split("=", 1) for option in given.spark)
    options = spark_options(find_jars(), folder) | own
    found = []
    with strandline.connect(folder / "warehouse", settings=Settings(spark=options)) as db:
        if max(given.rows) > WARM:  # Classes are loaded from here on.
            Bench(db, Orders("number", WARM), folder / "warm", 1, given.only).run()
        for rows in given.rows:
            for kind in given.keys:
                place = folder / f"{kind} {rows}"
                found.append(Bench(db, Orders(kind, rows), place, given.rounds, given.only).run())
                print(
                    f"\n{rows:,} rows, {comparison.KINDS[kind]}\n{comparison.as_text(found[-1])}", flush=True
                )
        beside = disagree(db, folder / "beside", given.seconds, given.only) if given.seconds else []
        for line in beside:
            print(line)
    return found, beside


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--keys", nargs="+", choices=KEYS, default=list(KEYS))
    parser.add_argument("--rounds", type=int, default=3, help="the shortest time of these counts")
    parser.add_argument(
        "--seconds", type=float, default=15, help="for reads beside a writer, per system; 0: none"
    )
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument(
        "--spark", nargs="+", default=[], metavar="NAME=VALUE", help="more settings of the session"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write docs/comparison.md")
    folder_options(parser)
    given = parser.parse_args(arguments)
    with folder_of(given) as folder:
        found, beside = run(given, folder)
    if given.write:
        words = ["python", "bench/peers.py", *(sys.argv[1:] if arguments is None else arguments)]
        where = comparison.Setting.of_this_machine(" ".join(words), find_jars())
        text = comparison.page(found, beside, where)
        given.write.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
