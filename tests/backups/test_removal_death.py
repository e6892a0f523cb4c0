"""A process dies while it removes backups, at each of its writes in turn.

Another process then finishes or undoes the removal. The remaining chains are complete and hold what they
held, and the next backup works.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from strandline import Database
from strandline.backups.record import chain_to
from strandline.settings import Settings
from tests.backups.reading import State, backups, contents, leaks, records
from tests.backups.test_death import (
    ALONE,
    TOGETHER,
    End,
    Places,
    assert_right,
    assert_streams,
    care,
    change,
    create,
    finish,
    living,
    undo,
)
from tests.catalogs import Death
from tests.crash.mortal import bury, connect
from tests.effort import EVERY

STATEMENTS = {
    "prune": "PRUNE c KEEP LAST 1 FULL CONFIRM",
    "drop a chain": "DROP BACKUP c '{first}' CONFIRM",
    "drop the last": "DROP BACKUP c '{last}' CONFIRM",
    "retention": "BACKUP c",
}


def die_everywhere(
    folder: Path,
    url: str | None,
    statement: str,
    ends: Sequence[End],
    stride: int = 1,
    *,
    settings: Settings = ALONE,
) -> list[str]:
    """Let one process after the other die, each ``stride`` places later; the ends alternate.

    Return the places that the last process, which survived, reached.
    """
    create(folder, url)
    if statement == "BACKUP c":
        with living(folder, url) as db:
            db.sql("ALTER BACKUP COLLECTION c SET (RETENTION = 'KEEP LAST 1 FULL')")
    for number, end in enumerate(itertools.cycle(ends), start=1):
        with living(folder, url) as db:
            for how in ("OR FULL", ""):
                change(db, number)
                db.sql(f"BACKUP c INCREMENTAL {how}")
            db.sql("BACKUP c; BACKUP c INCREMENTAL")
            known = {name: contents(db, name) for name in backups(db)}
        first, last = min(known), max(known)
        fate = Places(1 + (number - 1) * stride)
        mortal = connect(folder, url, fate, settings)
        try:
            mortal.sql(statement.format(first=first, last=last))
            mortal.close()
        except Death:
            bury(mortal, folder, url)
        with living(folder, url) as db:
            try:
                survive(db, known, end)
            except BaseException as error:
                raise AssertionError(f"after death at {fate.place}") from error
            assert fate.dead or set(backups(db)) != set(known)
        if not fate.dead:
            return fate.trail
    raise AssertionError


def survive(db: Database, known: dict[str, dict[str, State]], end: End) -> None:
    unfinished = [o for o in db.operations() if not o.is_over]
    end(db)
    assert all(o.is_over for o in db.operations())
    if any(o.kind == "drop backups" for o in unfinished):
        assert (set(known) <= set(backups(db))) == (end is undo)
    db.collect()
    left = records(db)
    for record in left:
        chain_to(left, record.name)
        if record.name in known:
            assert contents(db, record.name) == known[record.name]
    assert db.verify("c") == []
    assert leaks(db) == []
    db.sql("BACKUP c INCREMENTAL OR FULL")
    assert_right(db)
    assert_streams(db)
    db.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert_right(db)
    db.collect()
    assert leaks(db) == []


@pytest.mark.slow
@pytest.mark.parametrize("what", STATEMENTS)
def test_death_at_every_write(tmp_path: Path, what: str) -> None:
    stride = 1 if EVERY else 23 if what == "retention" else 11
    trail = die_everywhere(tmp_path / "w", None, STATEMENTS[what], (finish, undo, care), stride)
    assert trail.count("after the catalog committed") > 3


@pytest.mark.slow
def test_death_at_writes_of_parts_that_go_together(tmp_path: Path) -> None:
    stride = 1 if EVERY else 17
    die_everywhere(tmp_path / "w", None, STATEMENTS["prune"], (undo, finish), stride, settings=TOGETHER)


@pytest.mark.slow
@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_death_at_writes_on_postgresql(tmp_path: Path, catalog_url: str) -> None:
    stride = 1 if EVERY else 23
    die_everywhere(tmp_path / "w", catalog_url, STATEMENTS["prune"], (finish, undo, care), stride)
