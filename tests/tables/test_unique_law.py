"""A table with unique indexes against a dictionary, in the process and on Spark.

Each seed gives a random history of changes, transactions, compactions, backups and restores. After each step
the rows equal the dictionary. Exactly the changes that would leave a key in two rows are refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.errors import PreconditionFailed
from strandline.model import order
from strandline.settings import Settings
from tests.catalogs import ManualClock
from tests.effort import EVERY
from tests.tables.examples import ARROW, SPARK, assert_sound, content, read_with
from tests.tables.model import literal

Row = tuple[int, int | None, str | None, int | None]
COLUMNS = ("k", "a", "b", "n")
INDEXES = {"by_a": ("a",), "by_ba": ("b", "a")}
CREATE = {name: f"INDEX {name} GLOBAL UNIQUE ON ({', '.join(of)}) COVER (n)" for name, of in INDEXES.items()}
STEPS = 60 if EVERY else 40


class History:
    """A history. ``rows`` are the expected rows of the table, ``saved`` those of the last backup."""

    def __init__(self, db: Database, seed: int, storage: str = "cluster") -> None:
        self.db, self.random = db, random.Random(seed)
        self.rows: dict[int, Row] = {}
        self.saved: dict[int, Row] | None = None
        self.indexes, self.saved_indexes = set(INDEXES), set(INDEXES)
        self.refusals = 0
        db.sql(
            f"CREATE TABLE t (k Int32, a Int32, b Utf8, n Int32, PRIMARY KEY (k), {', '.join(CREATE.values())})"
        )
        db.sql(
            f"CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{storage}', INCREMENTAL_BACKUP_ENABLED = 'true')"
        )

    def step(self) -> None:
        what = self.random.choice(
            [self._change] * 12
            + [self._transaction] * 6
            + [self._index, self._care, self._backup, self._restore]
        )
        what()
        assert content(self.db, "/t") == [row for _, row in sorted(self.rows.items())]

    # --- rows ----------------------------------------------------------------------------------------------

    def _change(self) -> None:
        text, rows = self._statement(self.rows)
        self._expect(rows, lambda: self.db.sql(text))

    def _transaction(self) -> None:
        texts, rows = [], self.rows
        for _ in range(self.random.randint(2, 3)):
            text, rows = self._statement(rows)
            texts.append(text)

        def run() -> None:
            with self.db.transaction():
                for text in texts:
                    self.db.sql(text)

        self._expect(rows, run)

    def _statement(self, rows: dict[int, Row]) -> tuple[str, dict[int, Row]]:
        """Return a statement and its effect on rows."""
        rng, after = self.random, dict(rows)
        keys = rng.sample(range(8), rng.randint(1, 3))
        kind = rng.choice(["UPSERT", "UPSERT", "REPLACE", "UPDATE", "DELETE", "SWAP"])
        if kind == "DELETE":
            for k in keys:
                after.pop(k, None)
            return f"DELETE FROM t WHERE k IN ({', '.join(map(str, keys))})", after
        if kind == "UPDATE":
            value = rng.choice([None, 1, 2, 3, 4])
            after |= {k: (k, value, *rows[k][2:]) for k in keys if k in rows}
            return f"UPDATE t SET a = {literal(value)} WHERE k IN ({', '.join(map(str, keys))})", after
        if kind == "SWAP" and len(present := sorted(rows)) > 1:
            one, other = rng.sample(present, 2)
            new = [(one, *rows[other][1:]), (other, *rows[one][1:])]
        elif kind == "REPLACE":
            new = [(k, self._a(), None, rng.randrange(3)) for k in keys]
        else:
            new = [(k, self._a(), rng.choice([None, "x", "y"]), rng.randrange(3)) for k in keys]
        after |= {row[0]: row for row in new}
        named = [i for i, name in enumerate(COLUMNS) if kind != "REPLACE" or name != "b"]
        values = ", ".join(f"({', '.join(literal(row[i]) for i in named)})" for row in new)
        mode = "REPLACE" if kind == "REPLACE" else "UPSERT"
        return f"{mode} INTO t ({', '.join(COLUMNS[i] for i in named)}) VALUES {values}", after

    def _a(self) -> int | None:
        return self.random.choice([None, *range(8)])

    def _expect(self, after: dict[int, Row], run: Callable[[], Any]) -> None:
        if not any(self._repeats(after, INDEXES[name]) for name in self.indexes):
            run()
            self.rows = after
            return
        with pytest.raises(PreconditionFailed, match="is unique"):
            run()
        self.refusals += 1

    @staticmethod
    def _repeats(rows: dict[int, Row], columns: tuple[str, ...]) -> bool:
        keys = [tuple(row[COLUMNS.index(name)] for name in columns) for row in rows.values()]
        whole = [key for key in keys if None not in key]
        return len(whole) > len(set(whole))

    # --- everything else -----------------------------------------------------------------------------------

    def _index(self) -> None:
        name = self.random.choice(sorted(INDEXES))
        if name in self.indexes:
            self.db.sql(f"ALTER TABLE t DROP INDEX {name}")
            self.indexes.remove(name)
        elif self._repeats(self.rows, INDEXES[name]):
            with pytest.raises(PreconditionFailed, match="is unique"):
                self.db.sql(f"ALTER TABLE t ADD {CREATE[name]}")
        else:
            self.db.sql(f"ALTER TABLE t ADD {CREATE[name]}")
            self.indexes.add(name)

    def _care(self) -> None:
        self.db.compact("/t") if self.random.random() < 0.5 else self.db.maintain()

    def _backup(self) -> None:
        self.db.sql("BACKUP c INCREMENTAL OR FULL")
        self.saved, self.saved_indexes = self.rows, set(self.indexes)

    def _restore(self) -> None:
        if self.saved is not None:
            self.db.sql("RESTORE c WITH (REPLACE = 'true')")
            self.rows, self.indexes = self.saved, set(self.saved_indexes)

    def end(self) -> None:
        described = self.db.describe("/t")["indexes"]
        assert {index["name"] for index in described if index["unique"]} == self.indexes
        assert [row[0] for row in content(self.db, "/t")] == sorted(self.rows, key=lambda k: order((k,)))
        assert_sound(self.db, "/t")
        assert self.refusals, "nothing was refused, which is no proof of anything"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40 if EVERY else 2))
def test_in_the_process(connect: Callable[..., Database], tmp_path: Path, seed: int) -> None:
    settings = Settings(
        bulk_rows=ARROW.bulk_rows,
        scan_rows=ARROW.scan_rows,
        merge_segments=3 + seed % 3,
        compaction_share=1.0,
        inline_rows=2 * (seed % 2),
    )
    storage = str(tmp_path / "repository") if seed % 2 else "cluster"
    history = History(connect(settings=settings, clock=ManualClock()), seed, storage)
    for _ in range(STEPS):
        history.step()
    history.end()


@pytest.mark.skipif(not EVERY, reason="takes minutes; make exhaustive runs it")
@pytest.mark.parametrize("seed", range(6))
def test_on_spark(connect: Callable[..., Database], spark: Any, seed: int) -> None:
    db = connect("shared", settings=SPARK, spark=spark)
    read_with(db, connect("shared", settings=ARROW))
    history = History(db, 100 + seed)
    for _ in range(STEPS):
        history.step()
    history.end()
