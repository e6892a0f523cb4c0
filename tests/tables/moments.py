"""Two connections to one warehouse, and everything that one of them can do in the middle of a statement of
the other.

The law: whatever happens at whatever moment of a statement, its outcome and what the table holds afterwards
are as if one of the two had come after the other. The two orders are carried out as well, so that no test has
to say what they lead to.
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
from tests.memory import forget
from tests.tables.examples import NoSpark, QuickFiles, rows
from tests.world import ManualClock, place_catalog

FILES = Settings(
    bulk_rows=10**9, scan_rows=10**9, workers=1, history_seconds=0.0, inline_rows=0, inline_bytes=0
)
"""Everything in this process, every commit in files, nothing kept for its history. (What a commit keeps in
the catalog has no file whose name tells its session, so ``a`` does that.)"""
COLUMNS = "(k Int64 NOT NULL, v Utf8, n Int64, m Int64, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n))"

Reads = list[list[tuple[Any, ...]]]
Statement = Callable[[Database, str, Reads], None]
"""Does something to the table of this name, and adds what it read."""


@dataclass
class Pair:
    """``a`` runs the statement, ``b`` does what happens meanwhile; ``c`` looks at what has become of the
    table."""

    a: Database
    b: Database
    c: Database
    clock: ManualClock
    tables: int = 0

    def table(self, *, backed_up: bool = False) -> str:
        """A new table; if wanted, with a backup of an earlier state of it in a collection of the same
        name."""
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
    """What a statement read, the code of its error, that of what happened beside it, and what the table holds
    afterwards."""

    reads: Reads
    error: str | None
    happened: str | None = None
    table: dict[str, Any] | None = None


def content(db: Database, name: str) -> dict[str, Any] | None:
    """The table's columns and rows, its indexes with their entries, and what is wrong with it; None if it is
    not there."""
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
    """The code of the error that something ends with; None if it succeeds."""
    try:
        act()
    except StrandlineError as error:
        return str(error) if error.code == "INTERNAL" else error.code
    return None


@contextlib.contextmanager
def interrupted(db: Database, at: int, happening: Callable[[], None]) -> Iterator[list[str]]:
    """Something happens at the n-th moment of a connection: after it has looked at the catalog, or before it
    changes it. Yields the moments that it came to."""
    catalog, thread, came = db.runtime.catalog, threading.get_ident(), list[str]()
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
    """Runs the statement once for each of its moments; answers how many there were."""

    def outcome(at: int | None) -> tuple[Outcome, list[str]]:
        """Of a statement in which it happens at a moment; None: after it."""
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
        forget(pair.a.runtime, pair.b.runtime, pair.c.runtime)
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
    """What the table holds if only that happened."""
    name = pair.table(backed_up=backed_up)
    happening(pair, name)
    return content(pair.c, name)
