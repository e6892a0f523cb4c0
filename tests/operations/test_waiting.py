"""Waiting for slow work, or for an operation: how often it is checked, and when waiting stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from strandline.catalog.connection import Catalog
from strandline.catalog.operations import CANCELLED, DONE, RUNNING, OperationRow, PartRow
from strandline.errors import TimedOut, Unavailable
from strandline.operations.engine import Engine
from strandline.operations.transitions import LOOK_SECONDS, NOTED_SECONDS, Transitions
from strandline.records import Nothing
from tests.catalogs import ManualClock
from tests.engines import Process, Work, Worked, engine_of, hanging, on_sqlite, running

pytestmark = on_sqlite


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(6000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to be so")


class Seen(Transitions):
    """Transitions that record what happens while they wait for slow work."""

    def __init__(self, catalog: Catalog, handler: Work) -> None:
        super().__init__(catalog, Process(catalog), [Worked(handler)])
        self.did: list[str] = []

    def _note_begun(self, parts: Sequence[PartRow], began: float) -> None:
        self.did.append("noted")
        super()._note_begun(parts, began)

    def ask_if_wanted(self, operation_id: str) -> None:
        self.did.append("asked")
        super().ask_if_wanted(operation_id)


class Watched(ManualClock):
    """A clock that counts how often it is read."""

    looks = 0

    def now(self) -> float:
        self.looks += 1
        return super().now()

    def pass_by(self, seconds: float) -> None:
        """Let time pass, and wait until waiting threads have read the clock."""
        self.sleep(seconds)
        seen = self.looks
        until(lambda: self.looks >= seen + 4)


def test_slow_work_is_written_down_once_and_asked_after_now_and_then(catalog: Catalog) -> None:
    catalog.clock = clock = Watched()
    handler = Work()
    handler.hangs = {1}
    seen = Seen(catalog, handler)
    engine = Engine(seen)
    operation_id = engine.start("worked", Nothing())
    with running(engine, operation_id, 1):
        assert handler.reached.wait(300)
        found = []
        for _ in range(8):
            clock.pass_by(LOOK_SECONDS / 2)
            found.append("".join(each[0] for each in seen.did))
        handler.let_go.set()
    assert 4 * LOOK_SECONDS / 2 == NOTED_SECONDS
    assert found == ["", "a", "a", "an", "an", "ana", "ana", "anaa"]
    assert engine.get(operation_id).state == DONE


@pytest.mark.parametrize("workers", [1, 2])
def test_who_cancels_in_the_same_process_is_heard_at_once(catalog: Catalog, workers: int) -> None:
    with hanging(catalog, workers) as (engine, operation_id, handler):
        engine.cancel(operation_id)
    assert engine.get(operation_id).state == CANCELLED, "no time has gone by"
    assert handler.ended.wait(300)
    assert (engine.refusals.cancelled, engine.transitions._plans) == (set(), {}), (
        "nothing of it stays in memory"
    )
    handler.let_go.set()


@pytest.mark.parametrize("workers", [1, 2])
def test_who_is_let_go_leaves_what_hangs_to_others(catalog: Catalog, workers: int) -> None:
    with hanging(catalog, workers) as (engine, operation_id, handler):
        engine.let_go()
    assert engine.get(operation_id).state == RUNNING
    assert handler.ended.wait(300)
    with pytest.raises(Unavailable, match="the database was closed"):
        engine.wait(operation_id)
    handler.let_go.set()
    other = engine_of(catalog, kinds=[Worked(Work())])
    catalog.clock.sleep(1000)
    assert other.wait(operation_id).state == DONE


@pytest.mark.parametrize("workers", [1, 2])
def test_who_carries_out_what_it_waits_for_is_told_of_each_step(catalog: Catalog, workers: int) -> None:
    engine = engine_of(catalog, kinds=[Worked(Work())])
    operation_id = engine.start("worked", Nothing())
    seen: list[OperationRow] = []
    assert engine.wait(operation_id, on_progress=seen.append, workers=workers).state == DONE
    assert [o.state for o in seen] == [RUNNING] * 4 + [DONE], "before it, after each part, and at the end"
    assert [o.parts_done for o in seen][::3] == [0, 3]


def test_who_stops_while_it_carries_out_what_it_waits_for_says_so(catalog: Catalog) -> None:
    engine = engine_of(catalog, kinds=[Worked(Work())])
    operation_id = engine.start("worked", Nothing())
    told = 0

    def stop(_: OperationRow) -> None:
        nonlocal told
        told += 1
        if told == 2:
            engine.stopping.set()

    with pytest.raises(Unavailable, match="the database was closed"):
        engine.wait(operation_id, on_progress=stop)
    assert engine.get(operation_id).state == RUNNING


def test_who_waits_in_the_same_process_waits_for_what_comes_after_the_end(catalog: Catalog) -> None:
    waited: list[str] = []

    class Followed(Worked):
        def after(self, engine: Engine, operation: OperationRow, result: Any) -> None:
            assert engine.get(operation.id).state == DONE
            with pytest.raises(TimedOut):
                engine.wait(operation.id, timeout=1)
            waited.append(operation.id)

    engine = engine_of(catalog, kinds=[Followed(Work())])
    operation_id = engine.start("worked", Nothing())
    assert engine.run(operation_id).state == DONE
    assert waited == [operation_id]
    assert engine.wait(operation_id).state == DONE


def test_what_a_thread_is_at_is_nobody_elses(catalog: Catalog) -> None:
    found: list[list[OperationRow]] = []

    class Looking(Work):
        def work(self, run: Any, part: Any) -> Any:
            found.append(engine.orphans())

    engine = engine_of(catalog, kinds=[Worked(Looking())])
    operation_id = engine.start("worked", Nothing())
    assert [o.id for o in engine.orphans()] == [operation_id]
    assert engine.run(operation_id).state == DONE
    assert found == [[], []]


def test_who_takes_over_one_leaves_the_others(catalog: Catalog) -> None:
    engine = engine_of(catalog, kinds=[Worked(Work())])
    first, second = (engine.start("worked", Nothing()) for _ in range(2))
    assert engine.take_over(second) == [second]
    assert engine.take_over() == [first, second]
