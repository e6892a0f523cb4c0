"""Limits of backups and restores: set by a statement or the settings, and kept by the operation."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from strandline import Database
from strandline.backups.collection import CompactRequest, MergeRequest, SendRequest
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.catalog import operations
from strandline.errors import InvalidArgument, Unavailable
from strandline.operations.kind import read_part
from strandline.records import Record
from strandline.settings import Limits
from strandline.storage.files import Source
from tests.backups.reading import CLUSTER, open_at
from tests.catalogs import ManualClock
from tests.quick_files import QuickFiles
from tests.tables.examples import content

RATE = 2_000.0


class Counted(QuickFiles):
    """Counts bytes that are written, and files that are copied at the same time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.copied = self.busy = self.most = 0
        self._lock = threading.Lock()

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        with self._lock:
            self.busy += 1
            self.most = max(self.most, self.busy)
        try:
            size = super().copy(source, source_name, name, checksum)
        finally:
            with self._lock:
                self.busy -= 1
        with self._lock:
            self.copied += size
        return size


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def repository(tmp_path: Path) -> Counted:
    return Counted(tmp_path / "repository")


def opened(folder: Path, clock: ManualClock, repository: Counted, **settings: float) -> Database:
    given = {"inline_rows": 0, "shard_bytes": 2_000, **settings}
    db = open_at(folder, clock=clock, files=Counted(folder), settings=given)
    db._runtime.files.opener = lambda root: repository
    return db


def fill(db: Database, repository: Counted) -> None:
    for name in "abcd":
        db.sql(f"CREATE TABLE {name} (k Int32, v Utf8, PRIMARY KEY (k))")
        db.table(name).upsert([{"k": k, "v": f"{name} {k}"} for k in range(100)])
        db.table(name).upsert([{"k": k, "v": f"{name} {k}"} for k in range(100, 200)])
    db.sql(
        "CREATE BACKUP COLLECTION c (TABLE a, TABLE b, TABLE c, TABLE d) "
        f"WITH (STORAGE = '{repository.root}', INCREMENTAL_BACKUP_ENABLED = 'true')"
    )


def copied(db: Database) -> Counted:
    files = db._runtime.files.own
    assert isinstance(files, Counted)
    return files


def test_both_directions_keep_to_the_limits(tmp_path: Path, clock: ManualClock, repository: Counted) -> None:
    with opened(tmp_path / "w", clock, repository) as db:
        fill(db, repository)
        began = clock.now()
        db.sql(f"BACKUP c WITH (MAX_BYTES_PER_SECOND = {RATE:.0f}, COPIES = 1)")
        assert repository.copied > 8_000 and repository.most == 1
        assert repository.copied <= RATE * (clock.now() - began) * (1 + 1e-9)
        began = clock.now()
        db.sql(f"RESTORE c INTO r WITH (MAX_BYTES_PER_SECOND = {RATE:.0f}, COPIES = 1)")
        here = copied(db)
        assert here.copied == repository.copied and here.most == 1
        assert here.copied <= RATE * (clock.now() - began) * (1 + 1e-9)
        assert content(db, "r/a") == content(db, "a")


def test_rows_that_the_catalog_has_are_sent_as_slowly(
    tmp_path: Path, clock: ManualClock, repository: Counted
) -> None:
    with opened(tmp_path / "w", clock, repository, inline_rows=1_000) as db:
        db.sql("CREATE TABLE a (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO a (k) VALUES (1), (2)")
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE a) WITH (STORAGE = '{repository.root}')")
        began = clock.now()
        db.sql(f"BACKUP c WITH (MAX_BYTES_PER_SECOND = {RATE:.0f})")
        sent = sum(repository.size(name) for name in repository.names("objects"))
        assert 0 < sent <= RATE * (clock.now() - began) * (1 + 1e-9)


