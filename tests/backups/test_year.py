"""A year of nightly backups in simulated time.

Every night has a backup, every kept backup restores what it held, and the repository holds only what the
rules allow.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.backups.record import BackupRecord, require_collection
from strandline.backups.repository.repository import Repository
from strandline.backups.verify.verification_history import object_results
from strandline.errors import StrandlineError
from strandline.storage.files import LocalFiles
from tests.backups.reading import HERE, State, backups, contents, hurry, leaks, open_at, records
from tests.backups.unreliable import Line, go_through
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import Fate, bury
from tests.crash.mortal import connect as mortal_connect
from tests.effort import NIGHTS
from tests.tables.examples import NoSpark, content, tree

DAY = 86400.0
BEGIN = datetime(2025, 1, 1, 2, tzinfo=timezone.utc).timestamp()
RULES = "KEEP WITHIN 14d DAILY 7 WEEKLY 4 MONTHLY 12"
MAX_CHAIN = 5
COLUMNS = ("v", "n")
KEYS = 40
MOST = 3
"""Maximum number of tables."""


@dataclass
class Table:
    """The content of a table: its columns after the key, and its rows by key."""

    columns: list[str] = field(default_factory=lambda: list(COLUMNS))
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def state(self) -> State:
        return {(k,): (k, *(row.get(c) for c in self.columns)) for k, row in self.rows.items()}


Model = dict[str, Table]


class Year:
    """The nights, one after the other. ``taken``: the content of the database at each backup."""

    def __init__(self, folder: Path, repository: Path, seed: int) -> None:
        self.folder, self.repository = folder, repository
        self.rng = random.Random(seed)
        self.clock = ManualClock(BEGIN)
        self.line = Line(self.clock)
        self.model: Model = {}
        self.taken: dict[str, Model] = {}
        self.since: dict[str, float] = {}
        """When each object was first seen in the repository."""
        self.left: set[str] = set()
        """Backups that the rules would not have kept after the last night."""
        self.counts: dict[str, int] = {}
        self.names = 0
        self.db = self._open()
        self.db.sql(
            f"CREATE BACKUP COLLECTION c DATABASE WITH (STORAGE = '{repository}', RETENTION = '{RULES}', "
            f"INCREMENTAL_BACKUP_ENABLED = 'true', MAX_CHAIN = {MAX_CHAIN}, COMPACT_CHAIN = 'true')"
        )
        for _ in range(2):
            self._create()

    def _open(self) -> Database:
        db = open_at(self.folder, clock=self.clock)
        go_through(db, self.line)
        return db

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- day -----------------------------------------------------------------------------------------------

    def day(self) -> None:
        """Do what users do until the next night."""
        likely = {
            self._create: 0.08,
            self._drop: 0.05,
            self._add_column: 0.05,
            self._drop_column: 0.03,
            self._restore_dropped: 0.06,
            self._replace: 0.04,
            self._replace_all: 0.02,
        }
        for act, chance in likely.items():
            if self.rng.random() < chance:
                act()
        for path in self.model:
            if self.rng.random() < 0.7:
                self._change(path)

    def _change(self, path: str) -> None:
        table, rng = self.model[path], self.rng
        new = {}
        for key in rng.sample(range(KEYS), rng.randrange(1, 5)):
            new[key] = {
                c: rng.randrange(100) if c == "n" else f"{c}{rng.randrange(10**6)}" for c in table.columns
            }
        self.db.table(path).upsert([{"k": key, **row} for key, row in new.items()])
        table.rows.update(new)
        if rng.random() < 0.5:
            gone = rng.choice(sorted(table.rows))
            self.db.sql(f"DELETE FROM `{path}` WHERE k = {gone}")
            del table.rows[gone]

    def _create(self) -> None:
        if len(self.model) == MOST:
            return
        self.names += 1
        path = f"/t{self.names}" if self.names % 3 else f"/dir/t{self.names}"
        self.db.sql(
            f"CREATE TABLE `{path}` (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n))"
        )
        self.model[path] = Table()
        self._change(path)
        self._count("create")

    def _drop(self) -> None:
        if len(self.model) > 1:
            path = self.rng.choice(sorted(self.model))
            self.db.sql(f"DROP TABLE `{path}`")
            del self.model[path]
            self._count("drop")

    def _add_column(self) -> None:
        path = self.rng.choice(sorted(self.model))
        if len(self.model[path].columns) < 4:
            self.names += 1
            self.db.sql(f"ALTER TABLE `{path}` ADD COLUMN c{self.names} Utf8")
            self.model[path].columns.append(f"c{self.names}")
            self._count("add a column")

    def _drop_column(self) -> None:
        for path in sorted(self.model):
            if (table := self.model[path]).columns[2:]:
                name = table.columns.pop()
                self.db.sql(f"ALTER TABLE `{path}` DROP COLUMN {name}")
                for row in table.rows.values():
                    row.pop(name, None)
                self._count("drop a column")
                return

    def _restore_dropped(self) -> None:
        backup = self.rng.choice(sorted(self.kept()))
        gone = sorted(self.taken[backup].keys() - self.model.keys())
        if gone and len(self.model) < MOST:
            self.db.sql(f"RESTORE c AT '{backup}' TABLE `{gone[0]}`")
            self.model[gone[0]] = copy.deepcopy(self.taken[backup][gone[0]])
            self._count("restore")

    def _replace(self) -> None:
        backup = self.rng.choice(sorted(self.kept()))
        there = sorted(self.taken[backup].keys() & self.model.keys())
        if there:
            self._replaced(f"RESTORE c AT '{backup}' TABLE `{there[0]}`", backup, there[:1])

    def _replace_all(self) -> None:
        """Restore all that the last backup holds, in place; increments continue."""
        backup = max(self.kept())
        self._replaced(f"RESTORE c AT '{backup}'", backup, sorted(self.taken[backup]))

    def _replaced(self, restore: str, backup: str, paths: list[str]) -> None:
        if len(self.model.keys() | set(paths)) > MOST:
            return
        self.db.sql(f"{restore} WITH (REPLACE = 'true')")
        for path in paths:
            self.model[path] = copy.deepcopy(self.taken[backup][path])
        drop_below(self.db, "/.replaced")
        self._count("replace")

    # --- night ---------------------------------------------------------------------------------------------

    def night(self, number: int) -> None:
        """Take a backup, whatever happens, and verify a part of the repository."""
        self.clock.sleep(BEGIN + number * DAY - self.clock.now())
        earlier = {record.name: record for record in records(self.db)}
        before = set(earlier)
        statement = "BACKUP c" if number % 7 == 0 else "BACKUP c INCREMENTAL OR FULL"
        what = self.rng.choices(("well", "outage", "death"), (20, 1, 2))[0] if number else "well"
        self._count(what)
        if what == "outage":
            self._without_repository(statement)
        else:
            if what == "death":
                self._die(statement)
            if what == "well" or not self._is_done(before):
                self.db.sql(statement)
            self._settled(is_well=what == "well")
            if number % 5 == 4:
                self._merge()
        new = self.kept() - before
        assert new, f"night {number} ({what}) has no backup"
        known = earlier | {record.name: record for record in records(self.db)}
        gone = chosen([known[name] for name in sorted(known)], self.clock.now()) - self.kept()
        assert not gone, f"{gone} should be there"
        for name in new:
            self.taken[name] = copy.deepcopy(self.model)
        assert self._states(max(new)) == self._states_then(max(new))

    def _merge(self) -> None:
        """Merge increments that no time rule keeps."""
        there = records(self.db)
        kept = chosen(there, self.clock.now())
        some = [r.name for r in there if r.kind == "incremental" and r.parent not in kept] or [there[-1].name]
        name = self.rng.choice(some)
        self.db.sql(f"COMPACT c INCREMENTS TO '{name}'")
        gone = {record.name for record in there} - self.kept()
        assert not gone & kept, "what a rule keeps is not swallowed"
        assert name not in gone
        self.counts["swallowed"] = self.counts.get("swallowed", 0) + len(gone)

    def _is_done(self, before: set[str]) -> bool:
        """Return whether the backup of this night is taken and uploaded, after a death."""
        there = records(self.db)
        return bool({r.name for r in there} - before) and all(r.stored for r in there)

    def _without_repository(self, statement: str) -> None:
        self.line.is_away = True
        for text in (statement, "VERIFY c WITH (SAMPLE = 4)"):
            try:
                self.db.sql(text)
                raise AssertionError(f"{text} did without its repository")
            except StrandlineError as error:
                assert error.code == "UNAVAILABLE", error
        self.line.is_away = False

    def _die(self, statement: str) -> None:
        self.db.close()
        fate = Fate(self.rng.randrange(1, 120))
        spark: Any = NoSpark()
        mortal = mortal_connect(self.folder, None, fate, HERE, spark, clock=self.clock)
        hurry(mortal)
        go_through(mortal, Line(self.clock, fate=fate))
        try:
            mortal.sql(statement)
            mortal.close()
        except Death:
            self._count("died")
            bury(mortal, self.folder, None)
        self.db = self._open()
        self.db.resume()

    def _settled(self, *, is_well: bool) -> None:
        """Check what is true after each night on which the repository was available."""
        there = records(self.db)
        assert all(record.stored for record in there), "what waited in the warehouse was sent"
        self.db.sql("VERIFY c WITH (SAMPLE = 4)")
        # The rules are applied before a chain is compacted, and by the next backup if a process dies.
        left = unneeded(there, self.clock.now())
        assert not is_well or not left & self.left, f"{left & self.left} should be gone"
        self.left = left
        self.look_at_objects()
        for operation in self.db.operations():
            assert operation.is_over
            self.db.forget(operation.id)

    def look_at_objects(self) -> None:
        needed = self.needed()
        self.since = {name: self.since.get(name, self.clock.now()) for name in needed}
        old = {name for name, since in self.since.items() if self.clock.now() - since > 31 * DAY}
        assert old <= self._looked_at(31 * DAY), f"{len(old)} objects are old"
        all_, used = self.bytes(), self.bytes(needed)
        assert all_ <= 3 * used, f"the repository has {all_} bytes, and its backups need {used}"

    # --- state ---------------------------------------------------------------------------------------------

    def kept(self) -> set[str]:
        return set(backups(self.db))

    def needed(self) -> set[str]:
        """Return the objects that manifests name."""
        there = Repository(LocalFiles(self.repository), str(self.repository))
        return {name for file in there.manifests() for name in there.manifest_at(file).objects()}

    def objects(self) -> set[str]:
        found = (self.repository / "objects").rglob("*")
        return {p.relative_to(self.repository).as_posix() for p in found if p.is_file()}

    def bytes(self, names: set[str] | None = None) -> int:
        known = self.objects() if names is None else names
        return sum((self.repository / name).stat().st_size for name in known)

    def _looked_at(self, seconds: float) -> set[str]:
        """Return the objects that were verified within the last ``seconds``."""
        keys = {key_of_name(f"{self.repository}/{name}"): name for name in self.since}
        with self.db._runtime.catalog.read() as conn:
            found = object_results(conn, require_collection(conn, "c").id)
        now = self.clock.now()
        return {
            name
            for key, name in keys.items()
            if (time := found.at(key, "checksums")) is not None and now - time <= seconds
        }

    def _states_then(self, backup: str) -> dict[str, State]:
        return {path: table.state() for path, table in self.taken[backup].items()}

    def _states(self, backup: str, db: Database | None = None) -> dict[str, State]:
        found = contents(db or self.db, backup)
        return {path: rows for path, rows in found.items() if not path.endswith("/by_n")}

    def compare(self, db: Database) -> None:
        """Assert that every backup holds the content of the database on its night."""
        for name in backups(db):
            assert self._states(name, db) == self._states_then(name), name

    def restore_one(self) -> None:
        """Restore one of the kept backups next to the tables."""
        self._restore(self.db, self.rng.choice(sorted(self.kept())))
        self._count("restored beside")

    def restore_all(self, db: Database) -> None:
        """Restore every backup, and compare it with the content of the database on its night."""
        for backup in backups(db):
            self._restore(db, backup)

    def _restore(self, db: Database, backup: str) -> None:
        db.sql(f"RESTORE c AT '{backup}' INTO `/check` WITH (VERIFY = 'data')")
        for path, state in self._states_then(backup).items():
            assert {(row[0],): row for row in content(db, f"/check{path}")} == state, (backup, path)
        drop_below(db, "/check")

    def assert_nothing_leaks(self) -> None:
        self.db.maintain()
        self.clock.sleep(1)
        self.db.collect()
        assert leaks(self.db) == []


def drop_below(db: Database, top: str) -> None:
    for path, type_ in tree(db, top):
        if type_ == "table" and not path.endswith("indexImplTable"):
            db.sql(f"DROP TABLE `{path}`")


def key_of_name(name: str) -> str:
    import xxhash

    return xxhash.xxh3_64_hexdigest(name.encode())


def chosen(there: list[BackupRecord], now: float) -> set[str]:
    """Return the backups that a time rule keeps."""
    wanted = {record.name for record in there if record.time >= now - 14 * DAY}
    for number, bucket in ((7, "%Y-%m-%d"), (4, "%G-%V"), (12, "%Y-%m")):
        last = {datetime.fromtimestamp(r.time, timezone.utc).strftime(bucket): r.name for r in there}
        wanted |= {last[key] for key in sorted(last)[-number:]}
    return wanted


def unneeded(there: list[BackupRecord], now: float) -> set[str]:
    """Return the backups that no rule keeps, and that no kept backup needs."""
    wanted = chosen(there, now)
    newest = max(place for place, record in enumerate(there) if record.kind == "full")
    wanted |= {record.name for record in there[newest:]}
    wanted |= set(_ancestors(there, wanted))
    return {record.name for record in there} - wanted


def _ancestors(there: list[BackupRecord], names: set[str]) -> Iterator[str]:
    parents = {record.name: record.parent for record in there}
    for name in names:
        here = parents[name]
        while here is not None:
            yield here
            here = parents[here]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_year_of_nights(tmp_path: Path) -> None:
    year = Year(tmp_path / "warehouse", tmp_path / "repository", seed=20250101)
    for number in range(NIGHTS):
        year.night(number)
        if number % 6 == 5:
            year.restore_one()
        if number % 10 == 9:
            year.assert_nothing_leaks()
        year.day()
    finish(year, tmp_path)


def finish(year: Year, tmp_path: Path) -> None:
    year.clock.sleep(DAY)
    year.db.sql("BACKUP c INCREMENTAL OR FULL")
    (last,) = year.kept() - year.taken.keys()
    year.taken[last] = year.model
    for rules in (RULES, "KEEP WITHIN 3650d"):
        # The first garbage collection lists files as trash; the second one, a grace period later, deletes
        # them. No backups are dropped in between.
        year.db.sql(f"PRUNE c {rules} CONFIRM")
        year.clock.sleep(2 * DAY)
    assert year.objects() == year.needed(), "nothing is there that no backup needs"
    assert year.db.verify("c") == []
    year.compare(year.db)
    year.assert_nothing_leaks()
    with open_at(tmp_path / "elsewhere", clock=year.clock) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{year.repository}'")
        assert backups(other) == sorted(year.kept())
        year.compare(other)
        year.restore_all(other)
    print(f"{NIGHTS} nights: {year.counts}, {len(year.kept())} backups, {year.bytes()} bytes")
    year.db.close()
