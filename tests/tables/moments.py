"""Run events of one connection at each possible point of a statement of another connection.

The law: the results of statement and event, and the table afterwards, are as if one of the two had run after
the other. Both orders are executed as well, so tests need no expected results.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import strandline
from strandline import Database, Settings
from strandline.errors import Conflict, PathNotFound, StrandlineError
from tests.backups.reading import CLUSTER, hurry
from tests.catalogs import ManualClock, forget, place_catalog
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark, rows

FILES = Settings(
    bulk_rows=10**9, scan_rows=10**9, workers=1, history_seconds=0.0, inline_rows=0, inline_bytes=0
)
"""Settings: all work in this process, every commit in files, no history.

Only connection ``a`` stores commits in the catalog, where no file name has the session.
"""
COLUMNS = "(k Int64 NOT NULL, v Utf8, n Int64, m Int64, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n))"

Reads = list[list[tuple[Any, ...]]]
Statement = Callable[[Database, str, Reads], None]
"""Runs something with the table of this name, and appends what it has read."""


@dataclass
class Pair:
    """Three connections: ``a`` runs the statement, ``b`` the event, and ``c`` reads the result."""

    a: Database
    b: Database
    c: Database
    clock: ManualClock
    tables: int = 0

    def table(self, *, backed_up: bool = False) -> str:
        """Create a table; optionally with a backup of an earlier state in a collection of the same name."""
        self.tables += 1
        name = f"t{self.tables}"
        self.c.sql(f"CREATE TABLE {name} {COLUMNS}")
        self.c.sql(f"UPSERT INTO {name} (k, v, n, m) VALUES (1, 'one', 10, 1), (2, 'two', 20, 2)")
        if backed_up:
            self.c.sql(f"CREATE BACKUP COLLECTION {name} (TABLE {name}) {CLUSTER}; BACKUP {name}")
        self.c.sql(f"UPSERT INTO {name} (k, v, n, m) VALUES (1, 'uno', 11, 1), (3, 'three', 30, 3)")
        return name


@contextlib.contextmanager
def paired(folder: Path, url: str | None) -> Iterator[Pair]:
    clock = ManualClock()
    opened: list[Database] = []
    if url is None:
        place_catalog(folder / "catalog.sqlite")
    for settings in (replace(FILES, inline_rows=100, inline_bytes=10_000), FILES, FILES):
        options: dict[str, Any] = {"clock": clock, "files": QuickFiles(folder), "spark": NoSpark()}
        opened.append(strandline.connect(folder, catalog=url, settings=settings, **options))
        hurry(opened[-1])
    try:
        yield Pair(opened[0], opened[1], opened[2], clock)
    finally:
        for db in opened:
            db.close()


@dataclass(frozen=True)
class Outcome:
    """What a statement read, the error codes of statement and event, and the table afterwards."""

    reads: Reads
    error: str | None
    happened: str | None = None
    table: dict[str, Any] | None = None


def content(db: Database, name: str) -> dict[str, Any] | None:
    """Return columns and rows of a table, its index entries, and its problems; None without the table."""
    try:
        described = db.describe(f"/{name}")
    except PathNotFound:
        return None
    indexes = {
        i["name"]: sorted(rows(db, f"SELECT * FROM `/{name}/{i['name']}/indexImplTable`"), key=repr)
        for i in described["indexes"]
    }
    return {
        "columns": [c["name"] for c in described["columns"]],
        "rows": sorted(rows(db, f"SELECT * FROM {name}"), key=repr),
        "indexes": indexes,
        "problems": db.check(f"/{name}").problems,
    }


def run(db: Database, statement: Statement, name: str) -> Outcome:
    reads: Reads = []
    return Outcome(reads, code_of(lambda: statement(db, name, reads)))


def code_of(act: Callable[[], None]) -> str | None:
    """Return the code of the error that a call raises; None if it succeeds."""
    try:
        act()
    except StrandlineError as error:
        return str(error) if error.code == "INTERNAL" else error.code
    return None


@contextlib.contextmanager
def interrupted(db: Database, at: int, happening: Callable[[], None]) -> Iterator[list[str]]:
    """Run an event at the n-th point of a connection: after it reads, or before it changes the catalog.

    Yields the list of points that were reached.
    """
    catalog, thread, came = db._runtime.catalog, threading.get_ident(), list[str]()
    read, write = catalog.read, catalog.write

    def meet(what: str) -> None:
        if threading.get_ident() == thread:
            came.append(what)
            if len(came) == at:
                happening()

    @contextlib.contextmanager
    def reading() -> Iterator[Any]:
        with read() as conn:
            yield conn
        meet("after a look at the catalog")

    @contextlib.contextmanager
    def writing() -> Iterator[Any]:
        meet("before a change of the catalog")
        with write() as tx:
            yield tx.conn

    catalog.read, catalog.write = reading, writing  # type: ignore[method-assign]
    try:
        yield came
    finally:
        catalog.read, catalog.write = read, write  # type: ignore[method-assign]


def at_every_moment(
    pair: Pair, statement: Statement, happening: Callable[[Pair, str], None], *, backed_up: bool = False
) -> int:
    """Run the statement once for each of its points; return their number."""

    def outcome(at: int | None) -> tuple[Outcome, list[str]]:
        """Return the outcome with the event at a point of the statement; None: after it."""
        name = pair.table(backed_up=backed_up)
        happened: list[str | None] = []

        def happen() -> None:
            happened.append(code_of(lambda: happening(pair, name)))

        if at == 0:
            happen()
        with interrupted(pair.a, at or 0, happen) as came:
            found = run(pair.a, statement, name)
        if not happened:
            happen()
        forget(pair.a._runtime, pair.b._runtime, pair.c._runtime)
        return replace(found, happened=happened[0], table=content(pair.c, name)), came

    before, moments = outcome(None)
    after, _ = outcome(0)
    for place in range(1, len(moments) + 1):
        found, came = outcome(place)
        where = f"moment {place}, {came[min(place, len(came)) - 1]}"
        if found.error == Conflict.code and Conflict.code not in (before.error, after.error):
            assert getattr(statement, "is_transaction", False), (
                f"{where}: a statement of its own is repeated, not refused"
            )
            assert found.reads in (before.reads[: len(found.reads)], after.reads[: len(found.reads)]), where
            assert found.table == _without(pair, happening, backed_up), (
                f"{where}: what is refused changes nothing"
            )
        else:
            assert found in (before, after), f"{where}: {found} is neither {before} nor {after}"
    return len(moments)


def _without(pair: Pair, happening: Callable[[Pair, str], None], backed_up: bool) -> dict[str, Any] | None:
    """Return the table after the event alone."""
    name = pair.table(backed_up=backed_up)
    happening(pair, name)
    return content(pair.c, name)
