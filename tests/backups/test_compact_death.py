"""A process dies while it compacts or merges backups, at each of its writes in turn.

Another process then finishes or undoes the operation. Every backup holds what it held, and nothing stays
locked or on the disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from strandline import Database, Settings
from strandline.backups.repository.repository import Repository
from tests.backups.reading import State, backups, contents, last, leaks
from tests.backups.test_death import ALONE, End, Places, assert_right, assert_streams, finish, living, undo
from tests.backups.test_death import change as change_rows
from tests.catalogs import Death
from tests.crash.mortal import MortalFiles, bury, connect
from tests.effort import EVERY

TABLES = """
    CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n),
        INDEX by_n GLOBAL SYNC ON (n), INDEX later GLOBAL ASYNC ON (n)) WITH (PARTITION_AT_KEYS = (2));
    CREATE TABLE `dir/u` (k Utf8, PRIMARY KEY (k));
    UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)"""

COMPACT, MERGE = "COMPACT c", "COMPACT c INCREMENTS"
CHAINED = 3
"""Number of deaths in one chain."""


def begin(db: Database, storage: str, *, encrypted: bool) -> None:
    """Begin a new chain, so that later iterations do not take longer."""
    db.sql(
        f"""DROP BACKUP COLLECTION IF EXISTS c;
            CREATE BACKUP COLLECTION c (TABLE t, TABLE `dir/u`)
                WITH (STORAGE = '{storage}', INCREMENTAL_BACKUP_ENABLED = 'true'
                    {", ENCRYPTION = 'true'" if encrypted else ""});
            BACKUP c"""
    )
    for operation in db.operations():
        db.forget(operation.id)


def die_everywhere(
    folder: Path,
    storage: str,
    ends: Sequence[End],
    stride: int,
    *,
    encrypted: bool = False,
    statement: str = COMPACT,
    settings: Settings = ALONE,
) -> list[str]:
    """Let one process after the other die, each ``stride`` places later; the ends alternate.

    Return the places that the last process, which survived, reached.
    """
    with living(folder, None) as db:
        db.sql(TABLES)
    for number, end in enumerate(itertools.cycle(ends)):
        place = storage if storage == "cluster" else f"{storage}-{number // CHAINED}"
        with living(folder, None) as db:
            if number % CHAINED == 0:
                begin(db, place, encrypted=encrypted)
            for again in range(2):
                change_rows(db, 2 * number + again)
                db.sql("BACKUP c INCREMENTAL")
            held = {name: contents(db, name) for name in backups(db)}
        fate = Places(1 + number * stride)
        mortal = connect(folder, None, fate, settings)
        if storage != "cluster":
            mortal._runtime.files.opener = lambda root, fate=fate: MortalFiles(root, fate)
        try:
            mortal.sql(statement)
            mortal.close()
        except Death:
            bury(mortal, folder, None)
        with living(folder, None) as db:
            try:
                survive(db, held, end, place, merges=statement == MERGE)
            except BaseException as error:
                raise AssertionError(f"after death at {fate.place}") from error
        if not fate.dead:
            return fate.trail
    raise AssertionError


def survive(db: Database, held: dict[str, dict[str, State]], end: End, place: str, *, merges: bool) -> None:
    # Another operation deletes merged backups from the repository.
    unfinished = [o for o in db.operations() if not o.is_over and o.kind != "sweep repository"]
    newest = max(held)
    end(db)
    assert all(o.is_over for o in db.operations())
    if merges:
        gone = held.keys() - set(backups(db))
        if unfinished:
            assert bool(gone) == (end is not undo)
        held = {name: states for name, states in held.items() if name not in gone}
    elif unfinished:
        assert last(db).kind == ("incremental" if end is undo else "full")
    assert {name: contents(db, name) for name in held} == held
    assert_right(db)
    assert_streams(db)
    change_rows(db, 1)
    db.sql("BACKUP c INCREMENTAL")
    assert last(db).parent == newest
    assert_right(db)
    db.sql(MERGE if merges else COMPACT)
    assert_right(db)
    held = {name: states for name, states in held.items() if name in backups(db)}
    assert len(held) > 0
    assert {name: contents(db, name) for name in held} == held
    assert db.verify("c") == []
    db.collect()
    assert leaks(db) == []
    if place != "cluster":
        assert_listed(db, place)
        now = Repository(db._runtime.files.at(place), place).manifest(last(db).name).backup
        assert bool(now.merged if merges else now.synthetic)


def assert_listed(db: Database, place: str) -> None:
    """Assert that the repository has the manifests of all backups and all objects that they name."""
    repository = Repository(db._runtime.files.at(place), place)
    assert repository.backups() == backups(db)
    for name in backups(db):
        for each in repository.manifest(name).objects().values():
            assert repository.files.size(each.object) == each.bytes


BOTH_ENDS = [
    pytest.param((finish, undo), id="odd places finished"),
    pytest.param((undo, finish), id="even places finished"),
]


@pytest.mark.slow
@pytest.mark.parametrize("ends", BOTH_ENDS if EVERY else BOTH_ENDS[:1])
@pytest.mark.parametrize(
    "storage", ["cluster", "repository", "encrypted"] if EVERY else ["cluster", "encrypted"]
)
def test_death_at_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, ends: tuple[End, End]
) -> None:
    monkeypatch.setenv("REPOSITORY_KEY", "ab" * 32)
    place = storage if storage == "cluster" else str(tmp_path / storage)
    stride = 1 if EVERY else 23 if storage == "cluster" else 53
    trail = die_everywhere(tmp_path / "w", place, ends, stride, encrypted=storage == "encrypted")
    assert trail.count("after the catalog committed") > 6
    assert "middle of append" in trail


@pytest.mark.slow
@pytest.mark.parametrize("ends", BOTH_ENDS if EVERY else BOTH_ENDS[1:])
@pytest.mark.parametrize("storage", ["cluster", "repository"] if EVERY else ["repository"])
def test_death_at_every_write_of_a_log_behind_the_full_backup(
    tmp_path: Path, storage: str, ends: tuple[End, End]
) -> None:
    place = storage if storage == "cluster" else str(tmp_path / storage)
    stride = 1 if EVERY else 23 if storage == "cluster" else 53
    few = replace(ALONE, bulk_rows=2, compact_log_rows=100.0)
    trail = die_everywhere(tmp_path / "w", place, ends, stride, settings=few)
    assert trail.count("after the catalog committed") > 6
    assert "middle of append" in trail


@pytest.mark.slow
@pytest.mark.parametrize("ends", BOTH_ENDS if EVERY else BOTH_ENDS[1:])
@pytest.mark.parametrize("storage", ["cluster", "repository", "encrypted"] if EVERY else ["repository"])
def test_death_at_every_write_of_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, ends: tuple[End, End]
) -> None:
    monkeypatch.setenv("REPOSITORY_KEY", "ab" * 32)
    place = storage if storage == "cluster" else str(tmp_path / storage)
    encrypted, stride = storage == "encrypted", 1 if EVERY else 53
    trail = die_everywhere(tmp_path / "w", place, ends, stride, encrypted=encrypted, statement=MERGE)
    assert trail.count("after the catalog committed") > 6
