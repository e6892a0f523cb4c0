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

    It stops when ``count`` attempts were made or ``seconds`` have passed; there is always a first attempt.
    ``pause`` returns the seconds to wait after the attempt with a number. On success the caller leaves the
    loop; the code after the loop handles the failure.
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
