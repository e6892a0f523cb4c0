"""Model of the mix: the logs of its processes, and the tables that must result, as plain dictionaries.

A process logs one JSON object per call: ``what`` it did, its ``step`` and its ``changes``, or the ``error``.
An error that the process itself finds is logged as ``wrong``. A process that may be killed first logs what it
is about to do, under a name that it writes to the ledger in the same commit. If it dies, the ledger tells
whether the commit took place.

Changes, each with a table and a key: ``set`` some columns, ``insert`` a row, ``add`` to a column, ``delete``
a row. Changes of a table: ``forget`` columns, ``reset`` it to its state at an earlier step.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from strandline import Database, Settings

KEYS = 12
"""Number of rows of each table that are never deleted."""
EACH = 100
SUM = 2 * KEYS * EACH
"""Sum of ``n`` in ``a`` and ``b``, which transfers do not change."""
COLUMNS = "(k Int64 NOT NULL, n Int64, u Int64, v Utf8, w Utf8, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n), INDEX by_v GLOBAL SYNC ON (v) COVER (w))"
"""``v`` and ``w`` are always written together, and so are ``x`` and ``y``, which are added and dropped."""
TABLES = ("a", "b", "c", "l")
OF_BOTH = ("a", "b", "l")
COLLECTIONS: dict[str, tuple[str, ...]] = {"both": OF_BOTH, "one": ("c",)}
"""The tables of each collection. The table of ``one`` is restored in place."""
SETTINGS = Settings(
    history_seconds=0.0,
    grace_seconds=4.0,
    read_seconds=2.0,
    merge_segments=4,
    compaction_share=1.0,
    compact_log_segments=6,
    inline_rows=1,
    shard_bytes=1_000,
    workers=2,
    session_seconds=20.0,
    bulk_rows=10**9,
    scan_rows=10**9,
)
"""Merge, compact and collect garbage continuously."""

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[Any, Row]
Model: TypeAlias = dict[str, Rows]


def create(db: Database) -> None:
    for table in ("a", "b", "c"):
        db.sql(f"CREATE TABLE {table} {COLUMNS}")
        db.table(table).insert([{"k": k, **first(k)} for k in range(KEYS)])
    db.sql("CREATE TABLE l (k Utf8 NOT NULL, PRIMARY KEY (k)); UPSERT INTO l (k) VALUES ('first')")
    for name, tables in COLLECTIONS.items():
        held = ", ".join(f"TABLE {table}" for table in tables)
        db.sql(
            f"CREATE BACKUP COLLECTION {name} ({held}) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
        )


def first(key: int) -> Row:
    return {"n": EACH, "u": 0, "v": "none", "w": "none"}


def beginning() -> Model:
    return {"l": {"first": {}}, **{table: {k: first(k) for k in range(KEYS)} for table in ("a", "b", "c")}}


def read(db: Database, table: str) -> tuple[Rows, list[str]]:
    """Return all rows of a table by key, and what is wrong with them."""
    found = db.sql(f"SELECT * FROM {table}")
    rows: Rows = {}
    wrong = []
    for values in found.rows():
        row = {name: value for name, value in zip(found.columns, values, strict=True) if value is not None}
        key = row.pop("k")
        if key in rows:
            wrong.append(f"{table} has the key {key} twice: {rows[key]} and {row}")
        if row.get("v") != row.get("w") or row.get("x") != row.get("y"):
            wrong.append(f"columns of {table} that are written together differ at {key}: {row}")
        rows[key] = row
    wrong += [
        f"{table} has no row {key}"
        for key in (range(KEYS) if "l" not in table else ("first",))
        if key not in rows
    ]
    return rows, wrong


@dataclass(frozen=True)
class Commit:
    step: int
    what: str
    changes: list[list[Any]]


@dataclass
class History:
    """What the processes did, from all their logs."""

    commits: list[Commit] = field(default_factory=list)
    unknown: dict[str, list[list[Any]]] = field(default_factory=dict)
    """What each killed process was about to commit, by its name in the ledger."""
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    backups: dict[tuple[str, str], int] = field(default_factory=dict)
    """The step of each backup, by collection and name."""
    removed: set[tuple[str, str]] = field(default_factory=set)
    """The backups that were removed again."""
    restored: list[tuple[int, Model]] = field(default_factory=list)
    """Tables restored under other names, with the step of the backup."""

    @staticmethod
    def of(folder: Path) -> History:
        history = History()
        for file in sorted(folder.glob("*.log")):
            begun: dict[str, list[list[Any]]] = {}
            for line in file.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # The last line of a process that was killed.
                history._take(file.stem, entry, begun)
            history.unknown |= begun
        history.commits.sort(key=lambda commit: commit.step)
        return history

    def _take(self, who: str, entry: dict[str, Any], begun: dict[str, list[list[Any]]]) -> None:
        if "about" in entry:
            begun[entry["about"]] = entry["changes"]
            return
        what = entry["what"]
        begun.pop(entry.get("name", ""), None)
        if "wrong" in entry:
            self.wrong.append(f"{who}, {what}: {entry['wrong']}")
        elif "error" in entry:
            self.refused[f"{what}: {entry['error']}"] += 1
        else:
            self.counts[what] += 1
        if entry.get("step") is not None:
            self.commits.append(Commit(entry["step"], f"{who}, {what}", entry["changes"]))
        if "backup" in entry:
            self.backups[entry["backup"][0], entry["backup"][1]] = entry["backup"][2]
        self.removed |= {(collection, name) for collection, name in entry.get("removed", ())}
        if "restored" in entry:
            tables = {name: dict(rows) for name, rows in entry["restored"].items()}
            self.restored.append((entry["of"], tables))

    def models(self) -> tuple[Model, dict[int, Model]]:
        """Return the final state and the state at the step of each backup.

        Reports commits that are impossible in the order of their steps as wrong.
        """
        wanted = sorted(set(self.backups.values()))
        model, at = beginning(), dict[int, Model]()
        last = 0
        for commit in self.commits:
            while wanted and wanted[0] < commit.step:
                at[wanted.pop(0)] = copy.deepcopy(model)
            if commit.step == last:
                self.wrong.append(f"step {last} was given to two commits, the second is {commit.what}")
            last = commit.step
            for change in commit.changes:
                if (problem := apply(model, change, at)) is not None:
                    self.wrong.append(f"step {commit.step}, {commit.what}: {problem}")
        for step in wanted:
            at[step] = copy.deepcopy(model)
        return model, at

    def compare(self, expected: Model, found: Model, when: str) -> list[str]:
        """Return which changes are missing or unexpected in the tables ``found``."""
        expected = copy.deepcopy({table: expected[table] for table in found})
        for name, changes in self.unknown.items():
            if name in found.get("l", {}):
                for change in changes:
                    apply(expected, change, {})
        wrong = []
        for table, rows in found.items():
            for key in sorted(expected[table].keys() | rows.keys(), key=repr):
                if expected[table].get(key) != rows.get(key):
                    wrong.append(
                        f"{when}, {table} at {key!r}: {rows.get(key)} instead of {expected[table].get(key)}"
                    )
        return wrong


def apply(model: Model, change: list[Any], at: dict[int, Model]) -> str | None:
    """Apply a change to the model; return why that is impossible, if it is."""
    kind, table, *about = change
    rows = model[table]
    match kind, *about:
        case "set", key, values:
            rows.setdefault(key, {}).update(values)
        case "insert", key, values:
            if key in rows:
                return f"the key {key} was inserted into {table}, but was there already"
            rows[key] = dict(values)
        case "add", key, column, amount:
            if key not in rows:
                return f"the row {key} of {table} was changed, but was not there"
            rows[key][column] += amount
        case "delete", key:
            if rows.pop(key, None) is None:
                return f"the row {key} of {table} was deleted, but was not there"
        case "forget", columns:
            for row in rows.values():
                for column in columns:
                    row.pop(column, None)
        case "reset", step:
            model[table] = copy.deepcopy(at[step][table])
        case _:
            raise AssertionError(change)
    return None


def shown(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(counts))
