"""Operations of a dead process are continued automatically by other processes; those of live ones are not."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import update

from strandline import Database
from strandline.catalog import sqltables
from strandline.catalog.sessions import HOST
from strandline.errors import UnderOperation
from tests import processes
from tests.backups.reading import CLUSTER, leaks, open_at
from tests.catalogs import ManualClock
from tests.effort import EVERY
from tests.tables.examples import rows

pytestmark = pytest.mark.slow

VICTIM = """
import os, signal, sys, strandline
db = strandline.connect(sys.argv[1], catalog=sys.argv[4] or None)
left = int(sys.argv[3])
def die():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
db._runtime.catalog.after_commit = die
db.sql(sys.argv[2])
"""
"""A process that kills itself right after its n-th transaction."""

OWNER = """
import sys, strandline
from strandline.backups.collection import CollectionRequest
db = strandline.connect(sys.argv[1], catalog=sys.argv[2] or None)
print(db._operations.engine.start("backup", CollectionRequest(collection="c")), flush=True)
sys.stdin.readline()
"""
"""A process that starts a backup and stays alive."""


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)] if EVERY else ["sqlite"]
)
def catalog_url(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else request.getfixturevalue("emptied_database")


@pytest.fixture
def folder(tmp_path: Path, catalog_url: str | None) -> Path:
    with open_at(tmp_path, catalog_url) as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
        db.sql("CREATE TABLE other (k Int64 NOT NULL, PRIMARY KEY (k))")
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b')")
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
    return tmp_path


def die_in(folder: Path, url: str | None, statement: str, transaction: int = 2) -> int:
    """Let a process die in a statement, by default after planning; return the operation's id."""
    victim = processes.start(VICTIM, str(folder), statement, str(transaction), url or "")
    _, complained = victim.communicate(timeout=300)
    assert victim.returncode == -signal.SIGKILL, complained
    return victim.pid


def add_column(db: Database) -> None:
    db.sql("ALTER TABLE t ADD COLUMN n Int64")
    assert rows(db, "SELECT k, v, n FROM t") == [(1, "a", None), (2, "b", None)]


def read_restored(db: Database) -> None:
    assert rows(db, "SELECT k, v FROM `r/t`") == [(1, "a"), (2, "b")]


def get_restored(db: Database) -> None:
    assert db.table("r/t").get(2) == {"k": 2, "v": "b"}


def write_restored(db: Database) -> None:
    db.table("r/t").upsert([{"k": 3, "v": "c"}])
    assert len(rows(db, "SELECT k FROM `r/t`")) == 3


def drop_collection(db: Database) -> None:
    db.sql("DROP BACKUP COLLECTION c")


MEETINGS: dict[str, tuple[str, Callable[[Database], None]]] = {
    "DDL of a table that is backed up": ("BACKUP c", add_column),
    "a query of a table that is restored": ("RESTORE c INTO 'r'", read_restored),
    "a look at a row of it": ("RESTORE c INTO 'r'", get_restored),
    "rows for it": ("RESTORE c INTO 'r'", write_restored),
    "the end of a collection": ("BACKUP c INCREMENTAL", drop_collection),
}


@pytest.mark.parametrize("name", MEETINGS if EVERY else [*MEETINGS][:2])
def test_a_statement_that_meets_the_work_of_a_dead_process_carries_it_on(
    folder: Path, catalog_url: str | None, name: str
) -> None:
    statement, meet = MEETINGS[name]
    die_in(folder, catalog_url, statement)
    with open_at(folder, catalog_url) as db:
        assert db.operations()[-1].state == "running"
        meet(db)
        assert [o.state for o in db.operations() if o.kind in ("backup", "incremental backup", "restore")][
            -1
        ] == "done"
        assert leaks(db) == []


def test_what_a_dead_process_was_to_undo_is_undone(folder: Path, catalog_url: str | None) -> None:
    die_in(folder, catalog_url, "RESTORE c INTO 'r'")
    with open_at(folder, catalog_url) as db:
        (operation,) = [o.id for o in db.operations() if o.kind == "restore"]
        with db._runtime.catalog.write() as tx:
            tx.conn.execute(
                update(sqltables.operations)
                .where(sqltables.operations.c.id == operation)
                .values(state="cancelling")
            )
        (attention,) = [a for a in db.status().attention if a.about == operation]
        assert attention.hint == f"It is being undone. Complete that with db.wait({operation!r})."
        db.sql("CREATE TABLE `r/t` (k Int64 NOT NULL, PRIMARY KEY (k))")
        assert db.operation(operation).state == "cancelled"
        assert leaks(db) == []


