"""One process of the mix: ``python -m tests.crash.mix_worker``.

It acts in its role until the file ``stop`` appears beside its log.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError
from tests.backups.reading import hurry, records
from tests.crash.mix import KEYS, OF_BOTH, SETTINGS, SUM, read
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark

IN_PLACE = ("PATH_NOT_FOUND", "UNDER_OPERATION")
"""Errors that are expected on a table that is dropped and restored concurrently."""
Changes = list[list[Any]]
TRIES = 20


def connect(folder: str, url: str | None, settings: Settings) -> Database:
    spark: Any = NoSpark()
    db = strandline.connect(folder, catalog=url, settings=settings, files=QuickFiles(folder), spark=spark)
    hurry(db)
    return db


class Warnings(logging.Handler):
    """Checks the library's log: housekeeping may find the table gone; damage is an error."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        damage = "CORRUPTED" in text or "INTERNAL" in text
        self._worker.write(what="warning", **{"wrong" if damage else "text": text})


class Worker:
    """A role: calls one of its methods ``do_...`` at a time, and reconnects every few seconds."""

    settings = SETTINGS
    pause = 0.02

    def __init__(self, log: Path, name: str) -> None:
        self._log = log.open("a", buffering=1)
        self.name = name
        self.rng = random.Random(name)
        self.count = 0
        self.db: Database
        logging.getLogger("strandline").addHandler(Warnings(self))

    def run(self, folder: str, url: str | None, stop: Path) -> None:
        acts: list[Callable[[], None]] = [
            getattr(self, name) for name in sorted(dir(self)) if name.startswith("do_")
        ]
        while not stop.exists():
            until = time.monotonic() + self.rng.uniform(2, 5)
            with connect(folder, url, self.settings) as self.db:
                while time.monotonic() < until and not stop.exists():
                    self.rng.choice(acts)()
                    time.sleep(self.rng.uniform(0, self.pause))

    def write(self, **entry: Any) -> None:
        self._log.write(json.dumps(entry) + "\n")

    def did(self, what: str, **about: Any) -> None:
        self.write(what=what, **about)

    def fail(self, what: str, wrong: str) -> None:
        """Report an error and exit, because later results would be unreliable."""
        self.write(what=what, wrong=wrong)
        sys.exit(1)

    @contextmanager
    def allowing(self, what: str, *codes: str, **about: Any) -> Iterator[None]:
        """Accept errors with these codes; any other error is wrong."""
        try:
            yield
        except StrandlineError as error:
            if error.code not in codes:
                import traceback

                traceback.print_exc()
                self.fail(what, str(error))
            self.did(what, error=error.code, **about)

    def change(self, what: str, text: str, changes: Changes, *codes: str, rows: int | None = None) -> bool:
        """Run statements as one commit; return True if it took place.

        ``rows``: the expected number of changed rows.
        """
        with self.allowing(what, *codes):
            result = self.db.sql(text)
            if rows is not None and result.rows_changed != rows:
                self.fail(what, f"{text} changed {result.rows_changed} rows at step {result.step}")
            self.did(what, step=result.step, changes=changes)
            return result.step is not None
        return False

    def transact(self, what: str, changes: Changes, *texts: str, name: str = "") -> None:
        """Run statements of one row each in a transaction of several calls; retry it on conflicts."""
        for _ in range(TRIES):
            steps: list[int | None] = []
            if name:
                self.write(about=name, changes=changes)
            with self.allowing(what, "CONFLICT", name=name):
                with self.db.transaction():
                    tx = self.db._transactions.current
                    assert tx is not None
                    commit = tx.commit
                    tx.commit = lambda commit=commit, steps=steps: steps.append(commit())  # type: ignore
                    for text in texts:
                        if self.db.sql(text).rows_changed != 1:
                            self.fail(what, f"{text} did not change one row")
                self.did(what, step=steps[0], changes=changes, name=name)
                return

    def unique(self) -> int:
        self.count += 1
        return (os.getpid() % 100_000) * 1_000_000 + self.count

    def value(self) -> str:
        return f"{self.name} {self.unique()}"

    def key(self) -> int:
        return self.rng.randrange(KEYS)


