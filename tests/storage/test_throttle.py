"""The throttle: bytes per second and concurrent files, for all threads that share it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline.clock import SystemClock
from strandline.model import Segment
from strandline.settings import Limits, Settings
from strandline.storage import arrow
from strandline.storage.digest import checksum_of
from strandline.storage.file_router import Destination, FileRouter
from strandline.storage.files import CHUNK
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_files import Copies
from strandline.storage.throttle import Throttle, Throttles
from tests.catalogs import ManualClock
from tests.quick_files import QuickFiles

RATE = 1_000_000.0
SIZE = 300_000


class Watched(QuickFiles):
    """Records how much was written when, and how many files were open at the same time."""

    def __init__(self, root: Path, clock: ManualClock) -> None:
        super().__init__(root)
        self.began, self._clock = clock.now(), clock
        self.moved: list[tuple[float, int]] = []
        self.open = self.most = 0
        self._lock = threading.Lock()

    def _create(self, path: str) -> int:
        with self._lock:
            self.open += 1
            self.most = max(self.most, self.open)
        return super()._create(path)

    def _append(self, descriptor: int, data: memoryview) -> int:
        done = super()._append(descriptor, data)
        with self._lock:
            self.moved.append((self._clock.now() - self.began, done))
        return done

    def _flush(self, descriptor: int) -> None:
        with self._lock:
            self.open -= 1

    def fastest(self) -> float:
        """Return the highest average rate since the beginning, in bytes per second."""
        sums, total = [], 0
        for seconds, size in self.moved:
            total += size
            sums.append(total / seconds if seconds else float("inf"))
        return max(sums)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def segments(files: QuickFiles, number: int, size: int = SIZE) -> list[Segment]:
    made = []
    for place in range(number):
        data = bytes([place]) * size
        files.write(f"data/{place}.parquet", data)
        made.append(
            Segment(
                id=0,
                role="base",
                fresh=True,
                stepped=False,
                after=0,
                upto=1,
                rows=1,
                bytes=size,
                file=f"data/{place}.parquet",
                checksum=checksum_of(data),
                min_key=(1,),
                max_key=(1,),
            )
        )
    return made


def send(tmp_path: Path, there: Watched, wanted: list[Segment], throttle: Throttle) -> None:
    files = FileRouter(QuickFiles(tmp_path / "w"), Settings(), {"/there": there})
    arrow.segment_files.send(files, wanted, Destination("/there"), throttle)


def copy(here: Watched, wanted: list[Segment], throttle: Throttle) -> None:
    (made,) = arrow.segment_files.copy(SegmentCache(here), [Copies(wanted, "data/copy")], throttle)
    assert isinstance(made, list) and len(made) == len(wanted)


@pytest.mark.parametrize("copies", [1, 2, 8])
def test_what_is_sent_keeps_to_its_rate(tmp_path: Path, clock: ManualClock, copies: int) -> None:
    wanted = segments(QuickFiles(tmp_path / "w"), 12)
    there = Watched(tmp_path / "there", clock)
    send(tmp_path, there, wanted, Throttle(Limits(bytes_per_second=RATE, copies=copies), clock))
    assert sum(size for _, size in there.moved) == 12 * SIZE
    assert there.fastest() <= RATE * (1 + 1e-9)
    assert there.most <= copies


@pytest.mark.parametrize("copies", [1, 3])
def test_what_is_copied_back_keeps_to_its_rate(tmp_path: Path, clock: ManualClock, copies: int) -> None:
    """Also for files of many pieces, and several parts of an operation that share the throttle."""
    here = Watched(tmp_path, clock)
    wanted = segments(here, 6, 3 * CHUNK)
    here.moved, here.most, here.began = [], 0, clock.now()
    throttle = Throttle(Limits(bytes_per_second=RATE, copies=copies), clock)
    with ThreadPoolExecutor(2) as parts:
        list(parts.map(lambda n: _part(here, wanted[3 * n : 3 * n + 3], throttle, n), range(2)))
    assert sum(size for _, size in here.moved) == 18 * CHUNK
    assert here.fastest() <= RATE * (1 + 1e-9)
    assert here.most <= copies


def _part(here: Watched, wanted: list[Segment], throttle: Throttle, number: int) -> None:
    arrow.segment_files.copy(SegmentCache(here), [Copies(wanted, f"data/part{number}")], throttle)


def test_without_a_rate_nobody_waits(tmp_path: Path, clock: ManualClock) -> None:
    wanted = segments(QuickFiles(tmp_path / "w"), 3)
    there = Watched(tmp_path / "there", clock)
    send(tmp_path, there, wanted, Throttle(Limits(), clock))
    assert clock.now() == there.began


def test_time_in_which_nothing_went_is_not_made_up_for(clock: ManualClock) -> None:
    throttle = Throttle(Limits(bytes_per_second=10), clock)
    throttle.pay(10)
    clock.sleep(1_000)
    before = clock.now()
    throttle.pay(100)
    assert clock.now() == before + 10


class Together(ManualClock):
    """A clock that lets two threads sleep at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2, timeout=300)
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        wakes = self._now + seconds
        self._both.wait()
        with self._lock:
            self._now = max(self._now, wakes)


