"""Removal of backups: named ones, and those that no rule keeps.

Remaining backups can be restored, and unneeded segments are freed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from strandline import Database
from strandline.backups.collection import CollectionRecord, CollectionRequest
from strandline.backups.record import require_collection
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.backups.retention.drop import DropRequest
from strandline.catalog import sqltables
from strandline.errors import PathNotFound, StrandlineError, UnderOperation
from tests.backups.reading import CLUSTER, HERE, backups, contents, last, leaks, records, streams
from tests.catalogs import ManualClock
from tests.quick_files import QuickFiles
from tests.tables.examples import rows

pytestmark = pytest.mark.slow

DAY = 86400.0
TABLE = "CREATE TABLE t (k Uint32, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"
COLLECTION = (
    "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true'{})"
)


def make(db: Database, more: str = "") -> None:
    db.sql(f"{TABLE}; {COLLECTION.format(more)}")


def take(db: Database, clock: ManualClock, kinds: str) -> list[dict[str, Any]]:
    """Take a backup each day, full (f) or incremental (i), each after a change. Return the results."""
    results = []
    for kind in kinds:
        db.sql(f"UPSERT INTO t (k, v) VALUES ({db.step}, 'v{db.step}')")
        operation = db.sql(f"BACKUP c{' INCREMENTAL' if kind == 'i' else ''}").operation_id
        results.append(result(db, operation))
        clock.sleep(DAY)
    return results


def result(db: Database, operation_id: str | None) -> dict[str, Any]:
    found = db.operation(operation_id or "").result
    assert found is not None
    return found


def held(db: Database, clock: ManualClock) -> int:
    """Return the size of all segments after a garbage collection."""
    clock.sleep(2 * HERE.read_seconds)
    db.collect()
    with db._runtime.catalog.read() as conn:
        return int(conn.execute(select(func.sum(sqltables.segments.c.bytes))).scalar_one() or 0)


def test_a_backup_goes_with_what_builds_on_it(on_both: Database, clock: ManualClock) -> None:
    db = on_both
    make(db)
    take(db, clock, "fiiif")
    expected = {name: contents(db, name) for name in backups(db)}
    first, one, two, three, second = backups(db)
    plan = rows(db, f"DROP BACKUP c '{two}'")
    assert [row[:3] for row in plan] == [
        ("remove", three, f"builds on {two}"),
        ("remove", two, "named"),
        ("free", "", "held by nothing else"),
    ]
    assert backups(db) == [first, one, two, three, second]
    before = held(db, clock)
    operation = db.sql(f"DROP BACKUP c '{two}' CONFIRM").operation_id
    assert result(db, operation) == {"collection": "c", "removed": [two, three], "bytes": plan[-1][3]}
    assert before - held(db, clock) == plan[-1][3] > 0
    assert backups(db) == [first, one, second]
    with db._runtime.catalog.read() as conn:
        assert require_collection(conn, "c").record(CollectionRecord).leaving == (), "no repository has any"
    for name in backups(db):
        assert contents(db, name) == expected[name]
    assert db.verify("c") == []
    assert leaks(db) == []
    db.sql(f"BACKUP c INCREMENTAL; RESTORE c INTO 'r'; RESTORE c AT '{one}' INTO 's'")
    assert rows(db, "SELECT * FROM `r/t` ORDER BY k") == rows(db, "SELECT * FROM t ORDER BY k")


def test_what_the_table_still_has_does_not_become_free(db: Database, clock: ManualClock) -> None:
    make(db)
    take(db, clock, "ff")
    assert rows(db, f"DROP BACKUP c '{backups(db)[0]}'")[-1][3] == 0
    db.compact("/t")
    # Only the backups hold these segments now. All of the first backup is also in the second.
    held(db, clock)
    first, second = backups(db)
    assert rows(db, f"DROP BACKUP c '{first}'")[-1][3] == 0
    db.sql(f"DROP BACKUP c '{first}' CONFIRM")
    freed = rows(db, f"DROP BACKUP c '{second}'")[-1][3]  # although the first one is not collected yet
    before = held(db, clock)
    db.sql(f"DROP BACKUP c '{second}' CONFIRM")
    assert before - held(db, clock) == freed > 0


@pytest.mark.parametrize("nowait", ["", " NOWAIT"])
@pytest.mark.parametrize("storage", ["cluster", "repository"])
def test_retention_follows_each_backup(
    on_both: Database, clock: ManualClock, tmp_path: Path, storage: str, nowait: str
) -> None:
    db = on_both
    make(db, ", RETENTION = 'KEEP LAST 2 FULL'")
    if storage == "repository":
        db.sql(f"ALTER BACKUP COLLECTION c SET (STORAGE = '{tmp_path / storage}')")
    told = [result["removed"] for result in take(db, clock, "fifi")]
    assert told == [[], [], [], []]
    first, one, second, two = backups(db)
    operation = db.sql(f"BACKUP c{nowait}").operation_id
    assert operation is not None
    told_now = db.wait(operation).result
    assert told_now is not None
    assert (told_now["removed"], told_now["retention"]) == ([first, one], "KEEP LAST 2 FULL")
    assert backups(db) == [second, two, told_now["backup"]]
    assert [o.kind for o in db.operations() if o.kind == "drop backups"] == ["drop backups"]
    assert db.verify("c") == []
    held(db, clock)
    assert leaks(db) == []


def test_a_backup_is_good_though_nothing_could_be_removed(db: Database, clock: ManualClock) -> None:
    make(db, ", RETENTION = 'KEEP LAST 1 FULL'")
    take(db, clock, "f")
    (first,) = backups(db)
    with db._runtime.catalog.write() as tx:
        at = sqltables.paths.c
        tx.conn.execute(update(sqltables.paths).where(at.name == first).values(body="{}"))
    (told,) = take(db, clock, "f")
    assert "removed" not in told
    assert "cannot be read" in told["not_removed"]
    assert backups(db) == [first, told["backup"]]
    assert [o.state for o in db.operations()] == ["done", "done"]


def test_nothing_goes_while_others_work_on_the_collection(
    db: Database, connect: Callable[..., Database], clock: ManualClock
) -> None:
    make(db)
    take(db, clock, "fif")
    first, one, second = backups(db)
    other = connect(clock=clock)
    waiting: list[tuple[str, Any]] = [
        ("backup", CollectionRequest(collection="c")),
        ("incremental backup", CollectionRequest(collection="c")),
        ("restore", RestoreRequest(collection="c", at=one, into="/r")),
        ("drop backups", DropRequest(collection="c", backup=one)),
    ]
    for kind, request in waiting:
        operation = db._operations.engine.start(kind, request)
        for statement in (f"DROP BACKUP c '{first}' CONFIRM", "PRUNE c KEEP LAST 1 FULL CONFIRM"):
            with pytest.raises(UnderOperation, match=operation):
                other.sql(statement)
        assert rows(other, f"DROP BACKUP c '{first}'")[-2][1] == first
        db.cancel(operation)
    operation = db._operations.engine.start(*waiting[-1])
    for statement in ("BACKUP c", "BACKUP c INCREMENTAL", f"RESTORE c AT '{first}' INTO 'r'"):
        with pytest.raises(UnderOperation, match=operation):
            other.sql(statement)
    with pytest.raises(UnderOperation, match=operation):
        other.sql(f"PIN BACKUP c '{one}'")
    assert rows(other, "PRUNE c KEEP LAST 1 FULL")[1][:3] == ("keep", one, "under operation")
    assert rows(other, f"SELECT count(*) FROM t IN BACKUP c AT '{one}'") == [(2,)]
    db.wait(operation)
    assert backups(db) == [first, second]
    with pytest.raises(PathNotFound):
        other.sql(f"SELECT k FROM t IN BACKUP c AT '{one}'")
    other.sql("BACKUP c INCREMENTAL; RESTORE c INTO 'r'")
    assert leaks(db) == []


def test_what_was_being_dropped_is_as_it_was_when_that_is_cancelled(db: Database, clock: ManualClock) -> None:
    make(db)
    take(db, clock, "fi")
    before = (backups(db), db.describe("/.backups/collections/c"), streams(db, "/t"), contents(db))
    operation = db._operations.engine.start(
        "drop backups", DropRequest(collection="c", backup=backups(db)[0])
    )
    db._operations.engine.step(operation)
    db.cancel(operation)
    assert (backups(db), db.describe("/.backups/collections/c"), streams(db, "/t"), contents(db)) == before
    take(db, clock, "i")
    assert leaks(db) == []


def test_children_go_before_their_parents(db: Database, clock: ManualClock) -> None:
    """So that the remaining backups are complete at any time, wherever they are stored."""
    make(db)
    take(db, clock, "fiifi")
    first, *_, second, _ = backups(db)
    db.sql("BACKUP c")
    operation = db.sql("PRUNE c KEEP LAST 1 FULL CONFIRM").operation_id
    with db._runtime.catalog.read() as conn:
        at = sqltables.parts.c
        found = conn.execute(
            select(at.stage, at.body).where(at.operation_id == operation, at.kind == "drop backup")
        ).all()
    stages = {name: stage for stage, body in found for name in (first, second) if name in body}
    assert sorted(stage for stage, _ in found) == [1, 1, 2, 2, 3]
    assert (stages[first], stages[second]) == (3, 2)


def test_a_table_that_is_backed_up_by_another_keeps_its_stream_until_later(
    db: Database, clock: ManualClock
) -> None:
    make(db)
    db.sql(f"CREATE BACKUP COLLECTION d (TABLE t) {CLUSTER}")
    take(db, clock, "f")
    operation = db._operations.engine.start("backup", CollectionRequest(collection="d"))
    db._operations.engine.start("drop backups", DropRequest(collection="c", backup=backups(db)[0]))
    db.wait(operation)
    db.resume()
    assert backups(db) == []
    assert len(streams(db, "/t")) == 2
    db.sql("BACKUP c")
    assert streams(db, "/t") == sorted(str(last(db, name).stream) for name in "cd")


def test_what_is_refused_changes_nothing(db: Database, clock: ManualClock) -> None:
    make(db)
    take(db, clock, "f")
    before = (db.step, backups(db), len(db.operations()))
    for statement in (
        "DROP BACKUP c 'nope' CONFIRM",
        "DROP BACKUP nope 'x'",
        "PIN BACKUP c 'nope'",
        "UNPIN BACKUP nope 'x'",
        "PRUNE nope KEEP DAILY 1",
        "PRUNE c CONFIRM",
        "ALTER BACKUP COLLECTION c SET (RETENTION = 'KEEP ALL')",
        "ALTER BACKUP COLLECTION c SET (MINIMUM = 0)",
        "ALTER BACKUP COLLECTION c SET (MAX_CHAIN = true)",
    ):
        with pytest.raises(StrandlineError) as refused:
            db.sql(statement)
        assert refused.value.hint, statement
    assert (db.step, backups(db), len(db.operations())) == before


class Meanwhile(QuickFiles):
    """Calls ``act`` just before the first file of a folder is read."""

    act: Callable[[], None] | None = None
    folder = ""

    def size(self, name: str) -> int:
        self._now(name)
        return super().size(name)

    def readable(self, name: str) -> str:
        self._now(name)
        return super().readable(name)

    def _now(self, name: str) -> None:
        if self.act is not None and name.startswith(self.folder):
            act, self.act = self.act, None
            act()


@dataclass
class Beside:
    """A warehouse in which a backup is dropped and collected as soon as another process reads it.

    Attributes:
        other: The reading process.
        name: The backup.
        files: Files of ``other``.
    """

    db: Database
    other: Database
    name: str
    files: Meanwhile
    clock: ManualClock

    def drop(self) -> None:
        self.db.sql(f"DROP BACKUP c '{records(self.db)[0].name}' CONFIRM")
        self.clock.sleep(1)
        self.db.collect()


@pytest.fixture
def beside(connect: Callable[..., Database], clock: ManualClock, tmp_path: Path) -> Callable[..., Beside]:
    def make_it(index: bool = False, **settings: float) -> Beside:
        db = connect(clock=clock, settings={"inline_rows": 0})
        make(db)
        take(db, clock, "fif")
        record = records(db)[1]
        table = record.tables["/t"]
        read = table.indexes[0].slice if index else table.slice
        assert read is not None
        files = Meanwhile(tmp_path / "warehouse")
        files.folder = f"data/{read.target_id}/"
        return Beside(db, connect(clock=clock, files=files, settings=settings), record.name, files, clock)

    return make_it


@pytest.mark.parametrize("of", ["t", "t VIEW by_v"])
def test_what_was_collected_while_it_was_read_is_gone_and_not_damaged(
    beside: Callable[..., Beside], of: str
) -> None:
    """The process is suspended for longer than its session and the grace period."""
    found = beside(index=of != "t")

    def sleep_and_drop() -> None:
        found.other._runtime.session.close()  # The thread of a suspended process renews nothing.
        found.clock.sleep(1_000.0)
        found.drop()

    found.files.act = sleep_and_drop
    with pytest.raises(PathNotFound, match="has no backup"):
        found.other.sql(f"SELECT k, v FROM {of} IN BACKUP c AT '{found.name}'").rows()
    assert found.files.act is None


@pytest.mark.parametrize("what", ["verified", "read"])
def test_a_backup_that_goes_while_it_is_read_stays_until_then(
    beside: Callable[..., Beside], what: str
) -> None:
    found = beside()
    db, other, files = found.db, found.other, found.files

    def drop_and_collect() -> None:
        other._runtime.session.refresh()  # The session's thread does this from time to time.
        found.drop()

    files.act = drop_and_collect
    assert list(db._runtime.files.names(files.folder.rstrip("/")))
    if what == "verified":
        assert other.verify("c") == []
    else:
        assert len(rows(other, f"SELECT k, v FROM t IN BACKUP c AT '{found.name}'")) == 2
    assert files.act is None
    assert len(backups(db)) == 1
    other.close()
    held(db, found.clock)
    assert list(db._runtime.files.names(files.folder.rstrip("/"))) == []
    assert leaks(db) == []
