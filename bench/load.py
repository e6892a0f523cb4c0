"""Measure the effect of backups and restores on processes that continuously read and write with SQL.

    python bench/load.py [--seconds 60] [--processes 8] [--catalog URL] [--second-catalog URL]

The first run publishes as operations do: all paths in one transaction when the last part is done. The second
run has the defect that this prevents: each part publishes by itself. Prints both in one table. Needs no
Spark.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

from sqlalchemy import delete, select, update  # noqa: E402

import strandline  # noqa: E402
from bench.report import folder_of, folder_options  # noqa: E402
from strandline import Database, Settings  # noqa: E402
from strandline.catalog import sqltables  # noqa: E402
from strandline.catalog.transactions import Writer  # noqa: E402
from strandline.errors import StrandlineError  # noqa: E402
from tests.catalogs import counted  # noqa: E402
from tests.simulation.actors import EagerRegistry  # noqa: E402

TABLES, ROWS = 6, 2000
KINDS = ("point read", "index read", "upsert")
SETTINGS = Settings(bulk_rows=10**9, scan_rows=10**9, grace_seconds=5.0)


class Eager(EagerRegistry):
    """Registry with which parts publish by themselves; the final publication still has all versions."""

    def apply(self, tx: Writer, operation_id: str) -> dict[int, int]:
        claim, described = sqltables.claims.c, sqltables.descriptions
        mine = claim.operation_id == operation_id
        for path_id, version in tx.conn.execute(select(claim.path_id, claim.version).where(mine)).all():
            at = described.c
            tx.conn.execute(delete(described).where(at.path_id == path_id, at.version == version))
        tx.conn.execute(update(sqltables.claims).where(mine).values(published=claim.version))
        return super().apply(tx, operation_id)


@dataclass(frozen=True)
class Seen:
    """Results of one process: seconds per kind of statement, errors by code, mismatches by outcome."""

    seconds: dict[str, list[float]]
    errors: Counter[str]
    mismatches: dict[str, int]


@dataclass(frozen=True)
class Run:
    """Results of all processes, and the operations that ran meanwhile."""

    seen: tuple[Seen, ...]
    operations: Counter[str]

    def percentile(self, kind: str, part: float) -> float:
        found = sorted(second for seen in self.seen for second in seen.seconds[kind])
        return 1000 * found[min(len(found) - 1, int(part * len(found)))] if found else float("nan")

    def statements(self, kind: str) -> int:
        return sum(len(seen.seconds[kind]) for seen in self.seen)

    def mismatches(self, result: str) -> int:
        return sum(seen.mismatches[result] for seen in self.seen)

    @property
    def errors(self) -> Counter[str]:
        return sum((seen.errors for seen in self.seen), Counter[str]())


def prepare(db: Database) -> None:
    for number in range(TABLES):
        db.sql(
            f"CREATE TABLE t{number} (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), "
            "INDEX by_v GLOBAL SYNC ON (v), INDEX by_n GLOBAL SYNC ON (n) COVER (v))"
        )
        rows = [{"k": k, "v": f"v{k % 100}", "n": k % 50} for k in range(ROWS)]
        db.table(f"t{number}").upsert(rows)
    tables = ", ".join(f"TABLE t{number}" for number in range(TABLES))
    db.sql(
        f"CREATE BACKUP COLLECTION c ({tables}) "
        "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
    )


def use(folder: str, url: str | None, signs: str, seed: int) -> Seen:
    """Run statements in one process until the file ``stop`` exists in ``signs``.

    The start of the process is not measured.
    """
    random_ = random.Random(seed)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    errors = Counter[str]()
    with strandline.connect(folder, catalog=url, settings=SETTINGS) as db:
        for kind in KINDS:
            db.sql(statement(random_, kind)).rows()
        Path(signs, f"ready{seed}").touch()
        while not os.path.exists(f"{signs}/stop"):
            kind = random_.choices(KINDS, (6, 3, 1))[0]
            text = statement(random_, kind)
            start = time.perf_counter()
            try:
                db.sql(text).rows()
            except StrandlineError as error:
                errors[error.code] += 1
            seconds[kind].append(time.perf_counter() - start)
        results = ("seen", "cured", "failed")
        metrics = db._runtime.metrics
        mismatches = {r: int(counted(metrics, "schema_mismatches_total", result=r)) for r in results}
    return Seen(seconds, errors, mismatches)


def statement(random_: random.Random, kind: str) -> str:
    table, key = f"t{random_.randrange(TABLES)}", random_.randrange(ROWS)
    if kind == "point read":
        return f"SELECT v FROM {table} WHERE k = {key}"
    if kind == "index read":
        return f"SELECT k FROM {table} VIEW by_v WHERE v = 'v{key % 100}'"
    return f"UPSERT INTO {table} (k, v, n) VALUES ({key}, 'v{key % 100}', {key % 50})"


def work(db: Database, seconds: float) -> Counter[str]:
    """Run backups and restores, one after the other, for ``seconds``."""
    done = Counter[str]()
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        kind = "full backup" if number % 4 == 1 else "incremental backup"
        steps = [(kind, "BACKUP c" if kind == "full backup" else "BACKUP c INCREMENTAL")]
        if number % 4 == 0:
            steps += [("restore", f"RESTORE c INTO `r{number}`")]
        for name, text in steps:
            try:
                db.sql(text)
                done[name] += 1
            except StrandlineError as error:
                done[f"{name}: {error.code}"] += 1
        if number % 4 == 0:
            drop(db, f"r{number}")
            db.maintain()
    return done


def drop(db: Database, folder: str) -> None:
    for number in range(TABLES):
        db.sql(f"DROP TABLE IF EXISTS `{folder}/t{number}`")


def run(folder: Path, url: str | None, chosen: argparse.Namespace, *, eager: bool) -> Run:
    processes = range(chosen.processes)
    with (
        strandline.connect(folder / "w", catalog=url, settings=SETTINGS) as db,
        ProcessPoolExecutor(len(processes), mp_context=get_context("spawn")) as pool,
    ):
        prepare(db)
        if eager:
            db._operations.engine.transitions.registry = Eager()
        futures = [pool.submit(use, str(folder / "w"), url, str(folder), seed) for seed in processes]
        try:
            while not all((folder / f"ready{seed}").exists() for seed in processes):
                if any(future.done() for future in futures):
                    break  # It has failed, and its result will say why.
                time.sleep(0.1)
            operations = work(db, chosen.seconds)
        finally:
            (folder / "stop").touch()
        return Run(tuple(future.result() for future in futures), operations)


def show(runs: Sequence[Run]) -> str:
    """Return both runs side by side as a Markdown table."""
    lines: list[tuple[str, ...]] = [
        ("", "published at the end", "published by each part"),
        ("---", "---:", "---:"),
    ]
    for name in ("full backup", "incremental backup", "restore"):
        lines.append((f"{name}s beside", *(str(run.operations[name]) for run in runs)))
    lines.append(("of these failed", *(str(failed(run)) for run in runs)))
    for kind in KINDS:
        lines.append((f"{kind}s", *(f"{run.statements(kind):,}" for run in runs)))
        for part in (0.5, 0.99):
            told = (f"{run.percentile(kind, part):.1f} ms" for run in runs)
            lines.append((f"{kind}, p{100 * part:.0f}", *told))
    lines.append(("statements that failed", *(str(sum(run.errors.values())) for run in runs)))
    for result in ("seen", "cured", "failed"):
        lines.append((f"mismatches {result}", *(str(run.mismatches(result)) for run in runs)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def failed(run: Run) -> int:
    return sum(count for name, count in run.operations.items() if ":" in name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--catalog", help="URL of an empty PostgreSQL database; SQLite by default")
    parser.add_argument("--second-catalog", help="the same for the second run")
    folder_options(parser)
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} processors, load average {load:.1f} before the start")
    runs = []
    with folder_of(chosen) as folder:
        for eager, url in ((False, chosen.catalog), (True, chosen.second_catalog)):
            here = folder / ("each" if eager else "together")
            here.mkdir(parents=True)
            runs.append(run(here, url, chosen, eager=eager))
            print(f"errors: {dict(runs[-1].errors)}; operations: {dict(runs[-1].operations)}")
    print()
    print(show(runs))


if __name__ == "__main__":
    main()
