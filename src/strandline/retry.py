"""Retries: how often to try again, and with which pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strandline.cancellation import check
from strandline.clock import Clock


def tries(
    clock: Clock,
    pause: Callable[[int], float],
    *,
    count: int | None = None,
    seconds: float | None = None,
) -> Iterator[int]:
    """Yield the numbers of the attempts, from 0 on, with a pause between them.

    On success the caller leaves the loop. The code after the loop handles the failure.

    Args:
        clock: measures the time and waits.
        pause: returns the seconds to wait after an attempt, given its number.
        count: maximum number of attempts. None: no limit.
        seconds: an attempt that ends after this time is the last one. None: no limit.
    """
    began = clock.now()
    number = 0
    while True:
        check()
        yield number
        number += 1
        if number == count or (seconds is not None and clock.now() - began >= seconds):
            return
        clock.sleep(pause(number - 1))