def test_threads_wait_for_what_the_others_take() -> None:
    clock = Together()
    began = clock.now()
    throttle = Throttle(Limits(bytes_per_second=10), clock)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(throttle.pay, [10, 10]))
    assert clock.now() == began + 2


def test_tasks_share_the_rate_and_the_room(clock: ManualClock) -> None:
    throttle = Throttle(Limits(bytes_per_second=100, copies=4), clock)
    with throttle.share(10) as (tasks, share):
        assert (tasks, share.limits) == (4, Limits(bytes_per_second=25, copies=1))
        assert not _is_free(throttle, 0.2), "the tasks get the whole rate"
        travelled = pickle.loads(pickle.dumps(share))
        assert travelled.limits == share.limits and isinstance(travelled._clock, SystemClock)
    assert _is_free(throttle, 300)
    with throttle.share(10, each=2) as (tasks, share):
        assert (tasks, share.limits) == (2, Limits(bytes_per_second=50, copies=2))
    with throttle.share(3, each=2) as (tasks, share):
        assert tasks == 2, "none of them waits for another one"
    with throttle.share(1, each=2) as (tasks, share):
        assert (tasks, share.limits) == (1, Limits(bytes_per_second=100, copies=2))
    single = Throttle(Limits(copies=1), clock)
    with single.share(10, each=2) as (tasks, share):
        assert (tasks, share.limits) == (1, Limits(copies=1))
        assert not _is_free(single, 0.2)


def test_a_cluster_decides_how_many_tasks_copy_unless_a_limit_is_given(clock: ManualClock) -> None:
    assert Settings().limits == Limits(copies=8, spread=True)
    assert Settings(copies=5).limits == Limits(copies=5)
    throttle = Throttle(Settings().limits, clock)
    with throttle.share(1000, each=2) as (tasks, share):
        assert (tasks, share.limits) == (500, Limits(copies=2))
        assert _is_free(throttle, 300)
    with Throttle(Settings(copies=6).limits, clock).share(1000, each=2) as (tasks, share):
        assert (tasks, share.limits) == (3, Limits(copies=2))
    with Throttle(Settings(copy_bytes_per_second=80.0).limits, clock).share(1000, each=2) as (tasks, share):
        assert (tasks, share.limits) == (4, Limits(bytes_per_second=20.0, copies=2))


def _is_free(throttle: Throttle, seconds: float) -> bool:
    """Return True if another thread can start to copy a file within the time."""
    came = threading.Event()

    def come() -> None:
        with throttle.room():
            came.set()

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    return came.wait(seconds)


def test_an_operation_has_one_pace(clock: ManualClock) -> None:
    throttles = Throttles(clock)
    first = throttles.of("a", Limits(copies=3))
    assert throttles.of("a", Limits(copies=3)) is first
    assert throttles.of("b", Limits(copies=3)) is not first


class Failing(QuickFiles):
    """Files that cannot be read to their end."""

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        yield b"some"
        raise RuntimeError("it broke")


def test_what_fails_leaves_its_room(tmp_path: Path, clock: ManualClock) -> None:
    (wanted,) = segments(QuickFiles(tmp_path), 1)
    throttle = Throttle(Limits(copies=1), clock)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="it broke"):
            arrow.segment_files.copy(SegmentCache(Failing(tmp_path)), [Copies([wanted], "data/9")], throttle)
