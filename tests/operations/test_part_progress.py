"""Displayed progress of parts: since when and in which process they run, failures, times of stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.catalog import operations, part_progress, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import CANCELLED, CANCELLING, DONE, FAILED
from strandline.catalog.part_progress import ShardInfo
from strandline.catalog.sessions import this_process
from strandline.errors import Corrupted, TimedOut, Unavailable
from strandline.operations.kind import AnyRun, Part, PartPlan
from strandline.operations.transitions import LOOK_SECONDS, NOTED_SECONDS
from strandline.records import Nothing
from tests.catalogs import LEASE_SECONDS, ManualClock
from tests.engines import Work, Worked, engine_of, running, shown, states, until_state


@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_that_takes_a_while_is_in_progress_since_a_time_and_by_a_process(
    catalog: Catalog, clock: ManualClock, workers: int
) -> None:
    handler = Work()
    handler.hangs = {1}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    assert states(engine, operation_id) == ["waiting"] * 3
    began = clock.now()
    with running(engine, operation_id, workers):
        assert handler.reached.wait(300)
        if workers == 1:
            assert states(engine, operation_id) == ["waiting"] * 3, "what is quick is not written down"
        clock.sleep(NOTED_SECONDS)
        until_state(engine, operation_id, 0, "in progress")
        first = shown(engine, operation_id)[0]
        assert (first.since, first.process, first.attempt) == (began, this_process(), 1)
        with catalog.read() as conn:
            slow = part_progress.slowest(conn, engine.get(operation_id))
        assert slow is not None and slow.id == 1
        clock.sleep(7)
        handler.let_go.set()
    assert states(engine, operation_id) == ["done"] * 3
    first = shown(engine, operation_id)[0]
    assert (first.since, first.seconds, first.process) == (began, 7 + NOTED_SECONDS, this_process())
    with catalog.read() as conn:
        assert part_progress.slowest(conn, engine.get(operation_id)) is None


@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_cancelled_is_interrupted_while_it_works(
    catalog: Catalog, clock: ManualClock, workers: int, noted: bool
) -> None:
    """Another process cancels it: the thread that waits for the work sees that in the catalog."""
    handler = Work()
    handler.hangs = {1}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    other = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    with running(engine, operation_id, workers):
        assert handler.reached.wait(300)
        if noted:
            clock.sleep(NOTED_SECONDS)
            until_state(engine, operation_id, 0, "in progress")
        assert other.cancel(operation_id).state == CANCELLING
        clock.sleep(LOOK_SECONDS)
    assert not handler.let_go.is_set(), "the work has not ended"
    assert engine.get(operation_id).state == CANCELLED
    assert handler.ended.wait(300), "what it has begun elsewhere goes on"
    handler.let_go.set()


@pytest.mark.parametrize("seconds", [LOOK_SECONDS, NOTED_SECONDS])
def test_what_another_process_has_taken_over_is_interrupted(
    catalog: Catalog, clock: ManualClock, seconds: float
) -> None:
    handler = Work()
    handler.hangs = {1}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    with running(engine, operation_id, 1):
        assert handler.reached.wait(300)
        other = engine_of(catalog, kinds=[Worked(Work())])
        with catalog.write() as tx:
            tx.conn.execute(sqltables.sessions.update().values(expires=0.0))
        assert other.take_over() == [operation_id]
        clock.sleep(seconds)
    assert handler.ended.wait(300)
    assert shown(other, operation_id)[0].since is None, "who has lost it does not say that it is at it"
    assert other.run(operation_id).state == DONE
    handler.let_go.set()


def test_nobody_waits_for_another_try_of_what_is_cancelled(catalog: Catalog, clock: ManualClock) -> None:
    handler = Work()
    handler.errors = {1: [Unavailable("the storage is away")]}
    engine, other = (engine_of(catalog, kinds=[Worked(handler)]) for _ in range(2))
    operation_id = engine.start("worked", Nothing())
    began = clock.now()

    class Passing(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if other.get(operation_id).state != CANCELLING:
                other.cancel(operation_id)

    catalog.clock = Passing(began)
    assert engine.run(operation_id).state == CANCELLED
    assert catalog.clock.now() == began + LOOK_SECONDS


def test_each_try_that_failed_is_told_with_its_error(catalog: Catalog, clock: ManualClock) -> None:
    class Slow(Work):
        def work(self, run: AnyRun, part: Part[Nothing]) -> Any:
            clock.sleep(3)
            return super().work(run, part)

    handler = Slow()
    handler.errors = {2: [Unavailable("the storage is away"), TimedOut("no answer")]}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    began = clock.now() + 3
    assert engine.step(operation_id)
    assert engine.step(operation_id)
    failed = shown(engine, operation_id)[1]
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert engine.run(operation_id).state == DONE
    done = shown(engine, operation_id)[1]
    assert (done.state, done.attempt) == ("done", 3)
    assert [(e.code, e.message, e.time, e.seconds, e.process) for e in done.errors] == [
        ("UNAVAILABLE", "the storage is away", began, 3, this_process()),
        ("TIMEOUT", "no answer", began + 3 + 5, 3, this_process()),
    ]


def test_a_part_that_fails_for_good_is_given_up_and_so_are_those_that_waited(catalog: Catalog) -> None:
    handler = Work(pauses=1)
    handler.errors = {1: [Unavailable("away"), Corrupted("bad bytes")]}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    assert engine.run(operation_id).state == FAILED
    first, second, third = shown(engine, operation_id)
    assert [(e.message, e.seconds) for e in first.errors] == [("away", 0.0), ("bad bytes", 0.0)]
    assert (first.state, first.attempt) == ("given up", 2)
    assert (second.state, second.errors, third.state) == ("given up", (), "given up")
    with catalog.read() as conn:
        stages = part_progress.stages(conn, engine.get(operation_id))
    assert [stage.retries for stage in stages] == [1, 0], "the last try is not followed by another one"


def test_what_a_dead_process_was_at_is_waiting_again_for_who_takes_over(
    catalog: Catalog, clock: ManualClock
) -> None:
    engine, other = (engine_of(catalog, kinds=[Worked(Work())]) for _ in range(2))
    operation_id = engine.start("worked", Nothing())
    assert engine.get(operation_id).process == this_process()
    with catalog.write() as tx:
        operations.save(tx, operation_id, process="elsewhere:1")
        part_progress.note_begun(tx, operation_id, [1, 2], clock.now(), "elsewhere:1")
    assert states(engine, operation_id) == ["in progress", "in progress", "waiting"]
    clock.sleep(LEASE_SECONDS + 1)
    assert other.take_over() == [operation_id]
    assert states(engine, operation_id) == ["waiting"] * 3
    assert shown(engine, operation_id)[0].process is None
    assert engine.get(operation_id).process == this_process()


def test_the_stages_say_how_long_they_took_how_many_bytes_and_how_many_retries(
    catalog: Catalog, clock: ManualClock
) -> None:
    handler = Work()
    handler.errors = {1: [Unavailable("away")], 2: [Unavailable("away")]}
    engine = engine_of(catalog, kinds=[Worked(handler)], together=100)
    operation_id = engine.start("worked", Nothing())
    operation = engine.run(operation_id)
    with catalog.read() as conn:
        first, second = part_progress.stages(conn, operation)
    assert (first.increment, first.parts, first.parts_done, first.bytes, first.retries) == (0, 2, 2, 120, 2)
    assert (second.increment, second.parts, second.bytes, second.retries) == (1, 1, 3, 0)
    assert first.seconds == clock.now() - operation.created > 0, "two pauses lie before it"


def test_of_many_parts_those_come_first_that_matter(catalog: Catalog, clock: ManualClock) -> None:
    kind = Worked(Work(), [PartPlan("work", Nothing(), path=f"/t{i}") for i in range(200)])
    engine = engine_of(catalog, kinds=[kind])
    operation_id = engine.start("worked", Nothing())
    with catalog.write() as tx:
        tx.conn.execute(sqltables.parts.update().where(sqltables.parts.c.id < 100).values(state=DONE))
        tx.conn.execute(sqltables.parts.update().where(sqltables.parts.c.id == 150).values(attempt=1))
        part_progress.note_begun(tx, operation_id, [180], clock.now(), "a:1")
        part_progress.note_begun(tx, operation_id, [190], clock.now() - 60, "a:1")
    first = shown(engine, operation_id, 5)
    assert [shard.id for shard in first] == [190, 180, 150, 100, 101]
    assert [shard.id for shard in shown(engine, operation_id)] == list(range(1, 201))


def test_only_what_takes_a_while_costs_a_statement(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction for each part that works on files, and none to record that it works."""
    written = 0
    write = catalog.write

    def counting() -> Any:
        nonlocal written
        written += 1
        return write()

    kind = Worked(Work(), [PartPlan("work", Nothing()) for _ in range(20)])
    engine = engine_of(catalog, kinds=[kind])
    operation_id = engine.start("worked", Nothing())
    monkeypatch.setattr(catalog, "write", counting)
    assert engine.run(operation_id, workers=2).state == DONE
    assert written == 20 + 1


def test_parts_of_before_are_shown_without_what_nobody_wrote_down(catalog: Catalog) -> None:
    engine = engine_of(catalog, kinds=[Worked(Work(), [PartPlan("work", Nothing())])])
    operation_id = engine.start("worked", Nothing())
    (part,) = shown(engine, operation_id)
    bare = ShardInfo(
        id=1,
        kind="work",
        stage=0,
        increment=None,
        path=None,
        shard=None,
        bytes=None,
        state="waiting",
        attempt=1,
        since=None,
        seconds=None,
        process=None,
        errors=(),
    )
    assert part == bare
    assert engine.run(operation_id).state == DONE
    assert replace(shown(engine, operation_id)[0], since=None, seconds=None, process=None) == replace(
        bare, state="done"
    )
