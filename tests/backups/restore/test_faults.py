"""Storage that fails, returns wrong data or hangs: a restore succeeds, or fails and leaves nothing."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from strandline.api.database import Database
from strandline.backups.record import BackupRecord
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.catalog import bulk_paths, operations, paths, sqltables
from strandline.errors import Corrupted, PathNotFound, StrandlineError, TimedOut, Unavailable
from strandline.settings import Settings
from strandline.storage.files import Source
from tests.backups.restore.story import (
    TABLES,
    TOLD_AT,
    Story,
    Told,
    open_at,
    started,
    state,
    unknown_files,
)
from tests.catalogs import ManualClock, counted, leaks
from tests.effort import EVERY
from tests.engines import parts_of, until_alone
from tests.quick_files import QuickFiles

pytestmark = pytest.mark.slow

RETRY_SECONDS = Settings().pauses
COPY = RestoreRequest(collection="c", into="r", copy=True)
WAYS = {"MODE = 'copy'": "copied", "VERIFY = 'data'": "verified"}


class RecordingClock(ManualClock):
    """A clock that records its sleeps."""

    def __init__(self) -> None:
        super().__init__(TOLD_AT)
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        super().sleep(seconds)


@pytest.fixture
def warehouse(in_files: Told, copy_of: Callable[[Told], Told]) -> tuple[Path, Story]:
    copy = copy_of(in_files)
    return copy.folder, copy.story


# --- storage that fails at random -------------------------------------------------------------------------


class Unreliable(QuickFiles):
    """Storage on which a share of all operations fails.

    Some reads and writes seem to succeed, with a flipped byte or a truncated end. Whether an operation fails
    depends only on the number of operations before it. So in any order of threads, the same number of
    operations has the same number of faults.
    """

    def __init__(self, root: Path, seed: int, faults: float, lies: float) -> None:
        super().__init__(root)
        self._turn = random.Random(seed)
        self._random = random.Random(f"lies {seed}")
        self._faults, self._lies = faults, lies
        self.failed = self.lied = 0

    def _may_fail(self) -> None:
        if self._turn.random() < self._faults:
            self.failed += 1
            raise self._random.choice(
                [OSError(errno.EIO, "Input/output error"), OSError(errno.ENOSPC, "No space left on device")]
            )

    def _may_lie(self, data: bytes) -> bytes:
        if not data or self._random.random() >= self._lies:
            return data
        self.lied += 1
        place = self._random.randrange(len(data))
        return (
            data[:place]
            if self._random.random() < 0.5
            else data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]
        )

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        for chunk in super().chunks(name):
            try:
                self._may_fail()
            except OSError as error:
                raise Unavailable(f"cannot read the file {name}: {error.strerror}") from error
            yield self._may_lie(bytes(chunk))

    def size(self, name: str) -> int:
        if self._turn.random() < self._faults:
            self.failed += 1
            raise Unavailable(f"Cannot look at the file {name}.")
        return super().size(name)

    def _mkdir(self, path: str) -> None:
        self._may_fail()
        super()._mkdir(path)

    def _create(self, path: str) -> int:
        self._may_fail()
        return super()._create(path)

    def _append(self, descriptor: int, data: memoryview) -> int:
        self._may_fail()
        super()._append(descriptor, memoryview(self._may_lie(bytes(data))))
        return len(data)

    def _flush(self, descriptor: int) -> None:
        self._may_fail()

    def _sync(self, path: str) -> None:
        self._may_fail()

    def _unlink(self, path: str) -> None:
        self._may_fail()
        super()._unlink(path)


def attempt(db: Database, target: str) -> StrandlineError | None:
    try:
        db.sql(f"RESTORE c INTO '{target}' WITH (MODE = 'copy', VERIFY = 'data')")
    except StrandlineError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("faults", "lies", "workers", "seeds"),
    [(0.01, 0.001, 1, 8 if EVERY else 4), (0.01, 0.001, 3, 3), (0.03, 0.001, 1, 2), (0.01, 0.01, 1, 5)],
)
def test_unreliable_storage(
    warehouse: tuple[Path, Story], faults: float, lies: float, workers: int, seeds: int
) -> None:
    """Restores with different faults: first at a realistic rate, then more than retries overcome.

    The last ones have ten times as many wrong results.
    """
    folder, story = warehouse
    outcomes: dict[str, int] = {"restored": 0, "CORRUPTED": 0}
    failed = lied = 0
    for seed in range(seeds):
        with open_at(folder, clock=ManualClock(TOLD_AT)) as db:
            db.collect()
            files = set(db._runtime.files.names("data"))
        unreliable = Unreliable(folder, seed, faults, lies)
        with open_at(folder, clock=ManualClock(TOLD_AT), files=unreliable, workers=workers) as db:
            error = attempt(db, f"r{seed}")
            assert db.operations()[-1].state == ("done" if error is None else "failed")
        assert error is None or (
            isinstance(error, Corrupted | Unavailable) and error.message and error.hint
        ), error
        outcome = "restored" if error is None else error.code
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        failed, lied = failed + unreliable.failed, lied + unreliable.lied
        with open_at(folder, clock=ManualClock(TOLD_AT)) as db:
            db.collect()
            with db._runtime.catalog.read() as conn:
                assert leaks(conn) == []
            assert unknown_files(db) == set()
            if error is None:
                assert state(db, f"/r{seed}") == story.states[story.backups[-1]]
                continue
            with pytest.raises(PathNotFound):
                db.describe(f"/r{seed}")
            assert set(db._runtime.files.names("data")) == files, f"seed {seed} left something"
    assert failed > seeds
    assert outcomes["CORRUPTED"] <= lied
    if faults > 0.01:
        assert outcomes["UNAVAILABLE"] > 0
    else:
        assert outcomes["restored"] >= seeds // 5
    if lies > 0.001:
        assert outcomes["CORRUPTED"] >= seeds // 5


# --- damaged storage --------------------------------------------------------------------------------------


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def refused(db: Database, ways: dict[str, str] = WAYS) -> None:
    """Assert that a restore of damaged rows fails, and publishes nothing."""
    for settings, how in ways.items():
        with pytest.raises(Corrupted):
            db.sql(f"RESTORE c INTO '{how}' WITH ({settings})")
        with pytest.raises(PathNotFound):
            db.describe(f"/{how}")
    with db._runtime.catalog.read() as conn:
        assert leaks(conn) == []


def damage(db: Database) -> set[str]:
    """Return the kinds of problems that a check of the tables in /before finds."""
    return {problem.kind for table in TABLES for problem in db.check(f"/before{table}").problems}


def test_a_flipped_byte_in_any_file(warehouse: tuple[Path, Story]) -> None:
    """The process has read all files before, and must not use cached content.

    One file in three, unless everything is tried.
    """
    folder, story = warehouse
    with open_at(folder) as db:
        db.sql("RESTORE c INTO 'before' WITH (VERIFY = 'data')")
        assert state(db, "/before") == story.states[story.backups[-1]]
        backed_up = sorted({s.file for s in segments_of_backups(db)})
        assert len(backed_up) >= 20
        for number, name in [*enumerate(backed_up)][:: 1 if EVERY else 3]:
            file = folder / name
            size = file.stat().st_size
            places = (0, size // 3, size // 2, 2 * size // 3, size - 1)
            for place in places:
                flip(file, place)
                assert {p.kind for p in db.verify("c")} == {"corrupt_file"}
                if place == places[number % len(places)]:
                    refused(db)
                    assert damage(db) == {"corrupt_file"}
                flip(file, place)
        assert db.verify("c") == []
        assert damage(db) == set()


def test_a_flipped_byte_in_any_segment_that_the_catalog_keeps(
    in_catalog: Told, copy_of: Callable[[Told], Told]
) -> None:
    folder = copy_of(in_catalog).folder
    with open_at(folder) as db:
        db.sql("RESTORE c INTO 'before' WITH (VERIFY = 'data')")
        kept = segments_of_backups(db)
    assert len(kept) >= 20
    assert {s.file for s in kept} == {None}
    for number, segment in [*enumerate(kept)][:: 1 if EVERY else 3]:
        place = (number * 7919) % len(segment.data)
        with open_at(folder) as db:
            damaged = bytearray(segment.data)
            damaged[place] ^= 1
            rewrite(db, segment.id, bytes(damaged))
            assert {p.kind for p in db.verify("c")} == {"corrupt_file"}
            refused(db)
            assert "corrupt_file" in damage(db)
            rewrite(db, segment.id, segment.data)
    with open_at(folder) as db:
        assert db.verify("c") == []


def test_what_this_process_remembers_does_not_count(on_sqlite: tuple[Database, Story]) -> None:
    """Inline rows are damaged while the restoring process still has the good ones in memory."""
    db, _ = on_sqlite
    db.sql("RESTORE c INTO 'before' WITH (VERIFY = 'data')")
    first = segments_of_backups(db)[0]
    rewrite(db, first.id, first.data[:-1] + b"?")
    refused(db, {"VERIFY = 'data'": "verified"})


@pytest.mark.parametrize("harm", ["gone", "cut", "empty"])
def test_a_file_that_is_gone_or_cut_is_found_without_reading_it(
    warehouse: tuple[Path, Story], harm: str
) -> None:
    folder, _ = warehouse
    with open_at(folder) as db:
        file = folder / sorted({s.file for s in segments_of_backups(db)})[0]
        if harm == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-1] if harm == "cut" else b"")
        refused(db, {"MODE = 'reference'": "shared", **WAYS})


def test_a_segment_that_the_catalog_lost_is_missed(warehouse: tuple[Path, Story]) -> None:
    """The record of a backup knows how many bytes it holds."""
    folder, story = warehouse
    with open_at(folder) as db:
        with db._runtime.catalog.write() as tx:
            backup = db.describe(f"/.backups/collections/c/{story.backups[1]}")
            target = backup["tables"]["/orders"]["slice"]["target_id"]
            row = tx.conn.execute(
                select(sqltables.chains).where(sqltables.chains.c.table_id == target)
            ).first()
            assert row is not None
            tx.conn.execute(
                sqltables.chains.delete().where(
                    sqltables.chains.c.table_id == target, sqltables.chains.c.segment_id == row.segment_id
                )
            )
        refused(db, {"MODE = 'reference'": "shared", **WAYS})
        db.sql(f"RESTORE c AT '{story.backups[0]}' INTO 'r'")
        assert state(db, "/r") == story.states[story.backups[0]]


def test_an_index_that_is_as_recorded_but_not_what_its_table_says_is_refused(tmp_path: Path) -> None:
    """Two equal tables whose indexes were exchanged: every byte and every digest is right."""
    with open_at(tmp_path / "w") as db:
        for number, table in enumerate("tu"):
            db.sql(
                f"""CREATE TABLE {table} (k Int64, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v));
                    UPSERT INTO {table} (k, v) VALUES (1, 'v{number}')"""
            )
        db.sql("CREATE BACKUP COLLECTION c (TABLE t, TABLE u) WITH (STORAGE = 'cluster'); BACKUP c")
        with db._runtime.catalog.write() as tx:
            (backup,) = paths.backups(tx.conn, paths.require(tx.conn, "/.backups/collections/c"))
            record = backup.record(BackupRecord)
            t, u = record.tables["/t"], record.tables["/u"]
            mistaken = {"/t": replace(t, indexes=u.indexes), "/u": replace(u, indexes=t.indexes)}
            bulk_paths.set_bodies(tx, {backup.id: replace(record, tables=mistaken)})
        for settings in WAYS:
            with pytest.raises(Corrupted, match=r"the restored index /r/./by_v does not match its table"):
                db.sql(f"RESTORE c INTO 'r' WITH ({settings})")
            with pytest.raises(PathNotFound):
                db.describe("/r")


def segments_of_backups(db: Database) -> list[Any]:
    """Return all segments that the last backup of the chain needs."""
    with db._runtime.catalog.read() as conn:
        backups = [db.describe(e.path) for e in db.ls("/.backups/collections/c")]
        slices = [t["slice"] for b in backups for t in b["tables"].values()]
        slices += [i["slice"] for b in backups for t in b["tables"].values() for i in t["indexes"]]
        ids = select(sqltables.chains.c.segment_id).where(
            sqltables.chains.c.table_id.in_([s["target_id"] for s in slices])
        )
        return list(
            conn.execute(
                select(sqltables.segments)
                .where(sqltables.segments.c.id.in_(ids))
                .order_by(sqltables.segments.c.id)
            )
        )


def rewrite(db: Database, segment_id: int, data: bytes) -> None:
    with db._runtime.catalog.write() as tx:
        tx.conn.execute(
            update(sqltables.segments).where(sqltables.segments.c.id == segment_id).values(data=data)
        )


# --- storage that recovers, and storage that hangs --------------------------------------------------------


class Failing(QuickFiles):
    """Fails the first copies."""

    def __init__(self, root: Path, times: int) -> None:
        super().__init__(root)
        self.left = times

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        if self.left:
            self.left -= 1
            raise Unavailable("the storage is away")
        return super().copy(source, source_name, name, checksum)


@pytest.mark.parametrize("times", range(len(RETRY_SECONDS) + 2))
def test_a_shard_is_tried_again_with_growing_pauses(warehouse: tuple[Path, Story], times: int) -> None:
    folder, story = warehouse
    clock = RecordingClock()
    with open_at(folder, clock=clock, files=Failing(folder, times)) as db:
        db.collect()
        engine, operation = started(db, COPY)
        ended = engine.run(operation)
        attempts = [p.attempt for p in parts_of(engine, operation)]
        if times <= len(RETRY_SECONDS):
            assert ended.state == "done"
            assert attempts == [times] + [0] * (len(attempts) - 1)
            assert state(db, "/r") == story.states[story.backups[-1]]
        else:
            assert isinstance(ended.failure(), Unavailable)
            with pytest.raises(PathNotFound):
                db.describe("/r")
        # A pause is slept in pieces, so that a cancel need not wait for its end.
        pauses = RETRY_SECONDS[:times]
        assert sum(clock.pauses) == pytest.approx(sum(pauses))
        assert counted(db._runtime.metrics, "part_retries_total", kind="shard") == len(pauses)
        assert unknown_files(db) == set()


class Hanging(QuickFiles):
    """The first copy of the given file does not answer until it is released."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.hangs, self.let_go, self.went_on = threading.Event(), threading.Event(), threading.Event()
        self._first = threading.Lock()

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        if not self._first.acquire(blocking=False):
            return super().copy(source, source_name, name, checksum)
        self.hangs.set()
        assert self.let_go.wait(300)
        try:
            return super().copy(source, source_name, name, checksum)
        finally:
            self.went_on.set()


