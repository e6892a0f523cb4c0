"""The lease of a repository: one writer at a time, even if processes die, sleep or have wrong clocks.

No lease ever has to be removed by hand.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.backups.repository.lease import ALLOWANCE_SECONDS, LONGEST_SECONDS, Fenced, take
from strandline.clock import SystemClock
from strandline.errors import InvalidArgument, Unavailable, UnderOperation
from strandline.storage.files import Files, LocalFiles
from strandline.storage.location import files_at
from strandline.storage.objects import ObjectFiles
from tests.backups.owners import SECONDS, Owners
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import Fate, MortalFiles
from tests.effort import EVERY, FACTOR
from tests.quick_files import QuickFiles
from tests.s3 import S3, Line, unheard

OVER = SECONDS + ALLOWANCE_SECONDS


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "folder":
        return QuickFiles(tmp_path / "repository")
    s3: S3 = request.getfixturevalue("s3")
    return files_at(f"s3://{s3.new_bucket()}/repository", s3.settings())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_one_at_a_time(files: Files, clock: ManualClock) -> None:
    first = take(files, clock, "one", "BACKUP nightly", SECONDS)
    first.check()
    clock.sleep(10)
    with pytest.raises(UnderOperation) as caught:
        take(files, clock, "two", "BACKUP weekly", SECONDS)
    said = caught.value
    assert said.code == "UNDER_OPERATION"
    assert f"process {os.getpid()} on " in said.message
    assert (
        "for BACKUP nightly (one), since 1970-01-12 13:46:40Z and until 1970-01-12 13:47:40Z" in said.message
    )
    assert "ends by itself in 80 seconds at the latest; nothing has to be removed" in said.hint
    first.check()
    first.release()
    second = take(files, clock, "two", "BACKUP weekly", SECONDS)
    second.check()
    for act in (first.check, first.renew):
        with pytest.raises(Fenced, match=r"was taken by another: .* for BACKUP weekly \(two\)"):
            act()
    first.release()
    second.check()


def test_what_was_released_is_over_for_who_had_it(files: Files, clock: ManualClock) -> None:
    lease = take(files, clock, "one", "a test", SECONDS)
    lease.release()
    lease.release()
    for act in (lease.check, lease.renew):
        with pytest.raises(Fenced, match="was released at 1970-01-12 13:46:40Z"):
            act()
    assert len(list(files.names())) == 1


def test_it_lasts_as_long_as_it_is_renewed(files: Files, clock: ManualClock) -> None:
    lease = take(files, clock, "one", "a test", SECONDS)
    for _ in range(5):
        clock.sleep(SECONDS - 1)
        lease.check()
        lease.renew()
        with pytest.raises(UnderOperation):
            take(files, clock, "two", "a test", SECONDS)
    assert len(list(files.names("leases"))) == 1
    clock.sleep(SECONDS)
    with pytest.raises(Fenced, match="expired at 1970-01-12 13:52:35Z"):
        lease.check()


def test_a_dead_owners_lease_ends_by_itself_and_who_only_slept_finds_out(
    files: Files, clock: ManualClock
) -> None:
    asleep = take(files, clock, "one", "a test", SECONDS)
    clock.sleep(OVER - 1)
    with pytest.raises(UnderOperation, match="since") as caught:
        take(files, clock, "two", "a test", SECONDS)
    assert "in 1 seconds" in caught.value.hint
    clock.sleep(1)
    other = take(files, clock, "two", "a test", SECONDS)
    other.check()
    for act in (asleep.check, asleep.renew):
        with pytest.raises(Fenced, match="was taken by another"):
            act()
    asleep.release()
    other.check()
    assert len(list(files.names())) == 1


def test_it_is_kept_without_a_write_while_most_of_its_time_is_left(files: Files, clock: ManualClock) -> None:
    lease = take(files, clock, "one", "a test", SECONDS)
    first = list(files.names("leases"))
    lease.keep()
    assert list(files.names("leases")) == first
    clock.sleep(SECONDS / 2)
    lease.keep()
    assert list(files.names("leases")) != first
    clock.sleep(SECONDS - 1)
    lease.check()
    clock.sleep(SECONDS + ALLOWANCE_SECONDS)
    take(files, clock, "two", "a test", SECONDS)
    with pytest.raises(Fenced):
        lease.keep()


def test_one_that_nobody_took_can_be_renewed_although_it_is_over(files: Files, clock: ManualClock) -> None:
    lease = take(files, clock, "one", "a test", SECONDS)
    clock.sleep(10 * SECONDS)
    with pytest.raises(Fenced, match="expired at"):
        lease.check()
    lease.renew()
    lease.check()


def test_an_operation_that_is_resumed_has_its_lease_at_once(files: Files, clock: ManualClock) -> None:
    before = take(files, clock, "one", "a test", SECONDS)
    resumed = take(files, clock, "one", "a test", SECONDS)
    resumed.check()
    with pytest.raises(Fenced, match="was taken by another"):
        before.check()
    with pytest.raises(Fenced):
        before.renew()
    before.release()
    resumed.check()


def test_others_wait_for_who_may_still_think_that_it_has_the_lease(files: Files, clock: ManualClock) -> None:
    """One process of an operation is suspended in its check; another one takes over and finishes."""
    take(files, clock, "one", "a test", SECONDS)
    clock.sleep(SECONDS / 2)
    for _ in range(2):
        resumed = take(files, clock, "one", "a test", SECONDS)
        resumed.renew()
        resumed.release()
    with pytest.raises(UnderOperation, match="until 1970-01-12 13:47:40Z"):
        take(files, clock, "two", "a test", SECONDS)
    clock.sleep(SECONDS / 2 + ALLOWANCE_SECONDS - 1)
    with pytest.raises(UnderOperation):
        take(files, clock, "two", "a test", SECONDS)
    clock.sleep(1)
    take(files, clock, "two", "a test", SECONDS).check()


@pytest.mark.parametrize("skew", [-ALLOWANCE_SECONDS + 1, 0.0, ALLOWANCE_SECONDS - 1])
def test_clocks_may_differ(tmp_path: Path, clock: ManualClock, skew: float) -> None:
    files, theirs = QuickFiles(tmp_path), ManualClock(clock.now() + skew)
    lease = take(files, clock, "one", "a test", SECONDS)
    for _ in range(int(SECONDS) - 1):
        clock.sleep(1)
        theirs.sleep(1)
        lease.check()
        with pytest.raises(UnderOperation):
            take(files, theirs, "two", "a test", SECONDS)
    theirs.sleep(2 * ALLOWANCE_SECONDS + 1)
    take(files, theirs, "two", "a test", SECONDS)


def garbage() -> Iterator[bytes]:
    real = {
        "record_format": 1,
        "owner": "somebody",
        "token": "x",
        "host": "h",
        "pid": 1,
        "purpose": "p",
        "since": 1e6,
        "until": 1e6 + 50,
        "earlier_until": 0.0,
        "released": False,
    }
    text = json.dumps(real).encode()
    yield from (b"", b"\0" * 100, b"\xff\xfe", b"null", b"[]", b"{}", b"1", text[: len(text) // 2], text[:-1])
    for odd in (
        None,
        "tomorrow",
        float("nan"),
        float("inf"),
        1e300,
        1e6 + LONGEST_SECONDS + 10**6,
        True,
        [1],
    ):
        yield json.dumps({**real, "until": odd}).encode()
    yield json.dumps({name: value for name, value in real.items() if name != "until"}).encode()
    yield json.dumps({**real, "record_format": 7, "until": "never"}).encode()


@pytest.mark.parametrize("number", [1, 2, 5])
def test_what_cannot_be_read_does_not_block_anybody(files: Files, number: int) -> None:
    """Whether a text is readable does not depend on the storage, so on object stores only some are tried."""
    for data in itertools.islice(garbage(), 0, None, 1 if EVERY or isinstance(files, LocalFiles) else 6):
        files.remove_tree("leases")
        clock = ManualClock()
        if number > 1:
            take(files, clock, "somebody", "a test", SECONDS).release()
        _write(files, f"leases/{number}.json", data)
        lease = take(files, clock, "one", "a test", SECONDS)
        lease.check()
        lease.renew()
        lease.check()
        with pytest.raises(UnderOperation):
            take(files, clock, "two", "a test", SECONDS)


def _write(files: Files, name: str, data: bytes) -> None:
    files.remove(name)
    files.write(name, data)


def test_who_had_a_lease_that_became_unreadable_loses_it(files: Files, clock: ManualClock) -> None:
    lease = take(files, clock, "one", "a test", SECONDS)
    (name,) = files.names()
    _write(files, name, files.read(name)[:20])
    other = take(files, clock, "two", "a test", SECONDS)
    other.check()
    for act in (lease.check, lease.renew):
        with pytest.raises(Fenced):
            act()


def test_an_empty_object_in_the_way_is_passed(files: Files, clock: ManualClock) -> None:
    """An object store does not list empty objects."""
    lease = take(files, clock, "one", "a test", SECONDS)
    files.write("leases/2.json", b"")
    if isinstance(files, ObjectFiles):
        lease.renew()
        lease.check()
    else:
        with pytest.raises(Fenced, match="cannot be read"):
            lease.renew()
    again = take(files, clock, "one", "a test", SECONDS)
    again.check()
    again.renew()
    again.check()


def test_what_is_no_lease_does_not_count(files: Files, clock: ManualClock) -> None:
    """For example temporary files of crashed writers."""
    lease = take(files, clock, "one", "a test", SECONDS)
    for name in ("2.json.0123abcd", "3", "04.json", "x.json", "5.json/6.json", "-7.json", "٨.json"):
        files.write(f"leases/{name}", b"{}")
    lease.check()
    with pytest.raises(UnderOperation):
        take(files, clock, "two", "a test", SECONDS)
    lease.renew()
    lease.check()


def test_a_lease_of_a_later_version_counts_until_it_ends(files: Files, clock: ManualClock) -> None:
    take(files, clock, "one", "a test", SECONDS)
    (name,) = files.names()
    later = {**json.loads(files.read(name)), "record_format": 2, "colour": "blue"}
    _write(files, name, json.dumps(later).encode())
    with pytest.raises(UnderOperation, match="for a test"):
        take(files, clock, "two", "a test", SECONDS)
    clock.sleep(OVER)
    take(files, clock, "two", "a test", SECONDS).check()


@pytest.mark.parametrize("seconds", [0, -1, LONGEST_SECONDS + 1, float("nan"), float("inf")])
def test_a_lease_has_an_end_in_sight(tmp_path: Path, clock: ManualClock, seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="a lease cannot be taken for"):
        take(QuickFiles(tmp_path), clock, "one", "a test", seconds)


def test_many_at_once(files: Files, clock: ManualClock) -> None:
    got: list[object] = []
    start = threading.Barrier(6)

    def want(owner: str) -> None:
        start.wait()
        with suppress(UnderOperation):
            got.append(take(files, clock, owner, "a test", SECONDS))

    threads = [threading.Thread(target=want, args=(str(i),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


class Slow(QuickFiles):
    """Calls ``meanwhile`` before the next lease is written."""

    meanwhile: Callable[[], None] | None = None

    def write_if_absent(self, name: str, data: bytes) -> bool:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        return super().write_if_absent(name, data)


def test_who_sleeps_before_the_write_does_not_step_back_behind_others(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Other processes have used the number that it would write, and removed the file."""
    files, slow = QuickFiles(tmp_path), Slow(tmp_path)

    def meanwhile() -> None:
        lease = take(files, clock, "two", "a test", SECONDS)
        lease.renew()
        lease.renew()
        assert list(files.names()) == ["leases/3.json"]

    slow.meanwhile = meanwhile
    with pytest.raises(UnderOperation, match=r"\(two\)"):
        take(slow, clock, "one", "a test", SECONDS)