def test_a_copy_within_the_warehouse_keeps_to_the_settings(
    tmp_path: Path, clock: ManualClock, repository: Counted
) -> None:
    with opened(tmp_path / "w", clock, repository, copy_bytes_per_second=RATE, copies=2) as db:
        fill(db, repository)
        db.sql("ALTER BACKUP COLLECTION c SET (STORAGE = 'cluster')")
        db.sql("BACKUP c")
        began = clock.now()
        db.sql("RESTORE c INTO r WITH (MODE = 'copy')")
        here = copied(db)
        assert here.copied > 8_000 and here.most <= 2
        assert here.copied <= RATE * (clock.now() - began) * (1 + 1e-9)
        before = clock.now()
        db.sql("RESTORE c INTO s WITH (MODE = 'copy', MAX_BYTES_PER_SECOND = 0)")
        assert clock.now() == before, "the statement says that there is none"


@pytest.mark.parametrize("statement", ["COMPACT c", "COMPACT c INCREMENTS", "BACKUP c INCREMENTAL"])
def test_what_is_folded_is_written_as_slowly(
    tmp_path: Path, clock: ManualClock, repository: Counted, statement: str
) -> None:
    """Also if the chain is compacted automatically after a backup with limits."""
    with opened(tmp_path / "w", clock, repository) as db:
        fill(db, repository)
        if statement.startswith("BACKUP"):
            db.sql("ALTER BACKUP COLLECTION c SET (MAX_CHAIN = 4, COMPACT_CHAIN = 'true')")
        db.sql("BACKUP c")
        for number in range(3):
            if number:
                db.sql("BACKUP c INCREMENTAL")
            db.table("a").upsert([{"k": k, "v": f"new {number} {k}"} for k in range(200)])
        before, began = sizes(repository), clock.now()
        db.sql(f"{statement} WITH (MAX_BYTES_PER_SECOND = {RATE:.0f}, COPIES = 1)")
        made = [size for name, size in sizes(repository).items() if name not in before]
        assert sum(made) > 1_500
        assert sum(made) <= RATE * (clock.now() - began) * (1 + 1e-9)
        assert db.verify("c") == []


def sizes(repository: Counted) -> dict[str, int]:
    return {name: repository.size(name) for name in repository.names("objects")}


def test_what_had_to_wait_is_sent_as_slowly(tmp_path: Path, clock: ManualClock, repository: Counted) -> None:
    with opened(tmp_path / "w", clock, repository) as db:
        fill(db, repository)
        away = Away(Path(repository.root))
        db._runtime.files.opener = lambda root: away
        with pytest.raises(Unavailable):
            db.sql("BACKUP c")
        db._runtime.files.opener = lambda root: repository
        for name in "abcd":
            db.table(name).upsert([{"k": k, "v": f"other {k}"} for k in range(200)])
            db.compact(name)
        began = clock.now()
        db.sql(f"BACKUP c WITH (MAX_BYTES_PER_SECOND = {RATE:.0f}, COPIES = 1)")
        assert len(list(repository.names("backups"))) == 2 and repository.most == 1
        assert 16_000 < repository.copied <= RATE * (clock.now() - began) * (1 + 1e-9)


class Away(Counted):
    def write_if_absent(self, name: str, data: bytes) -> bool:
        raise Unavailable("it is away")


def test_who_carries_on_keeps_the_limits(tmp_path: Path, clock: ManualClock, repository: Counted) -> None:
    """One process takes the backup; another one, with other settings, uploads it."""
    folder = tmp_path / "w"
    with opened(folder, clock, repository, copy_bytes_per_second=RATE, copies=3) as db:
        fill(db, repository)
        engine = db._operations.engine
        backup = db.sql("BACKUP c INCREMENTAL OR FULL WITH (COPIES = 1) NOWAIT").operation_id
        assert backup is not None
        db.wait(backup)
        sent = [o for o in db.operations() if o.kind == "send backup"]
        assert [o.request["limits"] for o in sent] == [{"bytes_per_second": RATE, "copies": 1}]
        limits = Limits(bytes_per_second=RATE, copies=1)
        left = engine.start("restore", RestoreRequest(collection="c", into="r", limits=limits))
        engine.step(left)
    clock.sleep(1_000)
    with opened(folder, clock, repository) as other:
        began = clock.now()
        assert other.resume() == [left]
        here = copied(other)
        assert here.copied > 4_000 and here.most == 1
        assert here.copied <= RATE * (clock.now() - began) * (1 + 1e-9)
        assert other.operation(left).state == "done"


