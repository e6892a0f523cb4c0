"""Work on threads of its own, with a limit of time."""

from __future__ import annotations

import queue
import threading

import pytest

from strandline.cancellation import Interrupted, current
from strandline.clock import SystemClock
from strandline.errors import TimedOut
from strandline.retry import tries
from strandline.threads import within
from tests.catalogs import ManualClock


def test_work_whose_time_is_over_leaves_at_its_next_look_with_all_that_it_began() -> None:
    """Whatever lies between: it may itself wait for work on another thread, or be about to try again."""
    clock = ManualClock(0.0)
    begun, ended, left = threading.Event(), threading.Event(), queue.Queue[type[BaseException]]()

    def inner() -> None:
        present = current()
        assert present is not None
        present.elsewhere(ended.set)
        begun.set()
        assert ended.wait(60), "what it has begun goes on"
        try:
            for _ in tries(SystemClock(), lambda _: 0.01):
                pass
        except BaseException as error:
            left.put(type(error))
            raise

    def outer() -> None:
        within(clock, 1000.0, inner, name="inner", what="the inner one")

    def wait() -> None:
        if begun.is_set():
            clock.sleep(10.0)

    with pytest.raises(TimedOut, match="the outer one did not answer within 10 seconds"):
        within(clock, 10.0, outer, name="outer", what="the outer one", while_waiting=wait)
    assert left.get(timeout=60) is Interrupted


def test_what_work_still_brings_is_handed_over() -> None:
    clock = ManualClock(0.0)
    go, brought = threading.Event(), queue.Queue[str]()

    def work() -> str:
        assert go.wait(60)
        return "a file"

    with pytest.raises(TimedOut):
        within(
            clock,
            1.0,
            work,
            name="test",
            what="it",
            late=brought.put,
            while_waiting=lambda: clock.sleep(1.0),
        )
    go.set()
    assert brought.get(timeout=60) == "a file"
