"""Outages of the catalog at each transaction of each kind of operation.

A statement that returns has happened. A statement that raises has not happened and never will, unless its
error says otherwise. Nothing stays locked, and nothing happens later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline import Database
from strandline.catalog import operations
from strandline.errors import BEING_UNDONE, HAPPENED, UNDONE, UNKNOWN, StrandlineError
from strandline.operations import callers, engine
from tests.backups.reading import CLUSTER, backups, leaks, open_at
from tests.catalogs import Death
from tests.crash.failures import ANSWERED, FULL, KILLED, LOST, UNANSWERED, Outage
from tests.crash.mortal import bury
from tests.effort import EVERY, FACTOR, on_catalogs


@dataclass(frozen=True)
class Act:
    """A statement to interrupt: ``prepare`` runs before the outage, ``act`` during it.

    ``{i}`` is a number, ``{last}`` the last backup of c. ``damaged``: before ``act`` the objects of the
    repository are damaged and found to be damaged.
    """

    prepare: str
    act: str
    damaged: bool = False


CHANGE = "UPSERT INTO t (k, v) VALUES ({i}, 'new'), (1, 'again{i}')"
ACTS = {
    "create stream": Act("", "ALTER TABLE t ADD CHANGEFEED f{i} WITH (MODE = 'UPDATES')"),
    "drop streams": Act(
        "ALTER TABLE t ADD CHANGEFEED g{i} WITH (MODE = 'UPDATES')", "ALTER TABLE t DROP CHANGEFEED g{i}"
    ),
    "backup": Act(CHANGE, "BACKUP c"),
    "incremental backup": Act(f"BACKUP c; {CHANGE}", "BACKUP c INCREMENTAL"),
    "restore": Act("BACKUP c", "RESTORE c INTO 'r{i}'"),
    "restore in place": Act(f"BACKUP c; {CHANGE}", "RESTORE c WITH (REPLACE = 'true')"),
    "drop collection": Act(
        f"CREATE BACKUP COLLECTION d{{i}} (TABLE t) {CLUSTER}; BACKUP d{{i}}", "DROP BACKUP COLLECTION d{i}"
    ),
    "drop backups": Act("BACKUP c; BACKUP c", "PRUNE c KEEP LAST 1 FULL CONFIRM"),
    "compact": Act(f"BACKUP c; {CHANGE}; BACKUP c INCREMENTAL", "COMPACT c"),
    "merge": Act(
        f"BACKUP c; {CHANGE}; BACKUP c INCREMENTAL; {CHANGE}; BACKUP c INCREMENTAL", "COMPACT c INCREMENTS"
    ),
    "try restore": Act("BACKUP c", "VERIFY c WITH (LEVEL = 'restore')"),
    "send": Act(CHANGE, "BACKUP far"),
    "sweep": Act("BACKUP far; BACKUP far", "PRUNE far KEEP LAST 1 FULL CONFIRM"),
    "copy": Act("BACKUP c", "COPY BACKUP '{last}' FROM c TO '{copy}{i}'"),
    "repair": Act("", "REPAIR far", damaged=True),
}
HOWS = (FULL, LOST, UNANSWERED, ANSWERED)
PATIENT, TOLD, GONE = "patient", "told", "gone"
"""The caller waits for the catalog; or gets an error and lives on; or gets an error and ends meanwhile."""


def cases(places: int) -> list[tuple[int, str, str]]:
    """Return transactions with what happens at them and what the caller does.

    Without EVERY: the first transaction, one in the middle, and the last two, at which a statement and the
    operations that follow it end. At the last two a caller that lives on meets every kind of outage, at the
    others two kinds. In the middle a caller also ends.
    """
    every = range(1, places + 1)
    if EVERY:
        found = [(at, how, caller) for at in every for how in HOWS for caller in (PATIENT, TOLD, GONE)]
        return found + [(at, KILLED, GONE) for at in every]
    middle = Random(None if FACTOR else places).choice(every[1:-2] or every)
    found = [(middle, (*HOWS, KILLED)[places % 5], GONE)]
    for n, at in enumerate(sorted({1, middle, *every[-2:]}), places):
        for i in range(4 if at in every[-2:] else 2):
            found.append((at, HOWS[(n + i) % 4], (TOLD, PATIENT)[i % 2]))
    return found


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(engine, "_AWAY_PAUSE", 0.001)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "catalog_url"), on_catalogs(ACTS, ("restore in place",)), indirect=["catalog_url"]
)
def test_what_a_caller_may_rely_on(act: Act, tmp_path: Path, catalog_url: str | None) -> None:
    folder = tmp_path / "warehouse"
    with open_at(folder, catalog_url) as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
        db.sql("CREATE TABLE other (k Int64 NOT NULL, PRIMARY KEY (k)); UPSERT INTO other (k) VALUES (1)")
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b')")
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
        db.sql(f"CREATE BACKUP COLLECTION o (TABLE other) {CLUSTER}; BACKUP o")
        db.sql(f"CREATE BACKUP COLLECTION far (TABLE t) WITH (STORAGE = '{tmp_path / 'far'}'); BACKUP far")
    play = _Play(folder, catalog_url, act, str(tmp_path / "copy"))
    places = play.count()
    assert places >= 2
    for at, how, caller in cases(places):
        if how == FULL and catalog_url is not None:
            continue
        try:
            play.once(at, how, caller)
        except BaseException as error:
            raise AssertionError(f"{caller}, {how} at transaction {at} of {places}") from error


class _Play:
    """Statements on one warehouse, one after the other."""

    def __init__(self, folder: Path, url: str | None, act: Act, copy: str) -> None:
        self.folder, self.url, self.act, self.copy, self.i = folder, url, act, copy, 2

    def open(self) -> Database:
        return open_at(self.folder, self.url)

    def say(self, db: Database, text: str) -> str:
        return text.format(i=self.i, copy=self.copy, last=backups(db)[-1])

    def prepare(self) -> Database:
        self.i += 1
        db = self.open()
        if self.act.prepare:
            db.sql(self.say(db, self.act.prepare))
        if self.act.damaged:
            for file in (self.folder.parent / "far" / "objects").rglob("*.parquet"):
                file.write_bytes(file.read_bytes()[:-1] + b"?")
            db.sql("VERIFY far WITH (LEVEL = 'checksums', AGAIN = 'true')")
        db._operations.engine  # noqa: B018 (loads what is not counted)
        return db

    def count(self) -> int:
        """Return the number of transactions of the statement."""
        with self.prepare() as db:
            calm = Outage(db, LOST)
            db.sql(self.say(db, self.act.act))
            return calm.count

    def once(self, at: int, how: str, caller: str) -> None:
        db = self.prepare()
        before, known = seen(db), set(states(db))
        if caller != PATIENT:
            db._operations.engine.away_seconds = 0.0
        outage = Outage(db, how, at, lasts=3 if caller == PATIENT else None)
        error: StrandlineError | None = None
        try:
            db.sql(self.say(db, self.act.act))
        except StrandlineError as raised:
            error = raised
        except Death:
            bury(db, self.folder, self.url)
        if how != KILLED and caller == GONE:
            db.close()
            outage.end()
            bury(db, self.folder, self.url)
        outage.end()
        if how != KILLED and caller != GONE:
            until(lambda: settled(db))
            db.close()
        with self.open() as other:
            if caller == GONE:
                other.resume()
            assert settled(other)
            other.collect()  # Markers of operations that had ended before they were refused.
            self.judge(other, before, known, error, died=how == KILLED)
            told = seen(other), states(other)
            # Nothing happens later.
            other.sql("BACKUP o")
            with self.open() as third:
                third.resume()
                third.sql("PRUNE o KEEP LAST 1 FULL CONFIRM")
                assert (seen(third), {i: s for i, s in states(third).items() if i in told[1]}) == told
                third.collect()
                assert [n for n in third._runtime.files.names("data") if "undo" in n] == []

    def judge(
        self,
        db: Database,
        before: dict[str, Any],
        known: set[str],
        error: StrandlineError | None,
        *,
        died: bool,
    ) -> None:
        assert leaks(db) == []
        new = {i: s for i, s in states(db).items() if i not in known}
        if died:
            assert set(new.values()) <= {"done"}, "what was begun goes on"
        elif error is None:
            assert set(new.values()) == {"done"}, "it returned, so it has happened"
        elif error.outcome == HAPPENED:
            assert new[error.operation or ""] == "done"
        elif error.operation is None:
            # VERIFY continues after its own operations, which change nothing.
            begun = {i for i in new if db.operation(i).kind != "try restore"}
            assert not begun, "it raised and names no operation, so there is none"
            assert seen(db) == before
        else:
            assert error.outcome in (UNDONE, BEING_UNDONE, UNKNOWN)
            assert error.operation in error.hint or error.outcome == UNDONE
            if error.outcome != UNKNOWN:
                assert new.get(error.operation, "never begun") != "done"
                assert "done" in new.values() or seen(db) == before


def states(db: Database) -> dict[str, str]:
    return {o.id: o.state for o in db.operations()}


def settled(db: Database) -> bool:
    with db._runtime.catalog.read() as conn:
        return not operations.unfinished_operations(conn)


def seen(db: Database) -> dict[str, Any]:
    """Return the visible state, without the other collection and temporary paths."""
    found = {}
    for entry in db.ls("/", depth=None):
        if entry.path.startswith("/.backups/collections/o/") or entry.path.startswith("/other"):
            continue
        described = db.describe(entry.path) if entry.type == "table" else {}
        found[entry.path] = (entry.type, described.get("rows"), described.get("digest"))
    return found


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it does not come to that")
