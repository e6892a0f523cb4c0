"""Trying again: as often and for as long as it was said, with pauses in between."""

from __future__ import annotations

import itertools

from strandline.retry import tries
from tests.catalogs import ManualClock


def test_so_many_tries_with_a_pause_after_each_but_the_last() -> None:
    clock = ManualClock(0.0)
    assert list(tries(clock, lambda number: 2.0**number, count=4)) == [0, 1, 2, 3]
    assert clock.now() == 1.0 + 2.0 + 4.0


def test_tries_for_so_long() -> None:
    clock = ManualClock(0.0)
    assert list(tries(clock, lambda _: 2.0, seconds=5.0)) == [0, 1, 2, 3]
    assert clock.now() == 6.0


def test_there_is_always_a_first_one() -> None:
    clock = ManualClock(0.0)
    assert list(tries(clock, lambda _: 1.0, seconds=0.0)) == [0]
    assert list(tries(clock, lambda _: 1.0, count=1)) == [0]
    assert clock.now() == 0.0


def test_what_took_long_itself_is_not_tried_again() -> None:
    clock = ManualClock(0.0)
    made = 0
    for _ in tries(clock, lambda _: 1.0, seconds=10.0):
        made += 1
        clock.sleep(11.0)
    assert made == 1


def test_without_an_end_there_is_none() -> None:
    clock = ManualClock(0.0)
    assert list(itertools.islice(tries(clock, lambda _: 1.0), 1000))[-1] == 999