def test_who_sleeps_while_it_renews_does_not_step_back_behind_others(
    tmp_path: Path, clock: ManualClock
) -> None:
    files, slow = QuickFiles(tmp_path), Slow(tmp_path)
    lease = take(slow, clock, "one", "a test", SECONDS)
    others = []

    def meanwhile() -> None:
        clock.sleep(OVER)
        other = take(files, clock, "two", "a test", SECONDS)
        other.renew()
        others.append(other)

    slow.meanwhile = meanwhile
    with pytest.raises(Fenced, match=r"\(two\)"):
        lease.renew()
    others[0].check()


def test_a_bucket_that_keeps_what_it_has_does_not_matter(tmp_path: Path, clock: ManualClock) -> None:
    class Immutable(QuickFiles):
        def remove(self, name: str) -> None:
            if name.endswith(".json"):
                raise Unavailable("it is kept until 2036")
            super().remove(name)

    files = Immutable(tmp_path)
    for owner in ("one", "two", "three"):
        lease = take(files, clock, owner, "a test", SECONDS)
        lease.renew()
        lease.check()
        lease.release()
    assert len(list(files.names())) == 9


@pytest.mark.parametrize("answers", [1, 2])
def test_an_answer_that_is_not_heard_changes_nothing(s3: S3, clock: ManualClock, answers: int) -> None:
    line = Line(s3)
    try:
        hasty = line.s3.settings(storage_retries=3, storage_retry_seconds=20.0, storage_timeout_seconds=5.0)
        files = ObjectFiles(f"s3://{s3.new_bucket()}/w", hasty)
        line.fail(unheard(0), times=answers, of="PUT")
        lease = take(files, clock, "one", "a test", SECONDS)
        lease.check()
        line.fail(unheard(0), times=answers, of="PUT")
        lease.renew()
        lease.check()
        line.fail(unheard(0), of="PUT")
        with pytest.raises(Unavailable):
            lease.renew()
        line.heal()
        lease.check()  # It was written, and is ours although the response was lost.
        with pytest.raises(UnderOperation):
            take(files, clock, "two", "a test", SECONDS)
        lease.renew()
        lease.check()
    finally:
        line.close()


