"""A year of days in simulated time: tables are changed, merged, restored to steps, dropped and undropped.

Each day, the history of every table says what its commits did, and each step that it lists can be read. A
plain dictionary of the rows at each step is the model. ``STRANDLINE_NIGHTS=365`` makes it a year.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Settings
from strandline.errors import StrandlineError
from tests.catalogs import ManualClock
from tests.effort import NIGHTS
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark, assert_sound, tree

DAY = 86400.0
KEPT = 3 * DAY
"""How long the past and dropped tables are kept."""
KEYS = 30
MOST = 3
Rows = dict[int, int]
Done = tuple[str, int, int, int]
"""The statement, and how many rows it inserted, updated and deleted."""


@dataclass
class Table:
    """A table at its present path, and its past: rows, time and commit by step."""

    rows: Rows = field(default_factory=dict)
    states: dict[int, Rows] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    done: dict[int, Done] = field(default_factory=dict)
    undropped: bool = False

    def at(self, step: int) -> Rows:
        return self.states[max(known for known in self.states if known <= step)]


class Days:
    """A warehouse, its model, and what may happen on a day."""

    def __init__(self, folder: Path, catalog: str | None, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.db = strandline.connect(
            folder,
            catalog=catalog,
            files=QuickFiles(folder),
            spark=NoSpark(),  # type: ignore[arg-type]
            clock=self.clock,
            settings=Settings(
                history_seconds=KEPT,
                bin_seconds=KEPT,
                grace_seconds=1.0,
                merge_segments=8,
                compaction_share=1.0,
            ),
        )
        self.tables: dict[str, Table] = {}
        self.bin: list[tuple[str, float, Table]] = []
        self.names = 0
        self.counts: dict[str, int] = {}

    def day(self) -> None:
        acts = [self.upsert, self.upsert, self.delete, self.merge, self.merge, self.restore]
        for _ in range(self.chance.randrange(2, 6)):
            self.clock.sleep(self.chance.randrange(1, 4) * 1800.0)
            if self.tables:
                self.chance.choice(acts)(self.chance.choice(sorted(self.tables)))
        for act, likely in ((self.create, 0.3), (self.drop, 0.4), (self.undrop, 0.2), (self.optimize, 0.2)):
            if self.chance.random() < likely:
                act()
        self.clock.sleep(DAY / 2)
        self.db.maintain()
        self.compare()

    # --- statements ----------------------------------------------------------------------------------------

    def _commit(self, path: str, text: str, rows: Rows, done: Done) -> None:
        """Run a statement that leads to ``rows``."""
        table = self.tables[path]
        result = self.db.sql(text)
        self.counts[done[0]] = self.counts.get(done[0], 0) + 1
        if result.step is None:
            assert rows == table.rows, text
            return
        assert result.rows_changed == sum(done[1:]) or done[0] == "RESTORE", text
        table.rows = rows
        table.states[result.step], table.times[result.step] = rows, self.clock.now()
        table.done[result.step] = done

    def create(self) -> None:
        if len(self.tables) == MOST:
            return
        self.names += 1
        path = f"t{self.names}"
        self.db.sql(
            f"CREATE TABLE {path} (k Int32 NOT NULL, n Int32, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n))"
        )
        table = self.tables[path] = Table()
        table.states[self.db.step], table.times[self.db.step] = {}, self.clock.now()
        table.done[self.db.step] = ("CREATE TABLE", 0, 0, 0)
        self.upsert(path)

    def _some(self) -> list[tuple[int, int]]:
        keys = self.chance.sample(range(KEYS), self.chance.randrange(1, 6))
        return [(key, self.chance.randrange(100)) for key in keys]

    def upsert(self, path: str) -> None:
        rows, some = self.tables[path].rows, self._some()
        known = sum(key in rows for key, _ in some)
        values = ", ".join(map(str, some))
        done = ("UPSERT", len(some) - known, known, 0)
        self._commit(path, f"UPSERT INTO {path} (k, n) VALUES {values}", rows | dict(some), done)

    def delete(self, path: str) -> None:
        rows, limit = self.tables[path].rows, self.chance.randrange(100)
        left = {key: n for key, n in rows.items() if n >= limit}
        done = ("DELETE", 0, 0, len(rows) - len(left))
        self._commit(path, f"DELETE FROM {path} WHERE n < {limit}", left, done)

    def merge(self, path: str) -> None:
        rows, some = self.tables[path].rows, self._some()
        new, counts = dict(rows), [0, 0, 0]
        for key, n in some:
            if key in rows and n < 30:
                del new[key]
                counts[2] += 1
            else:
                new[key] = n
                counts[1 if key in rows else 0] += 1
        text = (
            f"MERGE INTO {path} AS t USING (VALUES {', '.join(map(str, some))}) AS s (k, n) ON t.k = s.k "
            "WHEN MATCHED AND s.n < 30 THEN DELETE WHEN MATCHED THEN UPDATE SET n = s.n "
            "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)"
        )
        self._commit(path, text, new, ("MERGE", *counts))  # type: ignore[arg-type]

    def restore(self, path: str) -> None:
        """Bring back one of the steps that the history lists."""
        table = self.tables[path]
        steps = [event.step for event in self.db.table(path).history() if event.readable]
        if not steps:
            return
        step = self.chance.choice(steps)
        rows = dict(table.at(step))
        self._commit(path, f"RESTORE TABLE {path} TO VERSION AS OF {step}", rows, ("RESTORE", 0, 0, 0))

    def optimize(self) -> None:
        if self.tables:
            self.db.sql(f"OPTIMIZE {self.chance.choice(sorted(self.tables))}")

    def drop(self) -> None:
        if len(self.tables) > 1:
            path = self.chance.choice(sorted(self.tables))
            self.db.sql(f"DROP TABLE {path}")
            self.bin.append((path, self.clock.now(), self.tables.pop(path)))

    def undrop(self) -> None:
        """Bring back a dropped table under another name; its history comes back with it."""
        if not self.bin or len(self.tables) == MOST:
            return
        path, time, table = self.bin.pop(self.chance.randrange(len(self.bin)))
        self.names += 1
        name = f"u{self.names}"
        try:
            self.db.sql(f"UNDROP TABLE {path} AS {name}")
        except StrandlineError as error:
            assert error.code == "PATH_NOT_FOUND", error
            assert self.clock.now() - time >= KEPT
            self.counts["expired"] = self.counts.get("expired", 0) + 1
        else:
            table.undropped = True
            self.tables[name] = table
            self.counts["undrop"] = self.counts.get("undrop", 0) + 1

    # --- the law -------------------------------------------------------------------------------------------

    def compare(self) -> None:
        for path, table in self.tables.items():
            events = self.db.table(path).history()
            listed = {event.step for event in events}
            recent = {step for step, time in table.times.items() if time > self.clock.now() - KEPT}
            assert recent <= listed, "every commit within history_seconds is listed"
            for event in events:
                self._check(table, event)
            readable = [event for event in events if event.readable]
            assert table.undropped or len(readable) >= len(events) - 1
            for event in self.chance.sample(readable, min(2, len(readable))):
                found = self.db.sql(f"SELECT k, n FROM {path} VERSION AS OF {event.step}").rows()
                assert dict(found) == table.at(event.step), (path, event)

    def _check(self, table: Table, event: Any) -> None:
        assert event.rows == len(table.at(event.step))
        if event.step not in table.done:
            assert event.statement in ("COMPACTION", "LOG MERGE"), event
            return
        said = (event.statement, event.inserted or 0, event.updated or 0, event.deleted or 0)
        assert event.time == table.times[event.step]
        if event.statement != "RESTORE":
            assert said == table.done[event.step]
        else:
            before = table.at(event.step - 1)
            assert event.inserted - event.deleted == event.rows - len(before)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_year_of_history(tmp_path: Path, catalog_url: str | None) -> None:
    days = Days(tmp_path, catalog_url, seed=20250101)
    for _ in range(2):
        days.create()
    for _ in range(NIGHTS):
        days.day()
    # Nothing happens any more: the history shrinks to the last commit, and the bin becomes empty.
    for path in days.tables:
        days.db.sql(f"OPTIMIZE {path}")
        assert_sound(days.db, f"/{path}")
    days.clock.sleep(KEPT + 2)
    days.db.maintain()
    for path in days.tables:
        assert len(days.db.table(path).history()) == 1
    assert days.db.sql("SHOW BIN").rows() == []
    tables = [path for path, type_ in tree(days.db) if type_ == "table" and "/by_n/" not in path]
    assert tables == sorted(f"/{path}" for path in days.tables)
    assert {"MERGE", "RESTORE", "undrop", "expired"} <= days.counts.keys()
    days.db.close()
