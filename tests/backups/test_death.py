"""A process dies in the middle of a backup, at each of its writes in turn.

Another process then finishes or undoes the backup. The collection is usable, the next backup works, no stream
is left over or missing, and nothing stays held, pinned, locked or on the disk.
"""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import strandline
from strandline import Database
from strandline.settings import Settings
from tests.backups.reading import CLUSTER, backups, contents, hurry, last, leaks, projected, streams
from tests.catalogs import Death
from tests.crash.mortal import Fate, bury, connect
from tests.effort import EVERY, on_catalogs
from tests.processes import environment, run_python
from tests.tables.examples import content

ROOT = Path(__file__).resolve().parents[2]
ALONE = Settings(
    workers=1,
    parts_together=1,
    history_seconds=0.0,
    grace_seconds=0.0,
    inline_rows=0,
    repository_key_env="REPOSITORY_KEY",
)
"""Run one part after the other, so that a number says where the process dies. Every slice is a file."""
TOGETHER = replace(ALONE, parts_together=3)
"""Parts make their transitions together, but not all of them at once."""
STATEMENTS = {"full": "BACKUP c", "incremental": "BACKUP c INCREMENTAL"}
SOURCES = {"/t": ["by_v", "by_n"], "/dir/u": []}


def living(folder: Path, url: str | None) -> Database:
    db = strandline.connect(folder, catalog=url, settings=ALONE)
    hurry(db)
    return db


def create(folder: Path, url: str | None) -> None:
    with living(folder, url) as db:
        db.sql(
            f"""CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n),
                    INDEX by_n GLOBAL SYNC ON (n), INDEX later GLOBAL ASYNC ON (n)) WITH (PARTITION_AT_KEYS = (2));
                CREATE TABLE `dir/u` (k Utf8, PRIMARY KEY (k));
                CREATE BACKUP COLLECTION c (TABLE t, TABLE `dir/u`) {CLUSTER};
                UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3);
                BACKUP c"""
        )


def begin_again(db: Database) -> None:
    """Begin a new chain now and then, so that later iterations do not take longer."""
    if len(backups(db)) > 4:
        db.sql(
            f"DROP BACKUP COLLECTION c; CREATE BACKUP COLLECTION c (TABLE t, TABLE `dir/u`) {CLUSTER}; BACKUP c"
        )
        for operation in db.operations():
            db.forget(operation.id)


def change(db: Database, number: int) -> None:
    db.sql(
        f"""UPSERT INTO t (k, v, n) VALUES ({number % 5}, 'v{number}', {number}), (NULL, 'null', {number});
            DELETE FROM t WHERE k = {(number + 2) % 5};
            UPSERT INTO `dir/u` (k) VALUES ('u{number}')"""
    )


class Places(Fate):
    """Places to die: after every catalog transaction, and before, in the middle of and after every file.

    What is true before a transaction commits is true after the one before it.
    """

    def meet(self, boundary: str) -> None:
        if self.dead or boundary in ("after the catalog committed", "create", "middle of append", "flush"):
            super().meet(boundary)


End = Callable[[Database], None]


def die_everywhere(
    folder: Path,
    url: str | None,
    statement: str,
    ends: Iterable[End],
    stride: int = 1,
    *,
    settings: Settings = ALONE,
) -> list[str]:
    """Let one process after the other die, each ``stride`` places later; the ends alternate.

    Return the places that the last process, which survived, reached.
    """
    create(folder, url)
    for number, end in enumerate(itertools.cycle(ends), start=1):
        with living(folder, url) as db:
            begin_again(db)
            change(db, number)
            known = backups(db)
        fate = Places(1 + (number - 1) * stride)
        mortal = connect(folder, url, fate, settings)
        try:
            mortal.sql(statement)
            mortal.close()
        except Death:
            bury(mortal, folder, url)
        with living(folder, url) as db:
            try:
                survive(db, known, end)
            except BaseException as error:
                raise AssertionError(f"after death at {fate.place}") from error
        if not fate.dead:
            return fate.trail
    raise AssertionError


def finish(db: Database) -> None:
    db.resume()


def undo(db: Database) -> None:
    for operation in db.operations():
        if not operation.is_over:
            db.cancel(operation.id)


def care(db: Database) -> None:
    """Run maintenance, which also resumes the operation."""
    db.maintain()


