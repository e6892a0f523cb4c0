"""Waiting for others: how often to try again, and with which pauses. One place for all who do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strandline.clock import Clock
from strandline.work import check


def tries(
    clock: Clock,
    pause: Callable[[int], float],
    *,
    count: int | None = None,
    seconds: float | None = None,
) -> Iterator[int]:
    """Yield the numbers of the tries, from 0 on, until ``count`` were made or ``seconds`` have passed; there
    is always a first one. ``pause`` says how long to wait after the try of a number. Whoever succeeds leaves
    the loop; what comes after the loop is for those who did not."""
    began = clock.now()
    number = 0
    while True:
        check()
        yield number
        number += 1
        if number == count or (seconds is not None and clock.now() - began >= seconds):
            return
        clock.sleep(pause(number - 1))