def test_a_death_at_any_write_blocks_others_for_a_while_and_its_own_operation_not_at_all(
    tmp_path: Path,
) -> None:
    for at in itertools.count(1):
        root, clock, fate = tmp_path / str(at), ManualClock(), Fate(at)
        with suppress(Death):
            mortal = MortalFiles(root, fate)
            lease = take(mortal, clock, "one", "a test", SECONDS)
            lease.renew()
            lease.release()
        copy = tmp_path / f"{at} again"
        if root.exists():
            shutil.copytree(root, copy)
        resumed = take(LocalFiles(copy), clock, "one", "a test", SECONDS)
        resumed.check()
        clock.sleep(OVER)
        files = LocalFiles(root)
        other = take(files, clock, "two", "a test", SECONDS)
        other.check()
        other.renew()
        assert len(list(files.names())) == 1, fate.place
        if not fate.dead:
            break
    assert at > 20


def test_it_is_renewed_half_way_while_work_goes_on(tmp_path: Path) -> None:
    files = QuickFiles(tmp_path)
    with take(files, SystemClock(), "one", "a test", 0.2).renew_in_background() as lease:
        first = list(files.names())
        while list(files.names()) in (first, []):
            time.sleep(0.01)
        with pytest.raises(UnderOperation):
            take(files, SystemClock(), "two", "a test", 0.2)
        assert [thread.name for thread in threading.enumerate()].count("strandline-lease") == 1
    assert "strandline-lease" not in [thread.name for thread in threading.enumerate()]
    lease.release()
    with pytest.raises(Fenced, match="was released"):
        lease.check()
    take(files, SystemClock(), "two", "a test", 0.2)