def survive(db: Database, known: list[str], end: End) -> None:
    unfinished = [o for o in db.operations() if not o.is_over]
    end(db)
    assert all(o.is_over for o in db.operations())
    made = [name for name in backups(db) if name not in known]
    assert len(made) <= 1
    if unfinished:
        assert len(made) == (0 if end is undo else 1)
        assert db.operation(unfinished[0].id).state == ("cancelled" if end is undo else "done")
    if made:
        assert_right(db)
    assert_streams(db)
    db.sql("BACKUP c INCREMENTAL")
    assert_right(db)
    assert_streams(db)
    db.collect()
    assert leaks(db) == []


def assert_right(db: Database) -> None:
    """Assert that the last backup holds the rows of the tables, which did not change since."""
    found, tables = contents(db), last(db).tables
    for path, indexes in SOURCES.items():
        assert sorted(found[path].values(), key=repr) == sorted(content(db, path), key=repr)
        for name in indexes:
            index = next(i.definition for i in tables[path].indexes if i.definition.name == name)
            assert found[f"{path}/{name}"] == projected(tables[path].schema, found[path], index)


def assert_streams(db: Database) -> None:
    record = last(db)
    for path, indexes in SOURCES.items():
        for at in (path, *(f"{path}/{index}/indexImplTable" for index in indexes)):
            assert streams(db, at) == [record.stream]
            assert db.describe(f"{at}/{record.stream}")["position"] == record.step
    assert streams(db, "/t/later/indexImplTable") == []


BOTH_ENDS = [
    pytest.param((finish, undo), id="odd places finished"),
    pytest.param((undo, finish), id="even places finished"),
]


@pytest.mark.slow
@pytest.mark.parametrize("ends", BOTH_ENDS if EVERY else BOTH_ENDS[:1])
@pytest.mark.parametrize("kind", STATEMENTS)
def test_death_at_every_write(tmp_path: Path, kind: str, ends: tuple[End, End]) -> None:
    trail = die_everywhere(tmp_path / "w", None, STATEMENTS[kind], ends, 1 if EVERY else 13)
    assert trail.count("after the catalog committed") > 15
    assert ("middle of append" in trail) == (kind == "incremental")


@pytest.mark.slow
@pytest.mark.parametrize("kind", STATEMENTS)
def test_death_at_every_write_of_parts_that_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # Slow work is noted in an extra transaction; prevent that.
    monkeypatch.setattr("strandline.operations.transitions.NOTED_SECONDS", math.inf)
    trail = die_everywhere(
        tmp_path / "w", None, STATEMENTS[kind], (undo, finish), 1 if EVERY else 11, settings=TOGETHER
    )
    assert 8 < trail.count("after the catalog committed") < 25


@pytest.mark.slow
@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_death_at_writes_on_postgresql(tmp_path: Path, kind: str, catalog_url: str) -> None:
    die_everywhere(tmp_path / "w", catalog_url, STATEMENTS[kind], (finish, undo, care), 1 if EVERY else 29)


VICTIM = """
import sys
sys.path[:0] = [sys.argv[4]]
from pathlib import Path
from tests.backups.test_death import ALONE
from tests.crash.mortal import Fate, by_kill, connect

folder, statement, number = sys.argv[1:4]
db = connect(Path(folder), sys.argv[5] or None, Fate(int(number), by_kill), ALONE)
db.sql(statement)
"""


KILLS = {
    f"{kind}-{number}": (kind, number)
    for kind, number in [
        ("full", 9),
        ("full", 24),
        ("incremental", 14),
        ("incremental", 33),
        ("incremental", 60),
    ]
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "catalog_url"), on_catalogs(KILLS, ["full-24", "incremental-33"]), indirect=["catalog_url"]
)
def test_kill_9(tmp_path: Path, catalog_url: str | None, kill: tuple[str, int]) -> None:
    folder, (kind, number) = tmp_path / "w", kill
    create(folder, catalog_url)
    with living(folder, catalog_url) as db:
        change(db, 1)
        known = backups(db)
    arguments = [str(folder), STATEMENTS[kind], str(number), str(ROOT), catalog_url or ""]
    victim = run_python("-c", VICTIM, *arguments, env=environment())
    assert victim.returncode == -signal.SIGKILL, victim.stderr
    with living(folder, catalog_url) as db:
        survive(db, known, undo if number % 2 else finish)