class Writer(Worker):
    """Writes to ``a`` and ``b``, where no statement is ever refused."""

    def __init__(self, log: Path, name: str) -> None:
        super().__init__(log, name)
        self.own: list[tuple[str, int]] = []

    def table(self) -> str:
        return self.rng.choice(("a", "b"))

    def do_upsert(self) -> None:
        table, key, value = self.table(), self.key(), self.value()
        text = f"UPSERT INTO {table} (k, v, w) VALUES ({key}, '{value}', '{value}')"
        self.change("upsert", text, [["set", table, key, {"v": value, "w": value}]], rows=1)

    def do_upsert_both(self) -> None:
        key, value = self.key(), self.value()
        text = "; ".join(
            f"UPSERT INTO {t} (w, v, k) VALUES ('{value}', '{value}', {key})" for t in ("a", "b")
        )
        self.change("upsert", text, [["set", t, key, {"v": value, "w": value}] for t in ("a", "b")], rows=2)

    def do_upsert_generated(self) -> None:
        table, value = self.table(), self.value()
        keys = self.rng.sample(range(KEYS), 3)
        with self.allowing("upsert of a generator"):
            step = self.db.table(table).upsert({"k": k, "v": value, "w": value} for k in keys)
            self.did(
                "upsert of a generator",
                step=step,
                changes=[["set", table, k, {"v": value, "w": value}] for k in keys],
            )
            if step is None:
                self.fail("upsert of a generator", "it was not committed")

    def do_count(self) -> None:
        table, key = self.table(), self.key()
        self.change(
            "count", f"UPDATE {table} SET u = u + 1 WHERE k = {key}", [["add", table, key, "u", 1]], rows=1
        )

    def do_insert(self) -> None:
        table, key, value = self.table(), self.unique(), self.value()
        text = f"INSERT INTO {table} (k, n, v, w) VALUES ({key}, 0, '{value}', '{value}')"
        if self.change("insert", text, [["insert", table, key, {"n": 0, "v": value, "w": value}]], rows=1):
            self.own.append((table, key))

    def do_delete(self) -> None:
        if self.own:
            table, key = self.own.pop(self.rng.randrange(len(self.own)))
            self.change("delete", f"DELETE FROM {table} WHERE k = {key}", [["delete", table, key]], rows=1)

    def do_write_what_comes_and_goes(self) -> None:
        table, key, value = self.table(), self.key(), self.unique()
        text = f"UPSERT INTO {table} (k, x, y) VALUES ({key}, {value}, {value})"
        self.change(
            "write to x and y",
            text,
            [["set", table, key, {"x": value, "y": value}]],
            "INVALID_ARGUMENT",
            rows=1,
        )

    def do_transfer(self) -> None:
        self.transfer("transfer")

    def transfer(self, what: str) -> None:
        (one, other), amount = self.rng.sample(("a", "b"), 2), self.rng.randrange(1, 10)
        here, there = self.key(), self.key()
        texts = [
            f"UPDATE {one} SET n = n - {amount} WHERE k = {here}",
            f"UPDATE {other} SET n = n + {amount} WHERE k = {there}",
        ]
        changes = [["add", one, here, "n", -amount], ["add", other, there, "n", amount]]
        self.transact(what, changes, *texts)


class Guest(Worker):
    """Writes to ``c``, which is dropped and restored meanwhile."""

    def __init__(self, log: Path, name: str) -> None:
        super().__init__(log, name)
        self.own: list[int] = []

    def do_upsert(self) -> None:
        key, value = self.key(), self.value()
        text = f"UPSERT INTO c (k, v, w) VALUES ({key}, '{value}', '{value}')"
        self.change("upsert in c", text, [["set", "c", key, {"v": value, "w": value}]], *IN_PLACE, rows=1)

    def do_count(self) -> None:
        key = self.key()
        self.change(
            "count in c",
            f"UPDATE c SET u = u + 1 WHERE k = {key}",
            [["add", "c", key, "u", 1]],
            *IN_PLACE,
            rows=1,
        )

    def do_insert(self) -> None:
        key, value = self.unique(), self.value()
        text = f"INSERT INTO c (k, n, v, w) VALUES ({key}, 0, '{value}', '{value}')"
        if self.change(
            "insert in c", text, [["insert", "c", key, {"n": 0, "v": value, "w": value}]], *IN_PLACE, rows=1
        ):
            self.own.append(key)

    def do_delete(self) -> None:
        if len(self.own) > 3:  # Whether the row exists depends on which backup was restored.
            key = self.own.pop(self.rng.randrange(len(self.own)))
            self.change("delete in c", f"DELETE FROM c WHERE k = {key}", [["delete", "c", key]], *IN_PLACE)


