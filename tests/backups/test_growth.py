"""The number of operations and descriptions in a catalog does not grow with the number of backups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from strandline import Database
from strandline.catalog import operations as catalog_operations
from strandline.catalog import owners, sqltables
from strandline.errors import OperationNotFound, PreconditionFailed
from strandline.tables import housekeeping
from tests.backups.reading import CLUSTER, open_at
from tests.catalogs import ManualClock

DAY = 86_400.0
KEPT = {"history_seconds": 2 * DAY, "operation_history_seconds": 3 * DAY, "version_history_seconds": 3 * DAY}
GROWING = ("operations", "parts", "descriptions", "board", "claimed")

Connect = Callable[..., Database]


def counts(db: Database) -> dict[str, int]:
    with db._runtime.catalog.read() as conn:
        tables = {name: sqltables.metadata.tables[name] for name in GROWING}
        return {
            name: conn.execute(select(func.count()).select_from(t)).scalar_one() for name, t in tables.items()
        }


def prepare(db: Database) -> None:
    for name in ("a", "b"):
        db.sql(
            f"CREATE TABLE {name} (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"
        )
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE a, TABLE b) {CLUSTER}")
    db.sql("ALTER BACKUP COLLECTION c SET (RETENTION = 'KEEP LAST 1 FULL')")


def night(db: Database, clock: ManualClock, number: int, *, writes: bool = True) -> None:
    clock.sleep(DAY)
    if writes:
        db.sql(f"UPSERT INTO a (k, v) VALUES ({number % 3}, 'night {number}')")
    db.sql("BACKUP c" if number % 2 else "BACKUP c INCREMENTAL")
    db.maintain()


@pytest.mark.parametrize("writes", [True, False], ids=["written", "unchanged"])
def test_backups_leave_a_bounded_number_of_rows(
    connect: Connect, clock: ManualClock, *, writes: bool
) -> None:
    db = connect(clock=clock, settings=KEPT)
    prepare(db)
    for number in range(1, 8):
        night(db, clock, number, writes=writes)
    after = counts(db)
    for number in range(8, 14):
        night(db, clock, number, writes=writes)
    assert {n: c for n, c in counts(db).items() if c > after[n]} == {}
    assert db.verify("c") == []


def test_what_happened_long_ago_is_forgotten_in_batches(
    connect: Connect, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "FORGOTTEN", 2)
    db = connect(clock=clock, settings=KEPT)
    prepare(db)
    for _ in range(3):
        db.sql("BACKUP c")
        clock.sleep(1)
    first = db.operations()[0].id
    clock.sleep(3650 * DAY)
    db.maintain()
    with db._runtime.catalog.read() as conn:
        present, held = (
            conn.execute(select(func.count()).select_from(t)).scalar_one()
            for t in (sqltables.paths, sqltables.holds)
        )
    left = counts(db)
    assert (left["operations"], left["parts"]) == (0, 0)
    assert left["descriptions"] <= present + held, "the present ones, and those that a stream needs"
    for forgotten in (db.operation, db.wait, db.cancel, db.forget):
        with pytest.raises(OperationNotFound):
            forgotten(first)
    db.sql("UPSERT INTO a (k, v) VALUES (7, 'x'); BACKUP c INCREMENTAL; RESTORE c INTO 'r'")
    assert db.sql("SELECT v FROM `r/a` VIEW by_v WHERE v = 'x'").rows() == [("x",)]
    db.sql("DROP BACKUP COLLECTION c")


def test_an_operation_is_kept_for_as_long_as_the_setting_says(connect: Connect, clock: ManualClock) -> None:
    db = connect(clock=clock, settings=KEPT)
    prepare(db)
    db.sql("BACKUP c")
    (backup,) = [o.id for o in db.operations()]
    clock.sleep(3 * DAY - 1)
    db.maintain()
    assert [o.id for o in db.operations()] == [backup]
    clock.sleep(1)
    db.maintain()
    assert db.operations() == []


def test_descriptions_stay_for_those_who_need_them(connect: Connect, clock: ManualClock) -> None:
    db = connect(clock=clock, settings=KEPT)
    db.sql("CREATE TABLE p (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    db.sql("CREATE TABLE s (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    db.sql("ALTER TABLE s ADD CHANGEFEED f WITH (MODE = 'NEW_AND_OLD_IMAGES')")
    db.sql("UPSERT INTO p (k, v) VALUES (1, 'a'); UPSERT INTO s (k, v) VALUES (1, 'a')")
    step = db.pin("mine")
    db.sql("ALTER TABLE p DROP COLUMN v; ALTER TABLE p ADD COLUMN n Int64")
    db.sql("ALTER TABLE s ADD COLUMN n Int64; UPSERT INTO s (k, v, n) VALUES (1, 'b', 2)")
    clock.sleep(100 * DAY)
    db.sql("ALTER TABLE p ADD COLUMN m Int64")
    clock.sleep(DAY)
    db.maintain()
    past = f"SELECT k, v FROM p VERSION AS OF {step}"
    assert db.sql(past).rows() == [(1, "a")]
    assert [(r["k"], r["old_v"], r["v"]) for r in db.stream("/s/f").records()] == [
        (1, None, "a"),
        (1, "a", "b"),
    ]
    db.unpin("mine")
    clock.sleep(3 * DAY)
    db.maintain()
    with pytest.raises(PreconditionFailed, match="no longer kept"):
        db.sql(past)


def test_unfinished_operations_are_found_by_an_index(tmp_path: Path) -> None:
    with open_at(tmp_path) as db, db._runtime.catalog.read() as conn:
        for query in (
            catalog_operations._UNFINISHED,
            owners._OWNED.where(sqltables.operations.c.ended.is_(None)),
        ):
            plan = conn.execute(text(f"EXPLAIN QUERY PLAN {query.compile(conn.engine)}")).all()
            assert any("operations USING INDEX operations_by_end (ended=?)" in row[-1] for row in plan), plan
