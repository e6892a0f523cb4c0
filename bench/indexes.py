"""Measure the cost of 1, 5 or 20 indexes in processor time: small changes, opening, reads by index.

    python bench/indexes.py [--folder DIR] [--keep]

Prints a table of figures. The cost of a change should grow by the same amount with each index, and the cost
of a read should not grow. Needs no Spark.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent)]

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402

NUMBERS = (1, 5, 20)
ROWS = 20_000
TIMES = 60
COLUMNS = [f"c{i}" for i in range(max(NUMBERS))]


class Indexes:
    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self.report = folder / "indexes", report

    def run(self) -> None:
        for kind in ("GLOBAL SYNC", "GLOBAL UNIQUE SYNC"):
            tables = {number: self._load(number, kind) for number in NUMBERS}
            with self._connect() as db:
                self._per_index(
                    f"10-row UPSERT of all columns, {kind}",
                    self._spent({n: self._upsert(db, t, COLUMNS) for n, t in tables.items()}, TIMES),
                )
                self._per_index(
                    f"10-row UPSERT of no indexed column, {kind}",
                    self._spent({n: self._upsert(db, t, ["note"]) for n, t in tables.items()}, TIMES),
                )
                reads = self._spent({n: partial(self._read, db, t) for n, t in tables.items()}, TIMES)
                self._at_once(f"read by an index, {kind}", reads, 1.5)
            opened = self._spent({n: partial(self._open, t) for n, t in tables.items()}, 7)
            self._at_once(f"open, and read by an index, {kind}", opened, 1.5)

    def _connect(self) -> strandline.Database:
        return strandline.connect(self.folder)

    def _load(self, number: int, kind: str) -> str:
        table = f"{'u' if 'UNIQUE' in kind else 't'}{number}"
        columns = ", ".join(f"{name} Int64" for name in COLUMNS)
        indexes = ", ".join(f"INDEX by_{name} {kind} ON ({name})" for name in COLUMNS[:number])
        with self._connect() as db:
            db.sql(
                f"CREATE TABLE {table} (k Int64 NOT NULL, {columns}, note Utf8, PRIMARY KEY (k), {indexes})"
            )
            db.table(table).upsert([self._row(k, COLUMNS, 0) for k in range(ROWS)])
        return table

    def _row(self, k: int, names: list[str], salt: int) -> dict[str, Any]:
        """Return a row whose values no other row has."""
        values: dict[str, Any] = {name: k + ROWS * salt for name in names if name != "note"}
        return {"k": k, **values, **({"note": f"note {salt} of {k}"} if "note" in names else {})}

    def _upsert(self, db: strandline.Database, table: str, names: list[str]) -> Callable[[], None]:
        salts = iter(range(1, 10**6))

        def upsert() -> None:
            salt = next(salts)
            db.table(table).upsert([self._row(k, names, salt) for k in range(salt % 97, ROWS, ROWS // 10)])

        return upsert

    def _read(self, db: strandline.Database, table: str) -> None:
        db.sql(f"SELECT k, c0 FROM {table} VIEW by_c0 WHERE c0 = {ROWS // 2}").rows()

    def _open(self, table: str) -> None:
        with self._connect() as db:
            self._read(db, table)

    def _spent(self, works: dict[int, Callable[[], None]], times: int) -> dict[int, float]:
        """Return the median processor time of each in milliseconds.

        They are measured in turns, so that other load on the machine affects all of them.
        """
        found: dict[int, list[float]] = {number: [] for number in works}
        for _ in range(times):
            for number, work in works.items():
                before = time.process_time()
                work()
                found[number].append((time.process_time() - before) * 1000)
        return {number: statistics.median(each) for number, each in found.items()}

    def _per_index(self, figure: str, spent: dict[int, float]) -> None:
        """Report whether each of the last indexes costs as much as each of the first."""
        one, few, many = (spent[number] for number in NUMBERS)
        first, last = (few - one) / (NUMBERS[1] - NUMBERS[0]), (many - few) / (NUMBERS[2] - NUMBERS[1])
        self.report.note(figure, f"{one:.1f}, {few:.1f}, {many:.1f} ms with {', '.join(map(str, NUMBERS))}")
        detail = f"{last:.2f} ms each, the first {first:.2f} ms"
        # A lower bound of the cost, so that the ratio is not one of noise.
        self.report.at_most("  the last indexes / the first", last / max(first, 0.1), 1.5, detail=detail)

    def _at_once(self, figure: str, spent: dict[int, float], most: float) -> None:
        one, *_, many = spent.values()
        self.report.at_most(
            figure, many / one, most, detail=f"{one:.2f} ms, with {NUMBERS[-1]} {many:.2f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder_options(parser)
    given = parser.parse_args()
    with folder_of(given) as folder:
        report = Report()
        Indexes(folder, report).run()
        print(f"\n{report.render()}")


if __name__ == "__main__":
    main()