class Sleeper(Writer):
    """A writer with a short lease, which is repeatedly suspended for longer than its lease."""

    settings = replace(SETTINGS, session_seconds=1.0)
    pause = 0.0


class Mortal(Worker):
    """A writer that is killed and restarted."""

    pause = 0.0

    def do_transfer(self) -> None:
        name = f"{self.name} {self.unique()}"
        amount, key, other = self.rng.randrange(1, 10), self.key(), self.key()
        changes: list[list[Any]] = [
            ["add", "a", key, "n", amount],
            ["add", "b", other, "n", -amount],
            ["set", "l", name, {}],
        ]
        texts = [
            f"UPDATE a SET n = n + {amount} WHERE k = {key}",
            f"UPDATE b SET n = n - {amount} WHERE k = {other}",
        ]
        self.transact(
            "transfer of one that may die", changes, *texts, f"INSERT INTO l (k) VALUES ('{name}')", name=name
        )


class Reader(Worker):
    pause = 0.1

    def do_look_at_both(self) -> None:
        """Read both tables in one transaction: transfers lose nothing, and every index matches its table."""
        with self.allowing("look at both", "CONFLICT"):
            with self.db.transaction():
                both = {table: self.rows(table) for table in ("a", "b")}
                total = sum(row.get("n", 0) for rows in both.values() for row in rows.values())
                if total != SUM:
                    self.fail("look at both", f"the sum is {total}")
                for table, rows in both.items():
                    self.compare_indexes("look at both", table, rows)
            self.did("look at both")

    def do_look_at_one(self) -> None:
        table = self.rng.choice(("a", "b", "l"))
        with self.allowing("look at one"):
            self.rows(table)
            self.did("look at one")

    def do_look_by_index(self) -> None:
        """Read an index and its table in one statement."""
        table = self.rng.choice(("a", "b"))
        with self.allowing("look by an index"):
            found = self.db.sql(f"SELECT k, v, w, u FROM {table} VIEW by_v").rows()
            keys = [row[0] for row in found]
            if (
                len(set(keys)) != len(keys)
                or not set(range(KEYS)) <= set(keys)
                or any(row[1] != row[2] for row in found)
            ):
                self.fail("look by an index", f"{table} shows {found}")
            self.did("look by an index")

    def do_look_by_an_index_that_comes_and_goes(self) -> None:
        table = self.rng.choice(("a", "b"))
        with self.allowing("look by an index that comes and goes", "PATH_NOT_FOUND"):
            keys = sorted(row[0] for row in self.db.sql(f"SELECT k FROM {table} VIEW by_u").rows())
            if keys[:KEYS] != list(range(KEYS)):
                self.fail("look by an index that comes and goes", f"{table} shows {keys}")
            self.did("look by an index that comes and goes")

    def do_look_at_c(self) -> None:
        with self.allowing("look at c", *IN_PLACE):
            self.rows("c")
            self.did("look at c")

    def do_look_at_c_by_index(self) -> None:
        with self.allowing("look at c by an index", *IN_PLACE, "CONFLICT"):
            with self.db.transaction():
                self.compare_indexes("look at c by an index", "c", self.rows("c"))
            self.did("look at c by an index")

    def rows(self, table: str) -> dict[Any, dict[str, Any]]:
        rows, wrong = read(self.db, table)
        if wrong:
            self.fail(f"look at {table}", "; ".join(wrong[:3]))
        return rows

    def compare_indexes(self, what: str, table: str, rows: dict[Any, dict[str, Any]]) -> None:
        for index, columns in (("by_n", ("n",)), ("by_v", ("v", "w"))):
            found = {
                row[0]: row[1:]
                for row in self.db.sql(f"SELECT k, {', '.join(columns)} FROM {table} VIEW {index}").rows()
            }
            expected = {key: tuple(row.get(name) for name in columns) for key, row in rows.items()}
            if found != expected:
                lost = {key: (found.get(key), expected.get(key)) for key in found.keys() | expected.keys()}
                self.fail(
                    what, f"{index} of {table} differs: {[i for i in lost.items() if i[1][0] != i[1][1]][:3]}"
                )


