"""What people see of the parts of an operation: which are in progress, since when and by whom, what went wrong with
each try, and how long each stage took."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from strandline.catalog import shards, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import CANCELLED, CANCELLING, DONE, FAILED
from strandline.catalog.sessions import this_process
from strandline.catalog.shards import ShardInfo
from strandline.catalog.writer import Writer
from strandline.errors import Corrupted, TimedOut, Unavailable
from strandline.operations.engine import Engine
from strandline.operations.kind import AnyRun, Body, Handler, Kind, Part, PartPlan, Plan, Planning
from strandline.operations.transitions import LOOK_SECONDS, NOTED_SECONDS
from strandline.records import Nothing, Record
from strandline.work import current
from tests.world import LEASE_SECONDS, ManualClock, engine_of


class Work(Handler[AnyRun, Nothing]):
    """Its parts do on files what they are told to."""

    record = Nothing
    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def __init__(self, pauses: int = 2) -> None:
        self.errors: dict[int, list[Exception]] = {}
        self.hangs: set[int] = set()
        self.reached, self.let_go = threading.Event(), threading.Event()
        self.ended = threading.Event()
        """What it has begun elsewhere was ended."""
        self.pauses = pauses

    def work(self, run: AnyRun, part: Part[Nothing]) -> Any:
        if part.id in self.hangs and (present := current()):
            present.elsewhere(self.ended.set)
            self.reached.set()
            assert self.let_go.wait(60)
        if self.errors.get(part.id):
            raise self.errors[part.id].pop(0)

    def time_limit(self, run: AnyRun, part: Part[Nothing]) -> float | None:
        return 100.0

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return 5.0 if attempt <= self.pauses else None


class Quick(Handler[AnyRun, Nothing]):
    record = Nothing
    phases: ClassVar[tuple[str, ...]] = ("configure",)


class Worked(Kind[Nothing, Body, Nothing]):
    name = "worked"
    request, body, progress = Nothing, Body, Nothing

    def __init__(self, handler: Work, parts: list[PartPlan] | None = None) -> None:
        self.handlers = {"work": handler, "quick": Quick()}
        self.parts = parts or [
            PartPlan("work", Nothing(), 0, increment=0, path="/t", shard=0, bytes=100),
            PartPlan("work", Nothing(), 0, increment=0, path="/t/by_v", shard=0, bytes=20),
            PartPlan("quick", Nothing(), 1, increment=1, path="/t", shard=0, bytes=3),
        ]

    def plan(self, tx: Writer, run: Planning[Nothing]) -> Plan[Body, Nothing]:
        return Plan(self.parts, Body(), Nothing())

    def finish(self, tx: Writer, run: AnyRun) -> Record:
        return Nothing()


def shown(engine: Engine, operation_id: str, most: int | None = None) -> list[ShardInfo]:
    operation = engine.get(operation_id)
    with engine.catalog.read() as conn:
        return shards.shown_parts(conn, operation, most)


def states(engine: Engine, operation_id: str) -> list[str]:
    return [shard.state for shard in shown(engine, operation_id)]


@contextmanager
def running(engine: Engine, operation_id: str, workers: int) -> Iterator[None]:
    thread = threading.Thread(target=engine.run, args=(operation_id, workers))
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()


def until_state(engine: Engine, operation_id: str, number: int, state: str) -> None:
    for _ in range(2000):
        if shown(engine, operation_id)[number].state == state:
            return
        threading.Event().wait(0.01)
    raise AssertionError(states(engine, operation_id))


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
        assert handler.reached.wait(60)
        if workers == 1:
            assert states(engine, operation_id) == ["waiting"] * 3, "what is quick is not written down"
        clock.sleep(NOTED_SECONDS)
        until_state(engine, operation_id, 0, "in progress")
        first = shown(engine, operation_id)[0]
        assert (first.since, first.process, first.attempt) == (began, this_process(), 1)
        with catalog.read() as conn:
            slow = shards.slowest(conn, engine.get(operation_id))
        assert slow is not None and slow.id == 1
        clock.sleep(7)
        handler.let_go.set()
    assert states(engine, operation_id) == ["done"] * 3
    first = shown(engine, operation_id)[0]
    assert (first.since, first.seconds, first.process) == (began, 7 + NOTED_SECONDS, this_process())
    with catalog.read() as conn:
        assert shards.slowest(conn, engine.get(operation_id)) is None


@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_cancelled_is_interrupted_while_it_works(
    catalog: Catalog, clock: ManualClock, workers: int, noted: bool
) -> None:
    """By whoever cancels it: the one who waits for the work finds it in the catalog."""
    handler = Work()
    handler.hangs = {1}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    other = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    with running(engine, operation_id, workers):
        assert handler.reached.wait(60)
        if noted:
            clock.sleep(NOTED_SECONDS)
            until_state(engine, operation_id, 0, "in progress")
        assert other.cancel(operation_id).state == CANCELLING
        clock.sleep(LOOK_SECONDS)
    assert not handler.let_go.is_set(), "the work has not ended"
    assert engine.get(operation_id).state == CANCELLED
    assert handler.ended.wait(60), "what it has begun elsewhere goes on"
    handler.let_go.set()


def test_what_another_process_has_taken_over_is_interrupted(catalog: Catalog, clock: ManualClock) -> None:
    handler = Work()
    handler.hangs = {1}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    with running(engine, operation_id, 1):
        assert handler.reached.wait(60)
        other = engine_of(catalog, kinds=[Worked(Work())])
        with catalog.write() as tx:
            tx.conn.execute(sqltables.sessions.update().values(expires=0.0))
        assert other.take_over() == [operation_id]
        clock.sleep(LOOK_SECONDS)
    assert handler.ended.wait(60)
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
    handler = Work()
    handler.errors = {2: [Unavailable("the storage is away"), TimedOut("no answer")]}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    began = clock.now()
    assert engine.step(operation_id)
    assert engine.step(operation_id)
    failed = shown(engine, operation_id)[1]
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert engine.run(operation_id).state == DONE
    done = shown(engine, operation_id)[1]
    assert (done.state, done.attempt) == ("done", 3)
    assert [(e.code, e.message, e.time, e.process) for e in done.errors] == [
        ("UNAVAILABLE", "the storage is away", began, this_process()),
        ("TIMEOUT", "no answer", began + 5, this_process()),
    ]


def test_a_part_that_fails_for_good_is_given_up_and_so_are_those_that_waited(catalog: Catalog) -> None:
    handler = Work(pauses=1)
    handler.errors = {1: [Unavailable("away"), Corrupted("bad bytes")]}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    assert engine.run(operation_id).state == FAILED
    first, second, third = shown(engine, operation_id)
    assert [e.message for e in first.errors] == ["away", "bad bytes"]
    assert (first.state, first.attempt) == ("given up", 2)
    assert (second.state, second.errors, third.state) == ("given up", (), "given up")


def test_what_a_dead_process_was_at_is_waiting_again_for_who_takes_over(
    catalog: Catalog, clock: ManualClock
) -> None:
    engine, other = (engine_of(catalog, kinds=[Worked(Work())]) for _ in range(2))
    operation_id = engine.start("worked", Nothing())
    with catalog.write() as tx:
        shards.note_begun(tx, operation_id, [1, 2], clock.now(), "elsewhere:1")
    assert states(engine, operation_id) == ["in progress", "in progress", "waiting"]
    clock.sleep(LEASE_SECONDS + 1)
    assert other.take_over() == [operation_id]
    assert states(engine, operation_id) == ["waiting"] * 3
    assert shown(engine, operation_id)[0].process is None


def test_the_stages_say_how_long_they_took_how_many_bytes_and_how_many_retries(
    catalog: Catalog, clock: ManualClock
) -> None:
    handler = Work()
    handler.errors = {1: [Unavailable("away")], 2: [Unavailable("away")]}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    operation = engine.run(operation_id)
    with catalog.read() as conn:
        first, second = shards.stages(conn, operation)
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
        shards.note_begun(tx, operation_id, [180], clock.now(), "a:1")
        shards.note_begun(tx, operation_id, [190], clock.now() - 60, "a:1")
    first = shown(engine, operation_id, 5)
    assert [shard.id for shard in first] == [190, 180, 150, 100, 101]
    assert [shard.id for shard in shown(engine, operation_id)] == list(range(1, 201))


def test_only_what_takes_a_while_costs_a_statement(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction for each part that works on files, and none to say that it does."""
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
