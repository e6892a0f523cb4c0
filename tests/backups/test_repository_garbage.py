"""Garbage collection of a repository: first the manifests of dropped backups, then unneeded objects.

An object is deleted only after the grace period, when no writer can be about to use it.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import strandline
from strandline import Database
from strandline.backups.repository.lease import take
from strandline.backups.repository.repository import Repository
from strandline.backups.repository.repository_writer import TOGETHER, names_in_deletion, sweep
from strandline.errors import Conflict, PreconditionFailed, Unavailable, UnderOperation
from strandline.settings import Settings
from strandline.storage.files import LocalFiles
from tests.backups.reading import TABLE, backups, collection, contents, hurry, leaks, open_at, records
from tests.backups.test_repository import Places, load
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import MortalFiles, bury
from tests.crash.mortal import connect as mortal_connect
from tests.effort import EVERY
from tests.quick_files import QuickFiles
from tests.tables.examples import content, rows

pytestmark = pytest.mark.slow

DAY = 86400.0


def files(repository: Path, folder: str) -> set[str]:
    return {p.relative_to(repository).as_posix() for p in (repository / folder).rglob("*") if p.is_file()}


def needed(repository: Path) -> set[str]:
    there = Repository(LocalFiles(repository), str(repository))
    return {name for backup in there.backups() for name in there.manifest(backup).objects()}


def take_chains(db: Database, clock: ManualClock, number: int) -> None:
    """Take chains of a full backup and two increments, with a day between two backups."""
    for chain in range(number):
        load(db, chain, 3)
        db.sql("BACKUP c")
        for _ in range(2):
            clock.sleep(DAY)
            db.sql(f"DELETE FROM t WHERE k = {chain}")
            load(db, 100 + chain, 2)
            db.sql("BACKUP c INCREMENTAL")
        clock.sleep(DAY)


def test_what_goes_and_what_stays(kept: Database, repository: Path, clock: ManualClock) -> None:
    load(kept, 1_000, 5_000)
    kept.compact("t")
    take_chains(kept, clock, 3)
    expected = {name: contents(kept, name) for name in backups(kept)}
    before = files(repository, "objects")
    told = {row[1]: row for row in rows(kept, "PRUNE c KEEP LAST 1 FULL")}
    assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(kept)}
    kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert len(backups(kept)) == 3
    assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(kept)}
    assert files(repository, "objects") == before, "somebody may still read them"
    clock.sleep(2 * DAY)
    kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    after = files(repository, "objects")
    assert after == needed(repository) < before
    freed = sum((repository / name).stat().st_size for name in after)
    assert told[""][3] > 0 and told[""][3] < freed, "what all chains share is not counted as free"
    for name in backups(kept):
        assert contents(kept, name) == expected[name]
    kept.sql("RESTORE c TABLE t AS back")
    assert sorted(content(kept, "back")) == sorted(content(kept, "t"))
    assert kept.verify("c") == [] and leaks(kept) == []


def test_prune_says_how_large_a_backup_is_before_what_was_sent_is_collected(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    load(kept, 0, 2_000)
    take_chains(kept, clock, 2)
    told = {row[1]: row[3] for row in rows(kept, "PRUNE c KEEP LAST 1 FULL") if row[0] == "remove"}
    assert told == {record.name: record.bytes for record in records(kept)[:3]}


def test_retention_sweeps_as_well(kept: Database, repository: Path, clock: ManualClock) -> None:
    kept.sql("ALTER BACKUP COLLECTION c SET (RETENTION = 'KEEP LAST 1 FULL')")
    take_chains(kept, clock, 4)
    assert len(backups(kept)) == 3
    assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(kept)}
    clock.sleep(2 * DAY)
    kept.sql("PRUNE c CONFIRM")
    assert files(repository, "objects") == needed(repository)


def test_leftovers_go_with_the_next_prunes(kept: Database, repository: Path, clock: ManualClock) -> None:
    take_chains(kept, clock, 1)
    digits, end = "ab" * 16, "01" * 16
    stray = [
        f"objects/ab/{digits}.parquet",
        f"objects/ab/{digits}-2.parquet.{end}",
        f"backups/20260101120000Z_full.json.{end}",
    ]
    others = [
        "objects/notes.txt",
        "objects/ab/abcd.parquet",
        f"objects/cd/{digits}.parquet",
        "backups/x.json",
    ]
    for name in (*stray, *others):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_bytes(b"PAR1")
    kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert all((repository / name).exists() for name in stray)
    clock.sleep(2 * DAY)
    kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert not any((repository / name).exists() for name in stray)
    assert all((repository / name).exists() for name in others), "no writer of ours has written them"
    assert len(backups(kept)) == 3 and kept.verify("c") == []


def test_what_is_on_its_way_out_is_not_used_again(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    load(kept, 0, 3_000)
    kept.sql("BACKUP c")
    (first,) = backups(kept)
    kept.sql("UPSERT INTO t (k, v, n) VALUES (1, 'x', 1)")
    clock.sleep(5)
    kept.sql("BACKUP c")
    kept.sql(f"DROP BACKUP c '{backups(kept)[1]}' CONFIRM")
    listed = names_in_deletion(Repository(LocalFiles(repository), str(repository)))
    assert listed and not listed & needed(repository)
    clock.sleep(5)
    kept.sql("BACKUP c")
    assert not listed & needed(repository), "the same content has another name now"
    # A process that listed garbage and was suspended deletes it now, and does no harm.
    for name in listed:
        (repository / name).unlink(missing_ok=True)
    assert kept.verify("c") == []
    assert contents(kept)["/t"] != contents(kept, first)["/t"]


def test_nothing_is_removed_while_a_manifest_cannot_be_read(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    take_chains(kept, clock, 2)
    manifest = repository / "backups" / f"{backups(kept)[-1]}.json"
    text = manifest.read_bytes()
    manifest.write_bytes(text[:-5])
    before = files(repository, "objects")
    with pytest.raises(PreconditionFailed, match="nothing can be removed"):
        kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert files(repository, "objects") == before
    manifest.write_bytes(text)
    for _ in range(2):
        kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
        clock.sleep(2 * DAY)
    assert files(repository, "objects") == needed(repository)


def test_manifests_are_read_at_the_same_time(kept: Database, repository: Path, clock: ManualClock) -> None:
    """Each read waits for all others: one after the other, none would come to an end."""
    take_chains(kept, clock, 2)
    meeting = threading.Barrier(6)

    class Meeting(QuickFiles):
        def read(self, name: str) -> bytes:
            if name.startswith("backups/"):
                meeting.wait(120)
            return super().read(name)

    there = Repository(Meeting(repository), str(repository))
    assert sweep(there, clock.now(), DAY, lambda: None).removed == ()


class Unreachable(QuickFiles):
    is_away = False

    def remove(self, name: str) -> None:
        if self.is_away:
            raise Unavailable("it is far away")
        super().remove(name)


def test_a_repository_that_is_away_is_swept_later(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    there = Unreachable(repository)
    kept._runtime.files.opener = lambda root: there
    take_chains(kept, clock, 2)
    there.is_away = True
    with pytest.raises(Unavailable):
        kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert len(backups(kept)) == 3 and len(files(repository, "backups")) > 3
    there.is_away = False
    kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(kept)}
    assert all(record.stored for record in records(kept))


class Keeping(QuickFiles):
    """Refuses to delete backups for a while."""

    keeps = True

    def remove(self, name: str) -> None:
        if self.keeps and name.startswith("backups/") and name.endswith(".json"):
            raise Unavailable(f"{name} stays")
        super().remove(name)


def test_a_backup_says_that_others_did_not_leave_the_repository(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    there = Keeping(repository)
    kept._runtime.files.opener = lambda root: there
    kept.sql("ALTER BACKUP COLLECTION c SET (RETENTION = 'KEEP LAST 1 FULL')")
    take_chains(kept, clock, 1)
    first = backups(kept)
    told = kept.operation(kept.sql("BACKUP c").operation_id or "").result or {}
    assert told["removed"] == first and told["not_removed"] == f"backups/{first[-1]}.json stays"
    assert len(files(repository, "backups")) == 4
    there.keeps = False
    told = kept.operation(kept.sql("BACKUP c").operation_id or "").result or {}
    assert len(told["removed"]) == 1 and "not_removed" not in told
    assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(kept)}


@pytest.mark.parametrize("how", ["dropped", "swallowed"])
def test_what_has_not_left_a_repository_yet_is_in_nobodys_way(
    kept: Database, repository: Path, clock: ManualClock, how: str
) -> None:
    """Its manifest still exists when that of its parent has to be deleted."""
    there = Keeping(repository)
    kept._runtime.files.opener = lambda root: there
    take_chains(kept, clock, 1)
    last = backups(kept)[-1]
    if how == "dropped":
        with pytest.raises(Unavailable):
            kept.sql(f"DROP BACKUP c '{last}' CONFIRM")
    else:
        kept.sql("COMPACT c INCREMENTS")
    assert len(backups(kept)) == 2 and len(files(repository, "backups")) >= 3
    there.keeps = False
    kept.sql("BACKUP c; PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert len(backups(kept)) == 1
    assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(kept)}
    assert kept.verify("c") == []


def test_what_is_in_the_repository_stays_until_what_comes_after_it_is_there(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    there = Unreachable(repository)
    kept._runtime.files.opener = lambda root: there
    take_chains(kept, clock, 1)
    before = backups(kept)
    there.is_away = True
    with pytest.raises(Unavailable):
        kept.sql("BACKUP c")
    there.is_away = False
    reasons = {row[1]: row[2] for row in rows(kept, "PRUNE c KEEP LAST 1 FULL")}
    assert {reasons[name] for name in before} == {"last 1 full in the repository, minimum in the repository"}
    kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert files(repository, "backups") == {f"backups/{name}.json" for name in before}
    kept.sql("BACKUP c INCREMENTAL; PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert not set(before) & set(backups(kept)) and all(record.stored for record in records(kept))
    assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(kept)}


def test_another_writer_is_waited_for(kept: Database, repository: Path, clock: ManualClock) -> None:
    take_chains(kept, clock, 1)
    take(LocalFiles(repository), clock, "somebody else", "something", 600)
    with pytest.raises(UnderOperation, match="is being written to"):
        kept.sql("BACKUP c")
    with pytest.raises(UnderOperation):
        kept.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    clock.sleep(700)
    kept.sql("BACKUP c INCREMENTAL")
    assert all(record.stored for record in records(kept))


class Sleeper(QuickFiles):
    """A process that is suspended just before it writes a manifest; another one collects garbage."""

    def __init__(self, root: Path, clock: ManualClock) -> None:
        super().__init__(root)
        self.clock = clock
        self.sleeps = False

    def write_if_absent(self, name: str, data: bytes) -> bool:
        if self.sleeps and name.startswith("backups/"):
            self.sleeps = False
            self.clock.sleep(3 * DAY)
            other = Repository(LocalFiles(self.root), self.root)
            lease = take(other.plain, self.clock, "another", "sweep", 600)
            sweep(other, self.clock.now(), 0.0, lease.check)
            lease.release()
        return super().write_if_absent(name, data)


def test_a_backup_that_was_swept_while_its_process_slept_is_not_called_done(
    connect: Callable[..., Database], repository: Path, clock: ManualClock
) -> None:
    kept = connect(clock=clock, settings={"shard_seconds": 10 * DAY})  # It is not retried meanwhile.
    kept.sql(TABLE)
    kept.sql(collection(repository))
    there = Sleeper(repository, clock)
    kept._runtime.files.opener = lambda root: there
    take_chains(kept, clock, 1)
    load(kept, 500, 10)
    there.sleeps = True
    with pytest.raises(Conflict, match="was deleted from"):
        kept.sql("BACKUP c")
    assert records(kept)[-1].stored is None
    assert f"backups/{backups(kept)[-1]}.json" not in files(repository, "backups")
    kept.sql("BACKUP c INCREMENTAL")
    assert all(record.stored for record in records(kept))
    assert needed(repository) <= files(repository, "objects")
    assert kept.verify("c") == []


ALONE = Settings(
    workers=1,
    parts_together=1,
    history_seconds=0.0,
    grace_seconds=0.0,
    inline_rows=0,
    repository_grace_seconds=0.0,
    repository_key_env="REPOSITORY_KEY",
)
REMOVALS = {
    "prune": "PRUNE c KEEP LAST 1 FULL CONFIRM",
    "drop a chain": "DROP BACKUP c '{first}' CONFIRM",
    "drop the last": "DROP BACKUP c '{last}' CONFIRM",
}


def finish(db: Database) -> None:
    db.resume()


def undo(db: Database) -> None:
    for operation in db.operations():
        if not operation.is_over:
            db.cancel(operation.id)


@pytest.mark.parametrize("what", REMOVALS if EVERY else ("prune", "drop the last"))
def test_death_at_every_write_of_a_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    folder, repository = tmp_path / "w", tmp_path / "r"
    stride = 1 if EVERY else 23 if what == "prune" else 37
    monkeypatch.setenv("REPOSITORY_KEY", "ab" * 32)

    def living() -> Database:
        db = strandline.connect(folder, settings=ALONE)
        db._runtime.files.opener = QuickFiles
        hurry(db)
        return db

    with living() as db:
        db.sql(TABLE)
        load(db, 0, 40)
        encrypted = what != "drop a chain"
        db.sql(f"{collection(repository).removesuffix(')')}, ENCRYPTION = '{encrypted}')")
    for number, end in enumerate(itertools.cycle((finish, undo))):
        with living() as db:
            for again in range(2):
                changed = f"({number}, 'new {again}', 0), ({-number}, 'x', {again})"
                db.sql(f"UPSERT INTO t (k, v, n) VALUES {changed}; BACKUP c")
                db.sql(f"DELETE FROM t WHERE k = {-number}; BACKUP c INCREMENTAL")
            expected = {name: contents(db, name) for name in backups(db)}
        fate = Places(1 + number * stride)
        mortal = mortal_connect(folder, None, fate, ALONE)
        mortal._runtime.files.opener = lambda root, fate=fate: MortalFiles(root, fate)
        try:
            mortal.sql(REMOVALS[what].format(first=min(expected), last=max(expected)))
            mortal.close()
        except Death:
            bury(mortal, folder, None)
        with living() as db:
            end(db)
            assert all(o.is_over for o in db.operations())
            for name in backups(db):
                assert contents(db, name) == expected[name], fate.place
            assert db.verify("c") == []
            db.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
            assert 1 <= len(backups(db)) <= 2, fate.place
            assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(db)}, (
                fate.place
            )
            root = str(repository)
            there = Repository(db._runtime.files.at(root), root)
            named = {name for backup in backups(db) for name in there.manifest(backup).objects()}
            assert files(repository, "objects") == named, f"orphans after {fate.place}"
            assert db.verify("c") == []
            db.collect()
            assert leaks(db) == []
        if number % 4 == 0 or not fate.dead:
            shutil.rmtree(tmp_path / "other", ignore_errors=True)
            settings = {"repository_key_env": "REPOSITORY_KEY"}
            with open_at(tmp_path / "other", clock=ManualClock(), settings=settings) as other:
                other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}'")
                assert {n: contents(other, n) for n in backups(other)} == {
                    n: expected[n] for n in backups(other)
                }
        if not fate.dead:
            assert fate.trail.count("unlink") > 3
            return


def test_many_objects_are_deleted_together_while_the_lease_holds(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    class Batches(QuickFiles):
        def remove_all(self, names: Sequence[str]) -> None:
            done.append(len(names))
            super().remove_all(names)

    class OutOfTime(Exception):
        pass

    def check() -> None:
        done.append("check")
        if done.count("check") > lasts:
            raise OutOfTime

    kept.sql("BACKUP c")
    before = files(repository, "objects")
    for n in range(2 * TOGETHER + 50):
        name = f"{n % 256:02x}{n:030x}"
        (repository / "objects" / name[:2]).mkdir(parents=True, exist_ok=True)
        (repository / "objects" / name[:2] / f"{name}.parquet").write_bytes(b"x")
    there = Repository(Batches(repository), str(repository))
    done: list[object] = []
    lasts = 3
    with pytest.raises(OutOfTime):
        sweep(there, clock.now(), 0.0, check)
    assert done == ["check", "check", TOGETHER, "check", TOGETHER, "check"], "one for the list comes first"
    assert len(files(repository, "objects") - before) == 50
    lasts, done[:] = 10, []
    assert len(sweep(there, clock.now() + DAY, 0.0, check).removed) == 50
    assert files(repository, "objects") == before
