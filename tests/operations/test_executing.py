"""Operations as blocking calls: orphans run first, followers count, errors are raised, Ctrl-C undoes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, func

from strandline.cancellation import Interrupted
from strandline.catalog import sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import CANCELLED, CANCELLING, DONE, FAILED, RUNNING, OperationRow
from strandline.errors import Corrupted
from strandline.operations import callers
from strandline.operations.engine import Engine
from strandline.operations.kind import AnyRun
from strandline.operations.transitions import Transitions
from strandline.records import Nothing, Record
from tests.catalogs import LEASE_SECONDS, ManualClock
from tests.engines import Process, Work, Worked, engine_of, listed, on_sqlite

pytestmark = on_sqlite


class First(Worked):
    """An operation that starts another one when it ends."""

    name = "first"

    def follow(self, conn: Connection, run: AnyRun) -> tuple[str, Record]:
        return "worked", Nothing()


def states(catalog: Catalog) -> list[str]:
    return [operation.state for operation in listed(engine_of(catalog))]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_ends_with_all_that_began_at_its_end(catalog: Catalog, workers: int) -> None:
    engine = engine_of(catalog, kinds=[First(Work()), Worked(Work())], workers=workers)
    operation_id = engine.execute("first", Nothing())
    first, second = listed(engine)
    assert (first.id, first.state, second.state) == (operation_id, DONE, DONE)
    seen: list[OperationRow] = []
    assert engine.outcome(operation_id, on_progress=seen.append).id == operation_id
    assert [o.id for o in seen] == [first.id, second.id]


@pytest.mark.parametrize(("failing", "found"), [("first", [FAILED]), ("worked", [DONE, FAILED])])
def test_an_error_is_raised_whichever_of_them_it_ends(
    catalog: Catalog, failing: str, found: list[str]
) -> None:
    works = {"first": Work(pauses=0), "worked": Work(pauses=0)}
    works[failing].errors = {1: [Corrupted("bad bytes")]}
    engine = engine_of(catalog, kinds=[First(works["first"]), Worked(works["worked"])])
    with pytest.raises(Corrupted, match="bad bytes"):
        engine.execute("first", Nothing())
    assert states(catalog) == found


def test_who_is_interrupted_undoes_it(catalog: Catalog) -> None:
    class Leaving(Work):
        def work(self, run: Any, part: Any) -> Any:
            raise Interrupted

    engine = engine_of(catalog, kinds=[Worked(Leaving())])
    with pytest.raises(Interrupted):
        engine.execute("worked", Nothing())
    assert states(catalog) == [CANCELLED]


def test_who_is_interrupted_waits_for_another_thread_that_undoes_it(catalog: Catalog) -> None:
    is_undone, is_waited_for = threading.Event(), threading.Event()

    class Waited(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            is_waited_for.set()

    class Leaving(Work):
        def work(self, run: Any, part: Any) -> Any:
            raise Interrupted

    class Two(Engine):
        """Another thread undoes what it gives up, but not before the caller waits for it."""

        def _give_up(self, operation_id: str) -> None:
            threading.Thread(target=super()._give_up, args=(operation_id,)).start()
            assert is_undone.wait(300)
            super()._give_up(operation_id)

    class Watched(Transitions):
        def run_of(self, operation: OperationRow) -> AnyRun:
            if operation.state == CANCELLING and operation.id in engine._driven:
                is_undone.set()
                assert is_waited_for.wait(300)
            return super().run_of(operation)

    catalog.clock = Waited()
    engine = Two(Watched(catalog, Process(catalog), [Worked(Leaving())]))
    with pytest.raises(Interrupted):
        engine.execute("worked", Nothing())
    found = states(catalog)
    is_waited_for.set()
    assert found == [CANCELLED]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_torn_in_the_middle_is_undone_by_its_process(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """A second Ctrl-C leaves at once, and the process lives on."""

    class Torn(Work):
        def work(self, run: Any, part: Any) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setattr(callers, "AGAIN_SECONDS", 0.01)
    engine = engine_of(catalog, kinds=[Worked(Torn())], workers=workers)
    with pytest.raises(KeyboardInterrupt):
        engine.execute("worked", Nothing())
    until(lambda: states(catalog) == [CANCELLED])


class TornOnce(Work):
    """The first try is torn in the middle."""

    is_whole = False

    def work(self, run: Any, part: Any) -> Any:
        if not self.is_whole:
            self.is_whole = True
            raise KeyboardInterrupt
        return super().work(run, part)


def test_what_nobody_waits_for_goes_on_after_it_was_torn(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever had begun to wait for it and had taken it over."""
    monkeypatch.setattr(callers, "AGAIN_SECONDS", 0.01)
    engine = engine_of(catalog, kinds=[Worked(TornOnce())])
    operation_id = engine.start("worked", Nothing())
    with pytest.raises(KeyboardInterrupt):
        engine.outcome(operation_id)
    until(lambda: states(catalog) == [DONE])


def test_closing_carries_nothing_on(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "AGAIN_SECONDS", 1000.0)
    engine = engine_of(catalog, kinds=[Worked(TornOnce())])
    operation_id = engine.start("worked", Nothing())
    with pytest.raises(KeyboardInterrupt):
        engine.outcome(operation_id)
    engine.close()
    assert states(catalog) == [RUNNING]


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it does not come to that")


def test_who_is_interrupted_when_it_has_ended_leaves_it_so(catalog: Catalog) -> None:
    class Leaving(Worked):
        def after(self, *_: Any) -> None:
            raise Interrupted

    engine = engine_of(catalog, kinds=[Leaving(Work())])
    with pytest.raises(Interrupted):
        engine.execute("worked", Nothing())
    assert states(catalog) == [DONE]


def test_what_dead_processes_left_comes_first(catalog: Catalog, clock: ManualClock) -> None:
    left = engine_of(catalog, kinds=[Worked(Work())]).start("worked", Nothing())
    clock.sleep(LEASE_SECONDS + 1)
    engine = engine_of(catalog, kinds=[Worked(Work())])
    begun = engine.begin("worked", Nothing())
    assert engine.get(left).state == DONE
    assert not engine.get(begun).is_over
    assert engine.resume() == [begun], "nobody is at it"
    assert (engine.get(begun).state, engine.resume()) == (DONE, [])


def test_what_nobody_is_at_is_carried_on_and_nothing_else(catalog: Catalog, clock: ManualClock) -> None:
    kind = Worked(Work())
    lost = engine_of(catalog, kinds=[kind])
    newer, left = (lost.start("worked", Nothing()) for _ in range(2))
    at = sqltables.operations.c
    with catalog.write() as tx:
        body = func.replace(at.body, '"record_format": 1', '"record_format": 99')
        tx.conn.execute(sqltables.operations.update().where(at.id == newer).values(body=body))
    engine = engine_of(catalog, kinds=[kind])
    assert not engine.carry_on(left), "its process lives"
    clock.sleep(LEASE_SECONDS + 1)
    assert not engine.carry_on(newer), "another version began it"
    assert engine.carry_on(left)
    assert engine.get(left).state == DONE
    assert not engine.carry_on(left)