def when(happened: threading.Event, act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=lambda: act() if happened.wait(300) else None)
    thread.start()
    return thread


def let_go(files: Hanging, operation_id: str) -> None:
    """Release the hanging copy: it ends, and leaves no file."""
    given_up = [t for t in threading.enumerate() if t.name.startswith(f"strandline-{operation_id}-")]
    files.let_go.set()
    for thread in given_up:
        thread.join(300)
    assert files.went_on.is_set(), "the late shard has not come to its end"


def test_a_shard_that_hangs_is_tried_again_and_its_late_report_is_ignored(
    warehouse: tuple[Path, Story],
) -> None:
    folder, story = warehouse
    clock, files = ManualClock(TOLD_AT), Hanging(folder)
    with open_at(folder, clock=clock, files=files, shard_seconds=10.0, session_seconds=1e6) as db:
        db.collect()
        engine, operation = started(db, COPY)

        def pass_by() -> None:
            until_alone(engine.catalog, operation)  # A slow call has not answered either.
            clock.sleep(11)

        later = when(files.hangs, pass_by)
        ended = engine.run(operation, workers=2)
        later.join()
        assert ended.state == "done"
        parts = parts_of(engine, operation)
        assert sorted(p.attempt for p in parts) == [0] * (len(parts) - 1) + [1]
        let_go(files, operation)
        assert parts_of(engine, operation) == parts
        assert unknown_files(db) == set()
        assert state(db, "/r") == story.states[story.backups[-1]]
        assert all(db.check(f"/r{table}").ok for table in TABLES)


def test_a_shard_that_hangs_does_not_outlast_the_deadline(warehouse: tuple[Path, Story]) -> None:
    folder, _ = warehouse
    clock, files = ManualClock(TOLD_AT), Hanging(folder)
    with open_at(folder, clock=clock, files=files, session_seconds=1e6) as db:
        db.collect()
        engine, operation = started(
            db, RestoreRequest(collection="c", into="r", copy=True, deadline_seconds=30.0)
        )
        later = when(files.hangs, lambda: clock.sleep(31))
        ended = engine.run(operation, workers=2)
        later.join()
        assert ended.state == "failed"
        assert isinstance(ended.failure(), TimedOut)
        with pytest.raises(PathNotFound):
            db.describe("/r")
        let_go(files, operation)
        db.collect()
        assert unknown_files(db) == set()
        with db._runtime.catalog.read() as conn:
            assert leaks(conn) == []
            assert operations.get(conn, operation).state == "failed"