def test_what_was_lost_is_not_renewed(tmp_path: Path) -> None:
    files = QuickFiles(tmp_path)
    with take(files, SystemClock(), "one", "a test", 0.1).renew_in_background() as lease:
        other = take(files, SystemClock(), "one", "a test", 60.0)
        while "strandline-lease" in [thread.name for thread in threading.enumerate()]:
            time.sleep(0.01)
        with pytest.raises(Fenced, match="was taken by another"):
            lease.check()
    other.check()


_numbers = itertools.count()


@pytest.mark.slow
@settings(max_examples=60 * max(1, FACTOR), derandomize=not FACTOR)
@given(seed=st.integers(0, 2**32))
# Two processes of one operation: one is suspended in its check while the other finishes.
@example(seed=73625108)
def test_never_two(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """When ``check`` passes, no other process has the lease.

    In any order of steps, with any pauses, deaths and lost responses.
    """
    root = tmp_path_factory.getbasetemp() / f"owners-{next(_numbers)}"
    _never_two(Owners(QuickFiles(root), seed))
    shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3 * max(1, FACTOR)))
def test_never_two_in_a_bucket(s3: S3, seed: int) -> None:
    _never_two(Owners(ObjectFiles(f"s3://{s3.new_bucket()}/w", s3.settings()), seed))


def _never_two(owners: Owners) -> None:
    owners.run()
    assert owners.wrong == []
    # When all are gone, the next process gets the lease, and leaves only its own object.
    clock = ManualClock(owners.time + SECONDS + 2 * ALLOWANCE_SECONDS)
    last = take(owners.files, clock, "the last", "a test", SECONDS)
    last.check()
    last.renew()
    assert len(list(owners.files.names())) == 1


def test_clocks_that_differ_by_more_are_found_out(tmp_path: Path) -> None:
    """This proves that the test above would notice an error."""
    worlds = (
        Owners(QuickFiles(tmp_path / str(seed)), seed, spread=20 * ALLOWANCE_SECONDS) for seed in range(300)
    )
    passed = 0
    for world in worlds:
        world.run()
        passed += world.passed
        if world.wrong:
            assert passed > 10
            return
    pytest.fail("nobody noticed")