class Designer(Worker):
    """Adds and drops an index and two columns of ``a`` and ``b``, always with the same names."""

    pause = 0.5

    def do_index(self) -> None:
        table = self.rng.choice(("a", "b"))
        has = any(index["name"] == "by_u" for index in self.db.describe(f"/{table}")["indexes"])
        text = f"ALTER TABLE {table} " + (
            "DROP INDEX by_u" if has else "ADD INDEX by_u GLOBAL SYNC ON (u) COVER (v)"
        )
        self.change("drop index" if has else "add index", text, [], "UNDER_OPERATION")

    def do_columns(self) -> None:
        table = self.rng.choice(("a", "b"))
        has = any(column["name"] == "x" for column in self.db.describe(f"/{table}")["columns"])
        if has and self.rng.random() < 0.5:
            return  # Let other processes write to the columns first.
        actions = "DROP COLUMN x, DROP COLUMN y" if has else "ADD COLUMN x Int64, ADD COLUMN y Int64"
        changes: Changes = [["forget", table, ["x", "y"]]] if has else []
        self.change(
            "drop columns" if has else "add columns",
            f"ALTER TABLE {table} {actions}",
            changes,
            "UNDER_OPERATION",
        )


class Archivist(Worker):
    """Backs up ``a``, ``b`` and the ledger, and restores the backups under other names to check them."""

    collection = "both"
    pause = 1.0

    def __init__(self, log: Path, name: str) -> None:
        super().__init__(log, name)
        self.begun = False

    def do_backup(self) -> bool:
        full = not self.begun or self.rng.random() < 0.25
        what = "full backup" if full else "increment"
        with self.allowing(what, "UNDER_OPERATION"):
            self.db.sql(f"BACKUP {self.collection}{'' if full else ' INCREMENTAL'}")
            record = records(self.db, self.collection)[-1]
            self.begun = True
            self.did(what, backup=[self.collection, record.name, record.step])
            return True
        return False

    def do_prune(self) -> None:
        """Remove old backups, keep the last two chains."""
        with self.allowing("prune", "UNDER_OPERATION"):
            before = [record.name for record in records(self.db, self.collection)]
            self.db.sql(f"PRUNE {self.collection} KEEP LAST 2 FULL CONFIRM")
            left = {record.name for record in records(self.db, self.collection)}
            self.did("prune", removed=[[self.collection, name] for name in before if name not in left])

    def do_restore(self) -> None:
        if not self.do_backup():
            return
        record = self.rng.choice(records(self.db, "both"))
        with self.allowing("restore beside"):
            targets = ", ".join(f"TABLE {table} AS copy_{table}" for table in OF_BOTH)
            self.db.sql(f"RESTORE both AT '{record.name}' {targets}")
            found = {}
            for table in OF_BOTH:
                rows, wrong = read(self.db, f"copy_{table}")
                wrong += [str(problem) for problem in self.db.check(f"/copy_{table}").problems]
                if wrong:
                    self.fail("restore beside", "; ".join(wrong[:3]))
                found[table] = list(rows.items())
                self.db.sql(f"DROP TABLE copy_{table}")
            self.did("restore beside", restored=found, of=record.step)


class Restorer(Archivist):
    """Backs up ``c`` and restores it in place."""

    collection = "one"
    pause = 0.2

    def do_restore(self) -> None:
        known = records(self.db, "one")
        if not known:
            return
        record = self.rng.choice(known)
        with self.allowing("restore in place"):
            step = self.db.sql("DROP TABLE c").step
            self.did("drop", step=step, changes=[["reset", "c", record.step]])
            self.db.sql(f"RESTORE one AT '{record.name}' TABLE c")
            self.begun = False  # The restored table is a new one, which no increment can continue.
            self.did("restore in place")

    do_restore_again = do_restore


class Caretaker(Worker):
    pause = 0.2

    def do_maintain(self) -> None:
        with self.allowing("maintain"):
            self.db.maintain()
            self.did("maintain")

    def do_compact(self) -> None:
        with self.allowing("compact", *IN_PLACE, "CONFLICT"):
            self.db.compact(f"/{self.rng.choice(('a', 'b', 'c', 'l'))}")
            self.did("compact")

    def do_collect(self) -> None:
        with self.allowing("collect"):
            self.db.collect()
            self.did("collect")


ROLES: dict[str, type[Worker]] = {
    role.__name__.lower(): role
    for role in (Writer, Guest, Sleeper, Mortal, Reader, Designer, Archivist, Restorer, Caretaker)
}


def main(folder: str, url: str, logs: str, name: str) -> None:
    role = ROLES[name.split("-")[0]]
    print("ready", flush=True)
    role(Path(logs) / f"{name}.log", name).run(folder, url or None, Path(logs) / "stop")


if __name__ == "__main__":
    main(*sys.argv[1:])
