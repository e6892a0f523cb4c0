"""The estimated end of an operation that moves bytes does not rise while the speed is constant."""

from __future__ import annotations

import pytest

from strandline.api.progress import OperationInfo, build_info
from strandline.catalog.operations import OperationRow
from strandline.operations.byte_progress import Transfer
from strandline.records import to_text
from tests.catalogs import ManualClock

BATCH, PARTS, SECONDS = 1_000, 24, 10.0
"""The bytes of a part, the number of parts, and the seconds in which each worker moves one part."""


def info(clock: ManualClock, began: float, progress: Transfer) -> OperationInfo:
    nothing = '{"format": 1}'
    operation = OperationRow(
        id="o",
        kind="send backup",
        state="running",
        request=nothing,
        body=nothing,
        progress=to_text(progress),
        session_id="s",
        created=began,
        parts_done=1,
        parts=100,
    )
    return build_info(operation, clock.now())


def walk(workers: int, slower: float = 1.0) -> list[tuple[float, float]]:
    """Return the estimated and the real remaining seconds, at several times of a transfer.

    Parts that run at the same time end one after the other, all at the same time of the clock. ``slower``:
    factor of the time for the second half.
    """
    clock = ManualClock()
    began = clock.now()
    progress = Transfer(bytes=0, bytes_total=BATCH * PARTS)
    rounds = PARTS // workers
    paces = [SECONDS * (slower if n >= rounds // 2 else 1.0) for n in range(rounds)]
    ends = began + sum(paces)
    seen: list[tuple[float, float]] = []
    for seconds in paces:
        for _ in range(4):
            clock.sleep(seconds / 4)
            left = info(clock, began, progress).seconds_left
            if left is not None:
                seen.append((left, ends - clock.now()))
        for _ in range(workers):
            progress = progress.report(BATCH, began=began, now=clock.now(), workers=workers)
            left = info(clock, began, progress).seconds_left
            assert left is not None
            seen.append((left, ends - clock.now()))
    return seen


@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_left_does_not_rise_at_a_constant_rate(workers: int) -> None:
    seen = [said for said, _ in walk(workers)]
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0.0


@pytest.mark.parametrize("workers", [1, 4])
def test_it_is_right_once_a_round_is_over(workers: int) -> None:
    for said, real in walk(workers)[workers:]:
        assert said == pytest.approx(real, abs=1e-6)


@pytest.mark.parametrize("workers", [1, 4])
def test_it_rises_when_it_becomes_slower(workers: int) -> None:
    seen = [said for said, _ in walk(workers, slower=5.0)]
    assert any(later > earlier for earlier, later in zip(seen, seen[1:], strict=False))


def test_nothing_is_guessed_before_the_first_bytes() -> None:
    clock = ManualClock()
    began = clock.now()
    clock.sleep(5)
    assert info(clock, began, Transfer(bytes=0, bytes_total=10)).seconds_left is None


def test_when_it_ends_is_told_by_what_has_come_and_by_what_may_be_nearly_there() -> None:
    moving = Transfer(bytes=0, bytes_total=100)
    assert moving.report(0, began=0.0, now=5.0, workers=1).ends is None
    assert moving.report(10, began=5.0, now=5.0, workers=1).ends is None
    first = moving.report(20, began=0.0, now=10.0, workers=1)
    assert (first.bytes, first.ends) == (20, 50.0)
    assert first.report(60, began=0.0, now=20.0, workers=1).ends == 25.0, "faster than it was"
    assert first.report(20, began=0.0, now=30.0, workers=1).ends == 75.0, "slower than it was"
    assert first.report(20, began=0.0, now=30.0, workers=2).ends == 50.0, "the other one may be nearly there"
    assert first.report(80, began=0.0, now=20.0, workers=1).ends == 20.0, "now"
