"""Background work: one job at a time, none in the way of the caller, and an end with the owner."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from strandline import background
from strandline.background import Background
from strandline.cancellation import check

SHARE = 0.999
"""Nearly no pauses."""


@pytest.fixture
def work() -> Iterator[Background]:
    made = Background("test", SHARE)
    yield made
    made.close()


def test_jobs_run_on_another_thread_and_one_at_a_time(work: Background) -> None:
    threads, done = list[int](), threading.Event()
    work.submit("a", lambda: threads.append(threading.get_ident()))
    work.submit("b", lambda: threads.append(threading.get_ident()))
    work.submit("c", done.set)
    assert done.wait(60)
    assert threading.get_ident() not in threads
    assert len(threads) == 2


def test_a_job_replaces_the_waiting_one_of_its_key(work: Background) -> None:
    done = list[str]()
    with work.paused():
        work.submit("first", lambda: done.append("first"))
        for name in ("old", "new"):
            work.submit("key", lambda name=name: done.append(name))
        work.submit("other", lambda: done.append("other"))
        assert done == []
    work.close()
    assert done == ["first", "new", "other"]


def test_a_job_may_submit_the_next(work: Background) -> None:
    done = threading.Event()
    work.submit("key", lambda: work.submit("key", done.set))
    assert done.wait(60)


def test_the_thread_survives_an_error_of_a_job(work: Background) -> None:
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("it failed")

    work.submit("bad", fail)
    work.submit("good", done.set)
    assert done.wait(60)


def test_closing_interrupts_a_long_job_and_refuses_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "CLOSE_SECONDS", 0.05)
    work, begun, left, late = Background("test", SHARE), threading.Event(), threading.Event(), list[int]()

    def job() -> None:
        begun.set()
        try:
            while True:
                check()
        finally:
            left.set()

    work.submit("long", job)
    assert begun.wait(60)
    work.submit("waiting", lambda: late.append(1))
    work.close()
    assert left.wait(60)
    work.submit("late", lambda: late.append(2))
    assert late == []


@pytest.mark.parametrize(("share", "found"), [(0, []), (1, ["here"])])
def test_without_a_thread(share: float, found: list[str]) -> None:
    done, here = list[str](), threading.get_ident()
    work = Background("test", share)
    work.submit("key", lambda: done.append("here" if threading.get_ident() == here else "elsewhere"))
    work.close()
    assert done == found