@pytest.mark.parametrize("kind", ["send backup", "restore"])
def test_a_slow_copy_is_not_taken_for_one_that_hangs(
    tmp_path: Path, clock: ManualClock, repository: Counted, kind: str
) -> None:
    """The time limit of a part covers the whole operation at the rate, because all parts share it."""
    with opened(tmp_path / "w", clock, repository, shard_seconds=60.0) as db:
        fill(db, repository)
        db.sql("ALTER BACKUP COLLECTION c SET (STORAGE = 'cluster')")
        db.sql("BACKUP c")
        limits, engine = Limits(bytes_per_second=10.0), db._operations.engine
        requests: dict[str, Record] = {
            "send backup": SendRequest(collection="c", url=repository.root, limits=limits),
            "restore": RestoreRequest(collection="c", into="r", copy=True, limits=limits),
        }
        started = engine.start(kind, requests[kind])
        with db._runtime.catalog.read() as conn:
            operation, parts = operations.get(conn, started), operations.parts(conn, started)
        run, slow = engine.transitions.run_of(operation), []
        for part in parts:
            if part.kind in ("shard", "objects"):
                handler = engine.transitions.handler_of(operation, part)
                slow.append(handler.time_limit(run, read_part(part, handler.record)))
        total = db.operation(started).progress["bytes_total"]
        assert total > 8_000 and len(slow) > 1
        assert set(slow) == {60.0 + total / 10.0}
        db.cancel(started)


def test_a_slow_fold_is_not_taken_for_one_that_hangs(
    tmp_path: Path, clock: ManualClock, repository: Counted
) -> None:
    """The time limit of a part covers parts of its size on all workers, because they share the rate."""
    given = {"shard_seconds": 60.0, "copy_bytes_per_second": 10.0, "workers": 3}
    with opened(tmp_path / "w", clock, repository, **given) as db:
        db.sql("CREATE TABLE a (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO a (k) VALUES (1)")
        db.sql("UPSERT INTO a (k) VALUES (2)")
        db.sql(f"CREATE BACKUP COLLECTION c (TABLE a) {CLUSTER}; BACKUP c")
        for value in "xy":
            db.sql(f"UPSERT INTO a (k, v) VALUES (1, '{value}'); BACKUP c INCREMENTAL")
        engine = db._operations.engine
        requests: dict[str, Record] = {
            "merge increments": MergeRequest(collection="c"),
            "compact backups": CompactRequest(collection="c"),
        }
        for kind, request in requests.items():
            started = engine.start(kind, request)
            with db._runtime.catalog.read() as conn:
                operation, parts = operations.get(conn, started), operations.parts(conn, started)
            run = engine.transitions.run_of(operation)
            handlers = [engine.transitions.handler_of(operation, part) for part in parts]
            folds = [
                (handler, read_part(part, handler.record))
                for handler, part in zip(handlers, parts, strict=True)
                if part.kind in ("fold", "merge")
            ]
            assert folds
            for handler, part in folds:
                size = part.body.shard.bytes
                assert size > 1_000
                assert handler.time_limit(run, part) == 60.0 + 3 * (size / 10.0)
            db.cancel(started)
            assert engine.run(started).state == "cancelled"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("MAX_BYTES_PER_SECOND = 'fast'", "MAX_BYTES_PER_SECOND cannot be 'fast'"),
        ("MAX_BYTES_PER_SECOND = -1", "MAX_BYTES_PER_SECOND cannot be -1"),
        ("COPIES = 0", "COPIES cannot be 0"),
        ("COPIES = 1.5", "COPIES cannot be"),
        ("COPIES = 2000", "COPIES cannot be 2000"),
        ("COPIES = TRUE", "COPIES cannot be True"),
        ("COPIES = 1, COPIES = 2", "the setting COPIES is given twice"),
        ("COPYS = 1", "has no setting COPYS"),
    ],
)
def test_what_is_no_limit_is_refused(db: Database, settings: str, message: str) -> None:
    for text in ("BACKUP c", "COPY BACKUP 'b' FROM c TO '/r'", "RESTORE c"):
        with pytest.raises(InvalidArgument, match=message):
            db.sql(f"{text} WITH ({settings})")
