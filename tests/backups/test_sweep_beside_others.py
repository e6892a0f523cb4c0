"""Garbage collection of a repository while other processes use it.

These are: a warehouse that has taken it over, a suspended process, a crashed one, and a request that was
carried out although it seemed to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline import Database
from strandline.backups.repository.lease import take
from strandline.backups.repository.repository import Repository
from strandline.backups.repository.repository_writer import sweep
from strandline.errors import Conflict, PreconditionFailed, Unavailable
from strandline.storage.files import LocalFiles
from tests.backups.reading import TABLE, backups, collection, contents, open_at, records
from tests.backups.test_repository import load
from tests.backups.test_repository_garbage import DAY, files, needed, take_chains
from tests.catalogs import ManualClock
from tests.quick_files import QuickFiles

PRUNE = "PRUNE c KEEP LAST 1 FULL CONFIRM"


@pytest.mark.slow
def test_who_has_lost_a_repository_removes_nothing_from_it(
    kept: Database, repository: Path, tmp_path: Path, clock: ManualClock
) -> None:
    take_chains(kept, clock, 2)
    stray = repository / "objects" / "ab" / f"{'ab' * 16}.parquet"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"x")
    with open_at(tmp_path / "other", clock=clock) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}' WITH (TAKE_OVER = 'true'); RESTORE c")
        other.sql("UPSERT INTO t (k) VALUES (77); BACKUP c INCREMENTAL")
        there, known = files(repository, ""), backups(kept)
        for statement in (PRUNE, f"DROP BACKUP c '{known[0]}' CONFIRM"):
            with pytest.raises(PreconditionFailed, match="belongs to the warehouse"):
                kept.sql(statement)
        assert backups(kept) == known, "what is refused is not half done"
        assert {name for name in there - files(repository, "") if not name.startswith("leases/")} == set()
        assert other.verify("c") == []
        # The new owner deletes what the other one could not.
        for _ in range(2):
            other.sql(PRUNE)
            clock.sleep(2 * DAY)
        other.sql(PRUNE)
        assert files(repository, "objects") == needed(repository)
        assert other.verify("c") == []


class Deaf(QuickFiles):
    """A repository whose responses are lost as soon as a manifest exists. Requests are carried out."""

    is_heard = True

    def write_if_absent(self, name: str, data: bytes) -> bool:
        made = super().write_if_absent(name, data)
        if name.startswith("backups/"):
            self.is_heard = False
        self._answer()
        return made

    def find(self, name: str) -> bytes | None:
        self._answer()
        return super().find(name)

    def _answer(self) -> None:
        if not self.is_heard:
            raise Unavailable("the line is dead")


def test_a_backup_that_was_not_known_to_be_there_leaves_it_when_it_is_dropped(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    take_chains(kept, clock, 1)
    there = Deaf(repository)
    kept._runtime.files._opened.clear()
    kept._runtime.files.opener = lambda root: there
    with pytest.raises(Unavailable):
        kept.sql("BACKUP c")
    last = records(kept)[-1]
    assert last.stored is None and f"backups/{last.name}.json" in files(repository, "backups")
    kept._runtime.files._opened.clear()
    kept._runtime.files.opener = QuickFiles
    clock.sleep(DAY)
    kept.sql(f"DROP BACKUP c '{last.name}' CONFIRM")
    assert files(repository, "backups") == {f"backups/{name}.json" for name in backups(kept)}
    clock.sleep(2 * DAY)
    kept.sql(PRUNE)
    assert files(repository, "objects") == needed(repository)
    assert kept.verify("c") == []


class Dozer(QuickFiles):
    """A process that is suspended between two parts.

    Its objects are uploaded, and it has not checked the owner yet.
    """

    def __init__(self, root: Path, clock: ManualClock) -> None:
        super().__init__(root)
        self.clock, self.sent, self.sleeps = clock, 0, False

    def write_if_absent(self, name: str, data: bytes) -> bool:
        self.sent += name.startswith("objects/")
        return super().write_if_absent(name, data)

    def names(self, folder: str = "") -> Iterator[str]:
        if self.sleeps and self.sent >= 2 and folder == "owners":
            self.sleeps = False
            self.clock.sleep(3 * DAY)
            other = Repository(LocalFiles(self.root), self.root)
            lease = take(other.plain, self.clock, "another", "sweep", 600)
            sweep(other, self.clock.now(), 0.0, lease.check)
            lease.release()
        return super().names(folder)


def test_what_was_swept_between_two_parts_is_not_listed(
    connect: Callable[..., Database], repository: Path, clock: ManualClock
) -> None:
    kept = connect(clock=clock, settings={"shard_seconds": 10 * DAY})  # It is not retried meanwhile.
    kept.sql(TABLE)
    kept.sql(collection(repository))
    take_chains(kept, clock, 1)
    there = Dozer(repository, clock)
    kept._runtime.files._opened.clear()
    kept._runtime.files.opener = lambda root: there
    load(kept, 500, 10)
    there.sleeps = True
    with pytest.raises(Conflict, match="was deleted from"):
        kept.sql("BACKUP c")
    assert not there.sleeps
    assert records(kept)[-1].stored is None
    kept.sql("BACKUP c INCREMENTAL")
    assert all(record.stored for record in records(kept))
    assert needed(repository) <= files(repository, "objects")
    assert kept.verify("c") == []


def test_a_damaged_list_of_trash_costs_nothing_but_time(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    take_chains(kept, clock, 2)
    kept.sql(PRUNE)
    (listed,) = (repository / "trash").iterdir()
    listed.write_bytes(listed.read_bytes()[:-9])
    expected = {name: contents(kept, name) for name in backups(kept)}
    for _ in range(2):
        assert files(repository, "objects") > needed(repository)
        kept.sql(PRUNE)
        clock.sleep(2 * DAY)
    kept.sql(PRUNE)
    assert files(repository, "objects") == needed(repository)
    assert {name: contents(kept, name) for name in backups(kept)} == expected


def test_what_a_process_left_that_died_while_it_wrote_a_text_goes(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    take_chains(kept, clock, 2)
    left = [f"{name}.{'0' * 32}" for name in ("trash/00000007.json", "owners/00000002.json")]
    mine = "owners/00000001.json.bak"
    (repository / "trash").mkdir()
    for name in (*left, mine):
        (repository / name).write_bytes(b"{")
    kept.sql(PRUNE)
    assert {*left, mine} <= files(repository, ""), "it may be about to become a text"
    clock.sleep(2 * DAY)
    kept.sql(PRUNE)
    assert not files(repository, "").intersection(left)
    assert mine in files(repository, ""), "nobody of ours made it"


class Slow(QuickFiles):
    """A repository that receives a backup (``coming``, objects first) while its manifests are read."""

    def __init__(self, root: Path, coming: dict[str, bytes]) -> None:
        super().__init__(root)
        self.coming = coming

    def read(self, name: str) -> bytes:
        while self.coming and name.startswith("backups/"):
            self.write(*self.coming.popitem())
        return super().read(name)


def test_a_backup_that_comes_beside_a_sweep_is_not_trash(
    kept: Database, repository: Path, clock: ManualClock
) -> None:
    take_chains(kept, clock, 1)
    before = files(repository, "objects")
    load(kept, 500, 10)
    kept.sql("BACKUP c")
    came = [f"backups/{backups(kept)[-1]}.json", *sorted(files(repository, "objects") - before)]
    coming = {name: (repository / name).read_bytes() for name in came}
    for name in came:
        (repository / name).unlink()
    there = Repository(Slow(repository, coming), str(repository))
    assert sweep(there, clock.now(), 0.0, lambda: None).removed == ()
    assert coming == {} and set(came) <= files(repository, "")
