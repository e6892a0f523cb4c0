"""Random actions of a process, on so few tables and keys that they conflict often."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from strandline.errors import (
    AlreadyExists,
    Conflict,
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
    UnderOperation,
)
from tests.catalogs import LEASE_SECONDS
from tests.simulation.data import model
from tests.simulation.data.judge import GaveUp, Judge, Reason, Told
from tests.simulation.data.model import INDEXES, Effect, State, Violation
from tests.simulation.data.processes import Intent, Process

GRACE_SECONDS = 15.0
"""A few dozen turns: a process that waits longer must have recorded what it reads, or loses it."""
BIN_SECONDS = 1e6
"""Longer than a history: emptying the bin would be a commit that no action announced."""
KEYS = range(5)
ASIDE = "/m"
"""The other name of a table that is renamed."""
MEMBERS = ("/a", "/b")
"""The tables of the collection."""
COLLECTION = "c"
HELD_WITHIN = (4, 8, 16, 32)
"""Latest points of an action at which a process is held: statements have few points, operations many."""


def create_statement(path: str, indexes: Iterable[str]) -> str:
    listed = "".join(f", INDEX {index_definition(name)}" for name in sorted(indexes))
    return f"CREATE TABLE {path[1:]} (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k){listed})"


def index_definition(name: str) -> str:
    columns, cover = INDEXES[name]
    return f"{name} GLOBAL SYNC ON ({', '.join(columns)})" + (f" COVER ({', '.join(cover)})" if cover else "")


@dataclass(frozen=True)
class Focus:
    """Restricts a history to some actions.

    ``begun``: the actions that are started. ``in_the_way``: the actions that interfere with a held process.
    ``sleeps``: how often it is held for longer than a lease.
    """

    begun: tuple[str, ...]
    in_the_way: tuple[str, ...]
    sleeps: float = 0.5
    grace_seconds: float = GRACE_SECONDS


class Actions:
    """Chooses and runs actions."""

    def __init__(
        self,
        judge: Judge,
        random_: random.Random,
        held: float,
        focus: Focus | None = None,
        *,
        has_bin: bool = False,
    ) -> None:
        self.judge = judge
        self.has_bin = has_bin
        self.history = judge.history
        self.random = random_
        self.held = held
        self.numbers = itertools.count(100)
        self.counts: Counter[str] = Counter()
        everything: list[tuple[int, Callable[[Process], str]]] = [
            (22, self.write), (6, self.write_generator), (6, self.write_many), (20, self.transact), (12, self.read), (5, self.read_index),
            (3, self.read_past), (3, self.check), (3, self.create_or_drop), (6, self.column), (8, self.index), (4, self.back_up),
            (2, self.restore), (6, self.drop_and_restore), (4, self.drop_and_create), (4, self.maintain), (4, self.compact_and_collect),
            (2, self.cancel), (2, self.resume), (4, self.feed),
        ]  # fmt: skip
        # Each seed has its own mix: with all actions, few of them conflict.
        self.choices = [
            (weight * self.random.choice((0, 1, 1, 4)), action) for weight, action in everything
        ] + [
            (10, self.write),
            (4, self.replace),
            (4, self.drop_backup),
            (3, self.prune),
            (4, self.rename),
            (4, self.rename_column),
            (4, self.roll_back),
            (4, self.undrop),
            (2, self.list_commits),
        ]
        self.adverse: list[Callable[[Process], str]] = [
            self.write,
            self.write_many,
            self.column,
            self.index,
            self.drop_and_restore,
        ]
        self.adverse += [self.drop_and_create, self.compact_and_collect, self.write_often, self.replace]
        self.adverse += [
            self.drop_backup,
            self.rename,
            self.rename_column,
            self.roll_back,
            self.drop_and_undrop,
        ]
        self.paths = self.random.choice((("/a",), MEMBERS, (*MEMBERS, "/a", "/r")))
        self.sleeps = 0.5
        if focus is not None:
            self.choices = [(1, getattr(self, name)) for name in focus.begun]
            self.adverse = [getattr(self, name) for name in focus.in_the_way]
            self.paths, self.sleeps = ("/a",), focus.sleeps

    def act(self, process: Process) -> None:
        victim = process.baton.victim
        process.path = self.random.choice(self.paths)
        process.held_at = (
            self.random.randint(1, self.random.choice(HELD_WITHIN))
            if victim is None and self.random.random() < self.held
            else 0
        )
        process.sleeps = self.random.random() < self.sleeps
        if isinstance(victim, Process) and victim.is_awaited:
            action = partial(self.ambush, victim=victim)
        elif any(path not in self.history.now for path in MEMBERS) and self.random.random() < 0.3:
            action = partial(self.replenish)
        else:
            action = partial(
                self.random.choices([a for _, a in self.choices], [weight for weight, _ in self.choices])[0]
            )
        told = action(process)
        self.counts[action.func.__name__] += 1
        self.counts[f"told {'rows' if told.startswith('[') else told.split(' ')[0]}"] += 1

    def warm_up(self, process: Process) -> None:
        """Give the process a session, and load the tables into its cache."""
        for process.path in self.paths:
            self.read(process)

    def ambush(self, process: Process, victim: Process) -> str:
        """Change the table of the held process before it continues.

        If it sleeps, it sleeps until all others take it for dead; then its snapshot may be collected.
        """
        process.path, victim.is_awaited = victim.path, False
        if victim.sleeps:
            process.sleep(1.1 * LEASE_SECONDS)
        for act in self.random.choices(self.adverse, k=self.random.randint(1, 3)):
            act(process)
        told = "done"
        if victim.sleeps:
            for care in self.random.choice(
                ((), (), (self.compact,), (self.collect,), (self.compact, self.collect))
            ):
                told = care(process)
        process.baton.release(victim)
        return told

    # --- rows
    # --------------------------------------------------------------------------------------------------------

    def statement(self, path: str) -> tuple[str, Effect]:
        """Return a statement that changes rows, and its effect."""
        name, key, number = path[1:], self.random.choice(KEYS), next(self.numbers)
        v = self.random.choice("pqr")
        match self.random.choice(
            (
                "upsert",
                "upsert",
                "part",
                "x",
                "insert",
                "replace",
                "add",
                "add",
                "add all",
                "delete",
                "delete on",
                "merge",
                "merge",
                "merge by source",
            )
        ):
            case "upsert":
                return self._put(path, "UPSERT", {"k": key, "v": v, "n": number})
            case "part":
                return self._put(path, "UPSERT", {"k": key, **self.random.choice([{"v": v}, {"n": number}])})
            case "x":
                return self._put(path, "UPSERT", {"k": key, "x": number})
            case "insert":
                return self._put(path, "INSERT", {"k": key, "v": v, "n": number})
            case "replace":
                return self._put(path, "REPLACE", {"k": key, "n": number})
            case "add":
                return f"UPDATE {name} SET n = n + 1 WHERE k = {key}", model.update(path, key, _one_more)
            case "add all":
                return f"UPDATE {name} SET n = n + 1, v = '{v}'", model.update(
                    path, None, lambda row: {**_one_more(row), "v": v}
                )
            case "merge" | "merge by source" as how:
                return self._merge(path, v, number, by_source=how == "merge by source")
            case "delete":
                return f"DELETE FROM {name} WHERE v = '{v}'", model.erase(
                    path, lambda row: bool(row["v"] == v)
                )
            case _:
                return f"DELETE FROM {name} ON (k) VALUES ({key})", model.erase(
                    path, lambda row: bool(row["k"] == key)
                )

    def _merge(self, path: str, v: str, number: int, *, by_source: bool) -> tuple[str, Effect]:
        """Return a MERGE of two rows: it deletes, adds one, or inserts, and may delete all others."""
        keys = self.random.sample(KEYS, 2)
        text = (
            f"MERGE INTO {path[1:]} AS t USING (VALUES {', '.join(f'({key}, {number})' for key in keys)}) AS s (k, n) "
            f"ON t.k = s.k WHEN MATCHED AND t.v = '{v}' THEN DELETE WHEN MATCHED THEN UPDATE SET n = t.n + 1 "
            f"WHEN NOT MATCHED THEN INSERT (k, v, n) VALUES (s.k, '{v}', s.n)"
        )
        rest = " WHEN NOT MATCHED BY SOURCE THEN DELETE" if by_source else ""
        return text + rest, model.merge(path, keys, v, number, by_source=by_source)

    def _put(self, path: str, mode: str, row: dict[str, Any]) -> tuple[str, Effect]:
        values = ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in row.values())
        return f"{mode} INTO {path[1:]} ({', '.join(row)}) VALUES ({values})", model.put(path, mode, [row])

    def write(self, process: Process) -> str:
        text, effect = self.statement(process.path)
        return self._change(process, text, effect)

    def write_many(self, process: Process) -> str:
        """Run several statements on two tables as one commit."""
        made = [
            self.statement(self.random.choice((process.path, *self.paths)))
            for _ in range(self.random.randint(2, 3))
        ]
        return self._change(
            process,
            "; ".join(text for text, _ in made),
            model.one_after_the_other([effect for _, effect in made]),
        )

    def write_often(self, process: Process) -> str:
        """Make enough small commits that the writer merges them."""
        for key in KEYS:
            told = self._change(
                process, *self._put(process.path, "UPSERT", {"k": key, "n": next(self.numbers)})
            )
        return told

    def write_generator(self, process: Process) -> str:
        """Write rows that can only be read once, in a commit that may have to be retried."""
        path, keys = process.path, self.random.sample(KEYS, 2)
        table = process.db.table(path)
        if self.random.random() < 0.6:
            rows = [{"k": key, "v": self.random.choice("pqr"), "n": next(self.numbers)} for key in keys]
            what, effect = f"table {path} upsert of {rows}", model.put(path, "UPSERT", rows)
            return self._told(
                process,
                what,
                self.judge.change(process, what, effect, lambda: table.upsert(row for row in rows)),
            )
        what, effect = f"table {path} delete of {keys}", model.erase(path, lambda row: row["k"] in keys)
        return self._told(
            process, what, self.judge.change(process, what, effect, lambda: table.delete(key for key in keys))
        )

    def transact(self, process: Process) -> str:
        """Read and change several tables in one transaction."""
        begin = self.history.head
        intent = process.intent = Intent(lambda state: state)
        told = None
        try:
            with process.db.transaction():
                told = Told(self.history, begin)
                for _ in range(self.random.randint(2, 5)):
                    self._inside(process, told, intent)
        except GaveUp as reason:
            answer = f"{reason}"
        except StrandlineError as error:
            if error.code != Conflict.code and told is not None:
                raise Violation(f"a transaction ended with {error}") from error
            answer = error.code
        else:
            answer = f"done at {intent.step}"
        finally:
            process.intent = None
        if not answer.startswith("done") and intent.step is not None:
            raise Violation(f"a transaction was told {answer}, but was committed at {intent.step}")
        return self._told(process, "transaction", answer)

    def _inside(self, process: Process, told: Told, intent: Intent) -> None:
        path, sql = self.random.choice((process.path, *self.paths)), process.db.sql
        if self.random.random() < 0.5:
            text, expected = self.query(path)
            told.look(text, expected, lambda: sql(text))
        else:
            text, effect = self.statement(path)
            told.change(text, effect, lambda: sql(text))
            intent.effect = told.effect
        process.baton.trace(f"{process.name}   in its transaction: {text}")

    # --- reads
    # --------------------------------------------------------------------------------------------------------

    def query(self, path: str) -> tuple[str, Callable[[State], model.Seen]]:
        index = self.random.choice((None, None, *INDEXES))
        if index is None:
            return f"SELECT * FROM {path[1:]}", model.rows_of(path)
        columns = self.random.choice((("k", *INDEXES[index][0]), None))
        shown = "*" if columns is None else ", ".join(columns)
        return f"SELECT {shown} FROM {path[1:]} VIEW {index}", model.rows_of(path, columns, index)

    def read(self, process: Process) -> str:
        text = f"SELECT * FROM {(path := process.path)[1:]}"
        return self._told(
            process, text, self.judge.look(process, text, model.rows_of(path), lambda: process.db.sql(text))
        )

    def read_index(self, process: Process) -> str:
        text, expected = self.query(process.path)
        return self._told(
            process, text, self.judge.look(process, text, expected, lambda: process.db.sql(text))
        )

    def read_past(self, process: Process) -> str:
        path, step = process.path, max(1, self.history.head - self.random.randint(0, 6))
        text = f"SELECT * FROM {path[1:]} VERSION AS OF {step}"
        return self._told(
            process,
            text,
            self.judge.look_back(text, model.rows_of(path), lambda: process.db.sql(text), step, path),
        )

    def check(self, process: Process) -> str:
        def look(state: State) -> model.Seen:
            model.table(state, path)
            return model.seen([])

        text = f"CHECK TABLE {(path := process.path)[1:]}"
        return self._told(process, text, self.judge.look(process, text, look, lambda: process.db.sql(text)))

    def feed(self, process: Process) -> str:
        """Read what a changefeed has seen since it was last read; create it if there is none."""
        path = self.random.choice(MEMBERS)
        stream = process.db.stream(f"{path}/feed")
        after = 0
        try:
            after, upto = stream.position, process.db.step
            records = stream.records(after, upto)
            self.judge.feed(path, records, after, upto)
            stream.commit(self.random.choice((after, upto)))
        except PathNotFound:
            if after:
                return self._told(process, f"read the feed of {path}", "gone meanwhile")
            text = f"ALTER TABLE {path[1:]} ADD CHANGEFEED feed WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')"
            return self._operate(process, text, {AlreadyExists.code: always, PathNotFound.code: always})
        except (PreconditionFailed, InvalidArgument, UnderOperation) as error:
            return self._told(
                process, f"read the feed of {path}", error.code
            )  # another feed by now, or not created yet
        return self._told(process, f"read the feed of {path}", f"{len(records)} records in ({after}, {upto}]")

    # --- descriptions
    # --------------------------------------------------------------------------------------------------------

    def create_or_drop(self, process: Process) -> str:
        path = process.path
        return self._create(process, path) if path not in self.history.now else self._drop(process, path)

    def _create(self, process: Process, path: str) -> str:
        indexes = frozenset(name for name in INDEXES if self.random.random() < 0.5)
        return self._change(process, create_statement(path, indexes), model.create(path, indexes))

    def _drop(self, process: Process, path: str) -> str:
        return self._change(process, f"DROP TABLE {path[1:]}", model.drop(path, keep=self.has_bin))

    def undrop(self, process: Process) -> str:
        """Bring back the last dropped table of a path, perhaps under the other name."""
        path, to = process.path, self.random.choice((process.path, ASIDE))
        text = f"UNDROP TABLE {path[1:]}" + (f" AS {to[1:]}" if to != path else "")
        return self._change(process, text, model.undrop(path, to))

    def drop_and_undrop(self, process: Process) -> str:
        self._drop(process, process.path)
        return self.undrop(process)

    def roll_back(self, process: Process) -> str:
        """Bring back the rows of an earlier step. It may no longer be kept, or be of another table."""
        path, step = process.path, max(1, self.history.head - self.random.randint(0, 6))
        text = f"RESTORE TABLE {path[1:]} TO VERSION AS OF {step}"
        effect = model.roll_back(self.history, path, step)
        codes = (PreconditionFailed.code, PathNotFound.code)
        told = self.judge.change(process, text, effect, lambda: process.db.sql(text).step, codes)
        return self._told(process, text, told)

    def list_commits(self, process: Process) -> str:
        text = f"DESCRIBE HISTORY {process.path[1:]}"
        told = self.judge.listed(text, process.path, lambda: process.db.sql(text))
        return self._told(process, text, told)

    def column(self, process: Process) -> str:
        path = process.path
        has = path in self.history.now and "x" in self.history.now[path].columns
        if not has:
            return self._change(
                process, f"ALTER TABLE {path[1:]} ADD COLUMN x Int64", model.add_column(path, "x")
            )
        told = self._change(process, f"ALTER TABLE {path[1:]} DROP COLUMN x", model.drop_column(path, "x"))
        if self.random.random() < 0.5:
            return told
        return self._change(
            process, f"ALTER TABLE {path[1:]} ADD COLUMN x Int64", model.add_column(path, "x")
        )

    def index(self, process: Process) -> str:
        path, name = process.path, self.random.choice(tuple(INDEXES))
        has = path in self.history.now and name in self.history.now[path].indexes
        if has and self.random.random() < 0.7:
            return self._change(
                process, f"ALTER TABLE {path[1:]} DROP INDEX {name}", model.drop_index(path, name)
            )
        return self._change(
            process, f"ALTER TABLE {path[1:]} ADD INDEX {index_definition(name)}", model.add_index(path, name)
        )

    def rename(self, process: Process) -> str:
        """Rename a table, or rename the one with the other name back if its name is free."""
        path, to = process.path, ASIDE
        if path not in self.history.now:
            path, to = to, path
        return self._change(process, f"ALTER TABLE {path[1:]} RENAME TO {to[1:]}", model.rename(path, to))

    def rename_column(self, process: Process) -> str:
        """Rename the optional column to a name that is never written, or back."""
        path = process.path
        has = path in self.history.now and "y" in self.history.now[path].columns
        old, new = ("y", "x") if has else ("x", "y")
        text = f"ALTER TABLE {path[1:]} RENAME COLUMN {old} TO {new}"
        return self._change(process, text, model.rename_column(path, old, new))

    # --- backups and restores
    # --------------------------------------------------------------------------------------------------------

    def back_up(self, process: Process) -> str:
        text = f"BACKUP {COLLECTION}" + self.random.choice(("", " INCREMENTAL", " INCREMENTAL"))
        if "INCREMENTAL" in text:
            # It needs tables that have existed since the last backup, which the model does not track.
            return self._operate(process, text, {PathNotFound.code: always, PreconditionFailed.code: always})
        missing = partial(_is_missing, MEMBERS)
        # Members are tables independent of their names, but the model only knows names.
        return self._operate(process, text, {PathNotFound.code: always if self.history.renamed else missing})

    def drop_backup(self, process: Process) -> str:
        """Drop a backup and all that depend on it."""
        backup = self._a_backup()
        text = f"DROP BACKUP {COLLECTION} '{backup}' CONFIRM"
        return self._operate(process, text, {PathNotFound.code: self._gone(backup)})

    def prune(self, process: Process) -> str:
        """Delete all chains but the last ones."""
        number = self.random.choice((1, 1, 2))
        return self._operate(process, f"PRUNE {COLLECTION} KEEP LAST {number} FULL CONFIRM", {})

    def _a_backup(self) -> str:
        """Return one of the last backups; a name that does not exist if there are none."""
        return self.random.choice(sorted(self.history.backups)[-3:] or ["20200101000000Z_full"])

    def _gone(self, backup: str) -> Reason:
        """Return the reason that it was dropped; names are not reused."""
        return lambda state: backup not in self.history.backups

    def restore(self, process: Process) -> str:
        source, target = self.random.choice((("/a", "/r"), ("/b", "/r"), ("/a", "/a")))
        return self._restore(process, source, target)

    def drop_and_restore(self, process: Process) -> str:
        path = process.path if process.path in MEMBERS else "/a"
        self._drop(process, path)
        return self._restore(process, path, path)

    def drop_and_create(self, process: Process) -> str:
        path = process.path
        self._drop(process, path)
        return self._create(process, path)

    def replenish(self, process: Process) -> str:
        """Create or restore a missing table of the collection."""
        missing = [path for path in MEMBERS if path not in self.history.now]
        path = self.random.choice(missing or MEMBERS)
        return (
            self._restore(process, path, path) if self.random.random() < 0.6 else self._create(process, path)
        )

    def replace(self, process: Process) -> str:
        """Restore over existing tables: one table or both."""
        backup = self._a_backup()
        what = self.random.choice(("", f" TABLE a AS {process.path[1:]}"))
        text = f"RESTORE {COLLECTION} AT '{backup}'{what} WITH (REPLACE = 'true')"
        return self._operate(process, text, self._no_backup(backup))

    def _restore(self, process: Process, source: str, target: str) -> str:
        backup = self._a_backup()
        text = f"RESTORE {COLLECTION} AT '{backup}' TABLE {source[1:]}" + (
            f" AS {target[1:]}" if target != source else ""
        )
        reasons = {AlreadyExists.code: lambda state: target in state, **self._no_backup(backup)}
        return self._operate(process, text, reasons)

    def _no_backup(self, backup: str) -> dict[str, Reason]:
        """Return the reasons for a missing backup; it may also have the table under another name."""
        gone = always if self.history.renamed else self._gone(backup)
        return {PathNotFound.code: gone, PreconditionFailed.code: gone}

    def cancel(self, process: Process) -> str:
        running = [o for o in process.db.operations() if not o.is_over]
        if not running:
            return "nothing to cancel"
        chosen = self.random.choice(running)
        try:
            process.db.cancel(chosen.id)
        except PreconditionFailed:
            return self._told(process, f"cancel a {chosen.kind}", "too late")
        return self._told(process, f"cancel a {chosen.kind}", "asked")

    def resume(self, process: Process) -> str:
        return self._told(process, "resume", f"resumed {len(process.db.resume())}")

    # --- care
    # --------------------------------------------------------------------------------------------------------

    def maintain(self, process: Process) -> str:
        return self._care(process, "maintain", process.db.maintain)

    def compact_and_collect(self, process: Process) -> str:
        self.compact(process)
        return self._care(process, "collect", process.db.collect)

    def compact(self, process: Process) -> str:
        return self._care(process, f"compact {process.path}", lambda: process.db.compact(process.path))

    def collect(self, process: Process) -> str:
        """Collect after all pins that are no longer needed have ended."""
        process.sleep(1.1 * LEASE_SECONDS)
        return self._care(process, "collect", process.db.collect)

    def _care(self, process: Process, what: str, act: Callable[[], Any]) -> str:
        reasons = {PathNotFound.code: always, Conflict.code: always}
        told = self.judge.operate(process, what, act, reasons)
        return self._told(process, what, told)

    # --------------------------------------------------------------------------------------------------------

    def _change(self, process: Process, text: str, effect: Effect) -> str:
        return self._told(
            process, text, self.judge.change(process, text, effect, lambda: process.db.sql(text).step)
        )

    def _operate(self, process: Process, text: str, reasons: Mapping[str, Reason]) -> str:
        return self._told(
            process, text, self.judge.operate(process, text, lambda: process.db.sql(text), reasons)
        )

    def _told(self, process: Process, what: str, told: str) -> str:
        process.baton.trace(f"{process.name} {what}: {told}")
        return told


def always(state: State) -> bool:
    return True


def _is_missing(paths: Iterable[str], state: State) -> bool:
    return any(path not in state for path in paths)


def _one_more(row: model.Row) -> dict[str, Any]:
    return {"n": None if row["n"] is None else row["n"] + 1}
