"""Retention removes backups while other threads read, restore, verify and collect.

A thread that finds a backup finds all of its content, or is told that it does not exist.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from strandline import Database
from strandline.errors import PathNotFound, PreconditionFailed, UnderOperation
from tests.backups.reading import State, backups, contents, leaks, records, streams
from tests.backups.test_races import TABLES, Crowd, make, running, writer
from tests.effort import EVERY
from tests.tables.examples import assert_sound

LEAST = 18 if EVERY else 9
"""Minimum number of backups that are taken. A third as many are removed."""
Seen = list[tuple[str, int, State]]
"""A table, the step of the backup that was read, and its rows."""


def as_state(rows: list[tuple[Any, ...]]) -> State:
    return {(row[0],): tuple(row) for row in rows}


def reader(db: Database, seen: Seen) -> Callable[[random.Random], None]:
    def act(rng: random.Random) -> None:
        known = records(db)
        if known:
            record, table = rng.choice(known[:3]), rng.choice(TABLES)
            with contextlib.suppress(PathNotFound):
                found = db.sql(f"SELECT k, v, n FROM `{table}` IN BACKUP c AT '{record.name}'").rows()
                seen.append((table, record.step, as_state(found)))

    return act


def restorer(db: Database, seen: Seen) -> Callable[[random.Random], None]:
    def act(rng: random.Random) -> None:
        known = records(db)
        if not known:
            return
        record, place, began = rng.choice(known), f"r{db.step}", time.monotonic()
        try:
            db.sql(f"RESTORE c AT '{record.name}' INTO '{place}'")
        except (PathNotFound, UnderOperation):
            time.sleep(0.01)
            return
        for table in TABLES:
            found = db.sql(f"SELECT k, v, n FROM `{place}{table}`").rows()
            seen.append((table, record.step, as_state(found)))
            db.sql(f"DROP TABLE `{place}{table}`")
        # A backup that is being restored is not removed, so the removal needs a pause between restores.
        time.sleep(3 * (time.monotonic() - began))

    return act


def verifier(db: Database) -> Callable[[random.Random], None]:
    def act(_: random.Random) -> None:
        assert db.verify("c") == []

    return act


def collector(db: Database) -> Callable[[random.Random], None]:
    def act(_: random.Random) -> None:
        db.collect()
        time.sleep(0.01)

    return act


@pytest.mark.slow
def test_who_reads_a_backup_that_goes_has_it_or_is_told(
    connect: Callable[..., Database], catalog_url: str | None
) -> None:
    db, writing, reading, restoring, caring = (
        connect(
            catalog_url,
            settings={"workers": 1, "inline_rows": 1, "merge_segments": 8, "compaction_share": 1.0},
        )
        for _ in range(5)
    )
    make(db)
    db.sql("ALTER BACKUP COLLECTION c SET (RETENTION = 'KEEP LAST 1 FULL')")
    crowd, seen = Crowd(), Seen()
    acts = {
        "writer": writer(writing, crowd, 1),
        "reader": reader(reading, seen),
        "restorer": restorer(restoring, seen),
        "verifier": verifier(caring),
        "collector": collector(caring),
    }
    removed: list[str] = []
    deadline = time.monotonic() + 600
    with running(crowd, [crowd.again_and_again(name, act) for name, act in acts.items()]):
        number = 0
        while not crowd.errors and time.monotonic() < deadline:
            try:
                how = "" if number % 3 == 0 else " INCREMENTAL"
                operation = db.sql(f"BACKUP c{how}").operation_id
            except UnderOperation:
                time.sleep(0.01)
                continue
            told = db.operation(operation or "").result or {}
            removed += told.get("removed", ())
            number += 1
            if (
                number >= LEAST
                and len(removed) >= LEAST // 3
                and len(seen) > 5
                and all(crowd.rounds.get(name, 0) > 2 for name in acts)
            ):
                break
    assert len(removed) == len(set(removed)) >= LEAST // 3
    assert not set(removed) & set(backups(db))
    assert len(seen) > 5
    for table, step, found in seen:
        assert found == crowd.state_at(table, step)
    for record in records(db):
        found_now = contents(db, record.name)
        for table in TABLES:
            assert found_now[table] == crowd.state_at(table, record.step)
    for table in TABLES:
        assert_sound(db, table)
    db.collect()
    assert db.verify("c") == []
    assert leaks(db) == []


@pytest.mark.slow
def test_two_that_remove_and_two_that_back_up(
    connect: Callable[..., Database], catalog_url: str | None
) -> None:
    """One may have to wait for the other, with an error that says so.

    No chain is ever broken, and no stream is left over or missing.
    """
    several = [connect(catalog_url, settings={"workers": 1}) for _ in range(4)]
    make(several[0])
    several[0].sql("BACKUP c")
    crowd = Crowd()

    def back_up(db: Database) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            with contextlib.suppress(UnderOperation):
                db.sql(f"BACKUP c {rng.choice(['', 'INCREMENTAL OR FULL', 'INCREMENTAL OR FULL'])}")
            time.sleep(0.01)

        return act

    def remove(db: Database) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            names = backups(db)
            statements = ["PRUNE c KEEP LAST 2 FULL CONFIRM"]
            if names:
                statements += [f"DROP BACKUP c '{rng.choice(names)}' CONFIRM", f"PIN BACKUP c '{names[0]}'"]
                statements += [f"UNPIN BACKUP c '{name}'" for name in names]
            with contextlib.suppress(UnderOperation, PathNotFound, PreconditionFailed):
                db.sql(rng.choice(statements))
            time.sleep(0.02)

        return act

    acts = {
        "backups": back_up(several[0]),
        "more backups": back_up(several[1]),
        "one": remove(several[2]),
        "another": remove(several[3]),
        "writer": writer(several[0], crowd, 1),
    }
    deadline = time.monotonic() + 600
    with running(crowd, [crowd.again_and_again(name, act) for name, act in acts.items()]):
        while not crowd.errors and time.monotonic() < deadline:
            time.sleep(0.05)
            if all(crowd.rounds.get(name, 0) >= 12 for name in acts):
                break
    db = several[0]
    for record in records(db):
        found = contents(db, record.name)
        for table in TABLES:
            assert found[table] == crowd.state_at(table, record.step)
    db.sql("BACKUP c INCREMENTAL OR FULL")
    stream = records(db)[-1].stream
    for table in TABLES:
        assert streams(db, table) == streams(db, f"{table}/by_v/indexImplTable") == [stream]
    db.collect()
    assert db.verify("c") == []
    assert leaks(db) == []