def test_who_looks_sees_who_is_silent_and_leaves_it_alone(folder: Path, catalog_url: str | None) -> None:
    pid = die_in(folder, catalog_url, "BACKUP c")
    with open_at(folder, catalog_url, settings={"carry_on_seconds": 3600.0}) as db:
        owner = db.describe("/t")["owner"]
        assert (owner["process"], owner["is_alive"], owner["kind"]) == (f"{HOST}:{pid}", False, "backup")
        assert owner["seen"] is not None
        assert db.busy()["t"] == {"state": "copying", "owner": owner}
        assert "owner" not in db.describe("/other")
        assert list(db.busy()) == ["t"]
        found = db.operation(owner["operation_id"])
        assert found.owner is not None and found.owner.process == f"{HOST}:{pid}"
        assert {s.state for s in found.shards} == {"waiting"}
        assert rows(db, "SELECT k FROM t VIEW by_v WHERE v = 'a'") == [(1,)]
        (attention,) = [a for a in db.status().attention if a.about == found.id]
        assert (attention.level, attention.message) == ("warning", "the process of this backup has died")
        assert db._operations._loaded is None, "whoever reads writes nothing"
        assert db.operation(found.id).state == "running"


def test_who_has_changed_something_carries_it_on_in_the_background(
    folder: Path, catalog_url: str | None
) -> None:
    die_in(folder, catalog_url, "RESTORE c INTO 'r'")
    with open_at(folder, catalog_url, settings={"carry_on_seconds": 0.01}) as db:
        db.sql("UPSERT INTO other (k) VALUES (1)")
        restore = db.operations()[-1].id
        while not db.operation(restore).is_over:
            pass
        assert db.operation(restore).state == "done"
        read_restored(db)


def test_who_finds_it_when_he_connects_carries_it_on_and_changes_nothing_himself(
    folder: Path, catalog_url: str | None
) -> None:
    die_in(folder, catalog_url, "RESTORE c INTO 'r'")
    with open_at(folder, catalog_url, settings={"carry_on_seconds": 0.01}) as db:
        restore = db.operations()[-1].id
        while not db.operation(restore).is_over:
            pass
        assert db.operation(restore).state == "done"
        read_restored(db)
    with open_at(folder, catalog_url, settings={"carry_on_seconds": 0.01}) as db:
        assert db._operations.carrier is None


def test_a_live_process_keeps_its_work_and_a_dead_one_does_not(folder: Path, catalog_url: str | None) -> None:
    process = processes.start(OWNER, str(folder), catalog_url or "")
    assert process.stdout is not None
    operation = process.stdout.readline().strip()
    try:
        with open_at(folder, catalog_url) as db:
            assert db.describe("/t")["owner"]["is_alive"]
            with pytest.raises(UnderOperation, match=operation):
                db.sql("DROP TABLE t")
            db.sql("UPSERT INTO other (k) VALUES (1)")
            assert db._operations.carrier is not None and db._operations.carrier.look() == []
            assert db.operation(operation).state == "running"
            process.kill()
            process.wait(300)
            assert db._operations.carrier.look() == [operation]
            assert db.operation(operation).state == "done"
            db.sql("DROP TABLE t")
    finally:
        process.kill()
        process.communicate()


def test_of_a_process_elsewhere_only_its_silence_tells(folder: Path, catalog_url: str | None) -> None:
    die_in(folder, catalog_url, "BACKUP c")
    with open_at(folder, catalog_url) as db:
        with db._runtime.catalog.write() as tx:
            tx.conn.execute(update(sqltables.sessions).values(host="elsewhere"))
        owner = db.describe("/t")["owner"]
        clock = ManualClock(owner["seen"] + 59)
    with open_at(folder, catalog_url, clock=clock) as db:
        assert db.describe("/t")["owner"]["is_alive"]
        with pytest.raises(UnderOperation):
            add_column(db)
        clock.sleep(2)
        assert not db.describe("/t")["owner"]["is_alive"]
        add_column(db)
        assert db.operation(owner["operation_id"]).state == "done"


def test_what_a_newer_version_began_is_left_to_it(folder: Path, catalog_url: str | None) -> None:
    die_in(folder, catalog_url, "BACKUP c")
    with open_at(folder, catalog_url) as db:
        newest = db.operations()[-1]
        with db._runtime.catalog.write() as tx:
            at = sqltables.operations.c
            body = json.dumps({"record_format": 99})
            tx.conn.execute(update(sqltables.operations).where(at.id == newest.id).values(body=body))
        with pytest.raises(UnderOperation, match=newest.id):
            add_column(db)
        db.sql("UPSERT INTO other (k) VALUES (1)")
        assert db._operations.carrier is not None and db._operations.carrier.look() == []
        assert db.operation(newest.id).state == "running"


def test_a_transaction_that_meets_it_does_not_wait(folder: Path, catalog_url: str | None) -> None:
    die_in(folder, catalog_url, "RESTORE c INTO 'r'")
    with open_at(folder, catalog_url) as db:
        with pytest.raises(UnderOperation), db.transaction():
            read_restored(db)
        read_restored(db)
