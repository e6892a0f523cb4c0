"""The engine: leases, refusals, failures, cancelling, waiting, retries, stages, metrics and logs."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sqlalchemy import Table, func, select

from strandline.catalog import bulk_paths, operations, paths, sqltables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.connection import Catalog
from strandline.catalog.metrics_buffer import Notice
from strandline.catalog.operations import CANCELLED, CANCELLING, DONE, FAILED, RUNNING
from strandline.catalog.transactions import Writer
from strandline.catalog.versions import VersionRegistry
from strandline.clock import SystemClock
from strandline.errors import (
    Cancelled,
    Corrupted,
    Internal,
    InvalidArgument,
    OperationNotFound,
    PreconditionFailed,
    TimedOut,
    Unavailable,
    UnderOperation,
)
from strandline.operations.engine import Engine
from strandline.operations.kind import AnyRun, Body, Handler, Kind, Part, PartPlan, Plan, Planning
from strandline.records import Newer, Nothing, Record, later
from tests.catalogs import (
    BY_V,
    LEASE_SECONDS,
    ManualClock,
    counted,
    create,
    drop,
    dump,
    kept,
    leaks,
    open_catalog,
    write,
)
from tests.engines import (
    STREAM,
    Explicit,
    Work,
    Worked,
    claim,
    copy_request,
    drop_of,
    engine_of,
    execute,
    kinds,
    listed,
    parts_of,
    resume,
    stream_on,
)

COPY = copy_request(("/orders", "/copies/orders"), stream=STREAM)
STREAM_REQUEST = stream_on("/orders/by_v/indexImplTable")


@pytest.fixture
def orders(catalog: Catalog) -> Catalog:
    create(catalog, "/orders", [BY_V])
    write(catalog, "/orders", 1)
    return catalog


def state(catalog: Catalog) -> dict[str, Any]:
    with catalog.read() as conn:
        return dump(conn)


# -- two operations on one table
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"), [("copy", "create stream"), ("create stream", "copy"), ("copy", "copy")]
)
@pytest.mark.parametrize("steps", [0, 3, 100])
def test_of_two_operations_on_a_table_one_runs_and_the_other_is_refused(
    orders: Catalog, first: str, second: str, steps: int
) -> None:
    requests = {"copy": COPY, "create stream": STREAM_REQUEST}
    engine, other = engine_of(orders), engine_of(orders)
    running = engine.start(first, requests[first])
    for _ in range(min(steps, 6)):
        if engine.get(running).parts_done < engine.get(running).parts:
            engine.step(running)
    before = state(orders)
    where = "copying" if first == "copy" else "altering"
    with pytest.raises(
        UnderOperation, match=rf"/orders\S* is busy: operation {running} is {where} it"
    ) as refused:
        other.start(second, requests[second])
    assert running in refused.value.hint
    assert state(orders) == before, "a refused operation leaves nothing"
    with pytest.raises(UnderOperation, match=running):
        drop(orders, "/orders")
    ended = engine.run(running)
    assert ended.state == DONE
    with orders.read() as conn:
        assert leaks(conn) == []
    follow_up = "drop streams" if second != "create stream" else "copy"
    request = drop_of(f"/orders/by_v/indexImplTable/{STREAM.name}") if follow_up == "drop streams" else None
    execute(other, follow_up, request or copy_request(("/orders", "/again/orders")))
    with orders.read() as conn:
        assert leaks(conn) == []


def test_operations_on_different_tables_do_not_meet(orders: Catalog) -> None:
    create(orders, "/users", [BY_V])
    engine = engine_of(orders)
    first = engine.start("copy", COPY)
    second = engine.start("create stream", stream_on("/users"))
    for operation_id in (second, first):
        assert engine.run(operation_id).state == DONE


def test_rows_are_written_while_a_table_is_copied(orders: Catalog) -> None:
    engine = engine_of(orders)
    operation_id = engine.start("copy", COPY)
    while engine.step(operation_id):
        write(orders, "/orders", 1)
    write(orders, "/orders", 1)
    assert engine.get(operation_id).state == DONE


# -- failure
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Seen(Record):
    seen: int | None = later()


@dataclass(frozen=True, kw_only=True)
class Told(Record):
    late: bool = later(False)
    proposed: bool = later(False)


class Trouble(Handler[AnyRun, Told]):
    """A handler that does and fails as a test tells it."""

    record = Told
    phases: ClassVar[tuple[str, ...]] = ("propose", "configure")

    def __init__(self, errors: Sequence[BaseException] = (), pause: float | None = None) -> None:
        self.errors = list(errors)
        self.pause = pause
        self.log: list[int] = []

    def propose(self, tx: Writer, run: AnyRun, part: Part[Told], made: Any) -> Told:
        table = paths.require(tx.conn, "/orders", "table")
        run.move_all(tx, [(part, table)])
        bulk_paths.add_one(
            tx,
            NewPath(table, f"made{part.id}", "stream", Nothing()),
            step=1,
            state="creating",
            operation_id=run.operation.id,
        )
        run.report(tx, Seen(seen=part.id))
        return replace(part.body, proposed=True)

    def store(self, tx: Writer, run: AnyRun, part: Part[Told], made: Any) -> Told:
        phases = {"propose": self.propose, "configure": self.configure}
        return phases[part.state](tx, run, part, made)

    def configure(self, tx: Writer, run: AnyRun, part: Part[Told], made: Any) -> Told:
        self.log.append(part.id)
        if self.errors and part.id == 2:
            raise self.errors.pop(0)
        return part.body

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return self.pause if attempt < 4 else None


class Tried(Kind[Nothing, Body, Seen]):
    name = "tried"
    request, body, progress = Nothing, Body, Seen

    def __init__(self, handler: Trouble, stages: Sequence[int] = (0, 0, 0)) -> None:
        self.handlers = {"trouble": handler}
        self.stages = stages

    def plan(self, tx: Writer, run: Planning[Nothing]) -> Plan[Body, Seen]:
        run.lock(tx, [paths.require(tx.conn, "/orders")], "altering")
        assert run.make_parents(tx, ["/new/deep/thing"], 1)["/new/deep/thing"].path == "/new/deep"
        run.pin(tx, 1)
        return Plan([PartPlan("trouble", Told(), stage) for stage in self.stages], Body(), Seen())


def tried(catalog: Catalog, handler: Trouble, together: int = 1, **options: Any) -> Engine:
    return engine_of(catalog, kinds=[*kinds(), Tried(handler, **options)], together=together)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Corrupted("bad bytes", "Look."), Corrupted),
        (ValueError("oops"), Internal),
        (PreconditionFailed("not now"), PreconditionFailed),
    ],
)
def test_one_part_that_fails_fails_the_operation_and_all_is_undone(
    orders: Catalog, error: Exception, raised: type[Exception]
) -> None:
    engine = tried(orders, Trouble([error]))
    engine.lease.ensure()
    before = state(orders)
    with pytest.raises(raised) as failure:
        execute(engine, "tried", Nothing())
    (operation,) = listed(engine)
    assert operation.state == FAILED
    assert operation.error is not None
    assert str(error.args[0]) in kept(operation.error)["message"]
    assert str(failure.value) == str(operation.failure())
    assert state(orders) == before


def test_an_error_at_the_end_fails_the_operation_as_well(orders: Catalog) -> None:
    class Late(Tried):
        def finish(self, tx: Writer, run: AnyRun) -> Record:
            raise Corrupted("the sums differ")

    engine = engine_of(orders, kinds=[Late(Trouble())])
    engine.lease.ensure()
    before = state(orders)
    with pytest.raises(Corrupted, match="the sums differ"):
        execute(engine, "tried", Nothing())
    assert state(orders) == before


def test_a_directory_that_others_use_by_now_stays_after_a_failure(orders: Catalog) -> None:
    engine = tried(orders, Trouble([Corrupted("bad")]))
    operation_id = engine.start("tried", Nothing())
    create(orders, "/new/table", ())
    engine.run(operation_id)
    with orders.read() as conn:
        assert paths.find(conn, "/new/table") is not None
        assert paths.find(conn, "/new/deep") is None
        assert leaks(conn) == []


def test_a_failing_part_is_tried_again_as_long_as_its_handler_hopes(
    orders: Catalog, clock: ManualClock
) -> None:
    handler = Trouble([Unavailable("busy"), Unavailable("busy")], pause=2.0)
    engine = tried(orders, handler)
    start = clock.now()
    ended = execute(engine, "tried", Nothing())
    assert (ended.state, handler.log.count(2), clock.now() - start) == (DONE, 3, 4.0)
    assert [p.attempt for p in parts_of(engine, ended.id)] == [0, 2, 0]
    assert counted(engine.metrics, "part_retries_total", kind="trouble") == 2


def test_a_part_that_fails_too_often_fails_the_operation(orders: Catalog) -> None:
    engine = tried(orders, Trouble([Unavailable(f"busy {n}") for n in range(9)], pause=1.0))
    ended = engine.run(engine.start("tried", Nothing()))
    assert ended.state == FAILED
    assert ended.error is not None
    assert kept(ended.error)["message"] == "busy 3"


def test_a_late_report_of_an_earlier_attempt_is_ignored(orders: Catalog) -> None:
    handler = Trouble()
    engine = tried(orders, handler)
    operation_id = engine.start("tried", Nothing())
    operation, (late, *_) = engine.transitions.runnable(operation_id)
    engine.transitions.advance(operation, late)
    assert parts_of(engine, operation_id)[0].state == "configure"
    assert engine.transitions.advance(operation, late), "the same report once more"
    assert parts_of(engine, operation_id)[0].state == "configure"
    assert handler.log == []


def test_what_a_late_report_brings_is_discarded(orders: Catalog) -> None:
    handler = Sharing()
    engine = tried(orders, handler)
    operation_id = engine.start("tried", Nothing())
    operation, (late, *_) = engine.transitions.runnable(operation_id)
    for discarded in ([], [1]):
        assert engine.transitions.advance(operation, late)
        assert (handler.made, handler.discarded) == ([1], discarded)


def test_what_was_made_stays_if_nobody_knows_whether_the_transaction_took_place(orders: Catalog) -> None:
    handler = Sharing()
    engine = tried(orders, handler)
    operation_id = engine.start("tried", Nothing())

    def fail() -> None:
        orders.after_commit = lambda: None
        raise Unavailable("no answer")

    orders.after_commit = fail
    assert engine.step(operation_id), "it goes on with the next one"
    assert (handler.made, handler.discarded) == ([1], [])
    assert [p.state for p in parts_of(engine, operation_id)] == ["done", "configure", "configure"]


def test_the_late_failure_of_an_earlier_attempt_is_ignored(orders: Catalog) -> None:
    engine = tried(orders, Trouble())
    operation_id = engine.start("tried", Nothing())
    operation, (late, *_) = engine.transitions.runnable(operation_id)
    engine.transitions.advance(operation, late)
    assert engine.transitions.part_failed(operation, late, Corrupted("long ago"))
    now = parts_of(engine, operation_id)[0]
    assert not engine.transitions.part_failed(operation, now, Corrupted("now")), "it has ended over it"
    assert engine.get(operation_id).state == FAILED


@pytest.mark.parametrize(("parts", "log"), [(2, [1, 2, 1, 2, 2]), (3, [1, 2, 1, 2, 3, 2])])
def test_parts_that_go_together_are_told_apart_when_one_of_them_fails(
    orders: Catalog, parts: int, log: list[int]
) -> None:
    handler = Trouble([Unavailable("busy"), Unavailable("busy")], pause=2.0)
    engine = tried(orders, handler, together=100, stages=[0] * parts)
    ended = execute(engine, "tried", Nothing())
    assert ended.state == DONE
    assert handler.log == log, "together, each alone, and the one that failed once more"
    assert [p.attempt for p in parts_of(engine, ended.id)] == [0, 1, 0][:parts]


def test_as_many_parts_go_together_as_may_and_no_more(orders: Catalog) -> None:
    kind = Worked(Work(), [PartPlan("quick", Nothing()) for _ in range(71)])
    engine = engine_of(orders, kinds=[kind], together=70)
    operation_id = engine.start("worked", Nothing())
    found = []
    while engine.step(operation_id):
        found.append(engine.get(operation_id).parts_done)
    assert found == [70, 71]


def test_of_parts_that_go_together_those_go_on_that_are_as_they_were_read(orders: Catalog) -> None:
    handler = Trouble()
    engine = tried(orders, handler, stages=(0, 0, 1))
    operation_id = engine.start("tried", Nothing())
    operation, (first, second) = engine.transitions.runnable(operation_id)
    early = parts_of(engine, operation_id)[2]
    engine.transitions.advance(operation, second)
    assert engine.transitions.advance(operation, second, early, first), "one is late, one is too early"
    assert [p.state for p in parts_of(engine, operation_id)] == ["configure", "configure", "propose"]
    assert counted(engine.metrics, "part_transitions_total", state="configure") == 2
    assert engine.run(operation_id).state == DONE


def test_parts_that_go_together_belong_to_who_holds_the_lease(orders: Catalog, clock: ManualClock) -> None:
    engine, other = engine_of(orders, together=100), engine_of(orders, together=100)
    operation_id = engine.start("copy", COPY)
    operation, parts = engine.transitions.runnable(operation_id)
    clock.sleep(LEASE_SECONDS + 1)
    assert other.take_over() == [operation_id]
    before = state(orders)
    assert not engine.transitions.advance(operation, *[p for p in parts if p.kind == "table"])
    assert state(orders) == before
    assert other.run(operation_id).state == DONE


def test_a_report_for_a_forgotten_operation_is_ignored(orders: Catalog) -> None:
    engine = tried(orders, Trouble())
    operation_id = engine.start("tried", Nothing())
    operation, (late, *_) = engine.transitions.runnable(operation_id)
    engine.run(operation_id)
    engine.forget(operation_id)
    before = state(orders)
    assert not engine.transitions.advance(operation, late)
    engine.finish(operation)
    engine.transitions.undo(operation, FAILED, Corrupted("long ago"))
    assert state(orders) == before


def test_an_operation_does_not_end_before_its_parts(orders: Catalog) -> None:
    engine = tried(orders, Trouble())
    operation_id = engine.start("tried", Nothing())
    engine.step(operation_id)
    engine.finish(engine.get(operation_id))
    assert engine.get(operation_id).state == RUNNING
    assert engine.run(operation_id).state == DONE


def test_a_catalog_that_cannot_be_reached_leaves_the_operation_to_be_resumed(
    orders: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(orders)
    operation_id = engine.start("copy", COPY)
    with monkeypatch.context() as broken:
        broken.setattr(
            orders.database, "open_write", lambda: (_ for _ in ()).throw(Unavailable("no catalog"))
        )
        with pytest.raises(Unavailable):
            engine.run(operation_id)
    assert engine.get(operation_id).state == RUNNING
    assert [o.id for o in resume(engine)] == [operation_id], (
        "nobody is at it, so this process may go on with it"
    )
    assert engine.get(operation_id).state == DONE


# -- stages, progress
# ------------------------------------------------------------------------------------------------------------


def test_a_stage_begins_when_the_one_before_it_is_done(orders: Catalog) -> None:
    handler = Trouble()
    engine = tried(orders, handler, stages=(2, 0, 1))
    assert execute(engine, "tried", Nothing()).state == DONE
    assert handler.log == [2, 3, 1]


def test_a_part_can_make_more_parts(orders: Catalog) -> None:
    class Growing(Trouble):
        def propose(self, tx: Writer, run: AnyRun, part: Part[Told], made: Any) -> Told:
            if part.id == 1:
                run.add_parts(tx, [PartPlan("trouble", Told(late=True), stage=5)])
            return part.body

    handler = Growing()
    engine = tried(orders, handler)
    ended = execute(engine, "tried", Nothing())
    assert (ended.parts, handler.log) == (4, [1, 2, 3, 4])


def test_progress_is_kept_with_the_transition(orders: Catalog) -> None:
    engine = tried(orders, Trouble())
    operation_id = engine.start("tried", Nothing())
    engine.step(operation_id)
    found = engine.get(operation_id)
    assert (kept(found.progress), found.parts_done, found.parts) == ({"seen": 1}, 0, 3)
    assert kept(engine.run(operation_id).progress) == {"seen": 3}


# -- leases
# ------------------------------------------------------------------------------------------------------------


def test_an_operation_of_a_live_process_is_left_alone(orders: Catalog) -> None:
    engine, other = engine_of(orders), engine_of(orders)
    operation_id = engine.start("copy", COPY)
    assert resume(other) == []
    assert not other.step(operation_id), "it is not ours"
    assert engine.run(operation_id).state == DONE


def test_nobody_works_for_what_belongs_to_others(orders: Catalog) -> None:
    handler = Sharing()
    engine, other = (tried(orders, handler) for _ in range(2))
    operation_id = engine.start("tried", Nothing())
    for workers in (1, 2):
        assert other._run(operation_id, workers, lambda: None).state == RUNNING
    assert handler.works == []
    assert [engine.step(operation_id) for _ in range(4)] == [True, True, True, False]
    assert engine.get(operation_id).state == DONE


def test_a_process_that_comes_back_after_its_lease_changes_nothing(
    orders: Catalog, clock: ManualClock
) -> None:
    engine, other = engine_of(orders), engine_of(orders)
    operation_id = engine.start("copy", COPY)
    operation, (part, *_) = engine.transitions.runnable(operation_id)
    clock.sleep(LEASE_SECONDS + 1)
    assert other.take_over() == [operation_id]
    before = state(orders)
    assert not engine.transitions.advance(operation, part)
    engine.finish(operation)
    engine.transitions.undo(operation, FAILED, Internal("too late"))
    assert not engine.step(operation_id)
    assert state(orders) == before
    assert other.run(operation_id).state == DONE
    assert counted(other.metrics, "operations_resumed_total", kind="copy") == 1


def test_a_process_that_comes_back_after_its_lease_writes_down_no_failure(
    orders: Catalog, clock: ManualClock
) -> None:
    engine, other = (tried(orders, Trouble(pause=1.0)) for _ in range(2))
    operation_id = engine.start("tried", Nothing())
    operation, (part, *_) = engine.transitions.runnable(operation_id)
    clock.sleep(LEASE_SECONDS + 1)
    assert other.take_over() == [operation_id]
    assert engine.transitions.part_failed(operation, part, Unavailable("busy")), "whoever has it now goes on"
    assert [p.attempt for p in parts_of(other, operation_id)] == [0, 0, 0]
    assert other.run(operation_id).state == DONE


def test_kinds_that_a_process_does_not_know_are_left_to_others(orders: Catalog, clock: ManualClock) -> None:
    operation_id = engine_of(orders).start("copy", COPY)
    clock.sleep(LEASE_SECONDS + 1)
    assert resume(engine_of(orders, kinds=[Tried(Trouble())])) == []
    assert [o.id for o in resume(engine_of(orders))] == [operation_id]


@pytest.mark.parametrize("table", [sqltables.operations, sqltables.parts])
def test_what_a_newer_version_began_is_left_to_it(orders: Catalog, clock: ManualClock, table: Table) -> None:
    newer = engine_of(orders).start("copy", COPY)
    with orders.write() as tx:
        body = func.replace(table.c.body, '"record_format": 1', '"record_format": 99')
        tx.conn.execute(table.update().values(body=body))
    create(orders, "/users", ())
    known = engine_of(orders).start("create stream", stream_on("/users"))
    clock.sleep(LEASE_SECONDS + 1)
    other = engine_of(orders)
    assert other.take_over() == [known]
    with pytest.raises(Newer, match="was written by a newer version"):
        other.take_over(newer)


def test_a_closing_process_leaves_its_operations_to_others(orders: Catalog, clock: ManualClock) -> None:
    engine = engine_of(orders)
    operation_id = engine.start("copy", COPY)
    engine.stopping.set()
    assert engine.run(operation_id).state == RUNNING
    with pytest.raises(Unavailable):
        engine.wait(operation_id)
    clock.sleep(LEASE_SECONDS + 1)
    assert engine_of(orders).wait(operation_id).state == DONE, "who waits for an orphan carries it out"


# -- looking, waiting, cancelling, forgetting
# ---------------------------------------------------------------------------------------


def test_a_running_operation_is_cancelled_before_its_next_transition(orders: Catalog) -> None:
    engine, other = engine_of(orders), engine_of(orders)
    engine.lease.ensure()
    before = state(orders)
    operation_id = engine.start("copy", COPY)
    for _ in range(4):
        engine.step(operation_id)
    assert other.cancel(operation_id).state == CANCELLING
    assert other.cancel(operation_id).state == CANCELLING, "asking twice is harmless"
    ended = engine.run(operation_id)
    assert ended.state == CANCELLED
    assert isinstance(ended.failure(), Cancelled)
    assert state(orders) == before
    with pytest.raises(PreconditionFailed, match="is cancelled already"):
        engine.cancel(operation_id)


def test_an_operation_that_nobody_runs_is_cancelled_at_once(orders: Catalog) -> None:
    engine = engine_of(orders)
    operation_id = engine.start("copy", COPY)
    assert engine.cancel(operation_id).state == CANCELLED


def test_cancelling_while_the_last_part_ends_undoes_everything(orders: Catalog) -> None:
    engine, other = engine_of(orders), engine_of(orders)
    engine.lease.ensure()
    before = state(orders)
    operation_id = engine.start("copy", COPY)
    while engine.get(operation_id).parts_done < 3:
        engine.step(operation_id)
    operation = engine.get(operation_id)
    other.cancel(operation_id)
    engine.finish(operation)
    assert engine.get(operation_id).state == CANCELLED
    assert state(orders) == before


def test_only_what_has_ended_can_be_forgotten_and_only_once(orders: Catalog) -> None:
    engine = engine_of(orders)
    operation_id = engine.start("copy", COPY)
    with pytest.raises(PreconditionFailed, match="still running"):
        engine.forget(operation_id)
    engine.run(operation_id)
    engine.forget(operation_id)
    for call in (engine.forget, engine.get, engine.wait, engine.cancel):
        with pytest.raises(OperationNotFound, match=operation_id):
            call(operation_id)
    assert listed(engine) == []
    with orders.read() as conn:
        assert conn.execute(select(sqltables.parts)).all() == []


def test_operations_are_listed_in_the_order_they_came(orders: Catalog) -> None:
    engine = engine_of(orders)
    ids = [execute(engine, "copy", copy_request(("/orders", f"/c{n}"))).id for n in range(3)]
    assert [o.id for o in listed(engine)] == ids
    assert all(o.ended is not None and o.ended >= o.created for o in listed(engine))


def test_waiting_reports_progress_and_gives_up_in_time(orders: Catalog, clock: ManualClock) -> None:
    engine, other = engine_of(orders), engine_of(orders)
    operation_id = engine.start("copy", COPY)
    seen: list[int] = []

    def work(operation: operations.OperationRow) -> None:
        seen.append(operation.parts_done)
        engine.step(operation_id)

    assert other.wait(operation_id, on_progress=work).state == DONE
    assert seen == sorted(seen)
    assert seen[-1] == 3
    stuck = engine.start("copy", copy_request(("/orders", "/c")))
    with pytest.raises(TimedOut, match="did not end within 5 seconds"):
        other.wait(stuck, timeout=5)
    assert engine.run(stuck).state == DONE


def test_two_threads_that_run_one_operation_run_it_once(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path, clock=SystemClock())
    create(catalog, "/orders", [BY_V])
    engine = engine_of(catalog)
    operation_id = engine.start("copy", COPY)
    ended: list[str] = []
    threads = [
        threading.Thread(target=lambda: ended.append(engine.run(operation_id).state)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [DONE] * 4
    assert counted(engine.metrics, "operations_total", kind="copy", result=DONE) == 1


# -- several parts at once
# ----------------------------------------------------------------------------------------------------------


class Slow(Trouble):
    """Parts wait for each other at a barrier, so they only end if they run at the same time."""

    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def __init__(self, together: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(together)

    def work(self, run: AnyRun, part: Part[Told]) -> Any:
        self.barrier.wait(timeout=300)
        return part.id


def real_time(tmp_path: Path, kind: Kind) -> Engine:
    catalog = open_catalog(tmp_path)
    create(catalog, "/orders", [BY_V])
    return engine_of(catalog, kinds=[kind, *kinds()])


def test_parts_run_on_several_threads(tmp_path: Path) -> None:
    engine = real_time(tmp_path, Tried(Slow(3)))
    assert execute(engine, "tried", Nothing(), workers=3).state == DONE
    assert execute(engine, "copy", COPY, workers=3).state == DONE
    with engine.catalog.read() as conn:
        assert leaks(conn) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_that_hangs_is_given_up_and_tried_again(tmp_path: Path, workers: int) -> None:
    release = threading.Event()

    class Hanging(Trouble):
        phases: ClassVar[tuple[str, ...]] = ("configure",)

        def work(self, run: AnyRun, part: Part[Told]) -> Any:
            if part.id == 2 and part.row.attempt == 0:
                release.wait(300)

        def time_limit(self, run: AnyRun, part: Part) -> float | None:
            return 0.2 if part.id == 2 and part.row.attempt == 0 else None

    handler = Hanging(pause=0.0)
    engine = real_time(tmp_path, Tried(handler))
    try:
        ended = execute(engine, "tried", Nothing(), workers=workers)
        assert ended.state == DONE
        assert [p.attempt for p in parts_of(engine, ended.id)] == [0, 1, 0]
        (late,) = [t for t in threading.enumerate() if t.name == f"strandline-{ended.id}-2"]
    finally:
        release.set()
    late.join(300)
    assert sorted(handler.log) == [1, 2, 3], "the late report is ignored"


class Sharing(Trouble):
    """Up to three parts share their work.

    ``fails``: the shared work fails for these parts. ``breaks``: it fails for all parts.
    """

    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def __init__(self, fails: Sequence[int] = (), *, breaks: bool = False, pause: float | None = 0.0) -> None:
        super().__init__(pause=pause)
        self.fails, self.breaks = fails, breaks
        self.works: list[list[int]] = []
        self.made: list[Any] = []
        self.discarded: list[Any] = []

    def share(self, run: AnyRun, parts: Iterator[Part[Told]]) -> int:
        return min(3, sum(1 for _ in parts))

    def work(self, run: AnyRun, part: Part[Told]) -> Any:
        self.works.append([part.id])
        return part.id

    def work_all(self, run: AnyRun, parts: Sequence[Part[Told]]) -> list[Any]:
        self.works.append([part.id for part in parts])
        if self.breaks:
            raise Unavailable("no answer")
        return [Unavailable("busy") if part.id in self.fails else part.id for part in parts]

    def configure(self, tx: Writer, run: AnyRun, part: Part[Told], made: Any) -> Told:
        self.made.append(made)
        return super().configure(tx, run, part, made)

    def discard(self, made: Any) -> None:
        self.discarded.append(made)


def sharing(catalog: Catalog, handler: Sharing, parts: int = 5) -> Engine:
    return tried(catalog, handler, together=100, stages=[0] * parts)


def test_who_does_one_part_after_the_other_lets_none_share_its_work(orders: Catalog) -> None:
    handler = Sharing()
    execute(tried(orders, handler), "tried", Nothing())
    assert handler.works == [[1], [2], [3]]


def test_a_part_that_cannot_be_read_shares_no_work(orders: Catalog) -> None:
    engine = sharing(orders, Sharing(), parts=3)
    operation_id = engine.start("tried", Nothing())
    with orders.write() as tx:
        tx.conn.execute(sqltables.parts.update().where(sqltables.parts.c.id == 1).values(body="{"))
    assert engine.step(operation_id)
    assert [p.attempt for p in parts_of(engine, operation_id)] == [1, 0, 0]


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_share_their_work_and_each_has_what_was_made_for_it(tmp_path: Path, workers: int) -> None:
    handler = Sharing()
    catalog = open_catalog(tmp_path)
    create(catalog, "/orders", [BY_V])
    assert execute(sharing(catalog, handler), "tried", Nothing(), workers).state == DONE
    assert sorted(handler.works) == [[1, 2, 3], [4, 5]]
    assert sorted(handler.made) == sorted(handler.log) == [1, 2, 3, 4, 5]


def test_a_part_whose_share_of_the_work_fails_takes_no_other_with_it(orders: Catalog) -> None:
    handler = Sharing(fails=[2])
    engine = sharing(orders, handler, parts=4)
    ended = execute(engine, "tried", Nothing())
    assert handler.works == [[1, 2, 3], [2], [4]], "what has failed before goes alone, and first"
    assert [p.attempt for p in parts_of(engine, ended.id)] == [0, 1, 0, 0]
    assert sorted(handler.made) == [1, 2, 3, 4]


def test_parts_whose_work_fails_as_a_whole_are_tried_one_by_one(orders: Catalog) -> None:
    handler = Sharing(breaks=True)
    engine = sharing(orders, handler, parts=3)
    ended = execute(engine, "tried", Nothing())
    assert handler.works == [[1, 2, 3], [1], [2], [3]]
    assert [p.attempt for p in parts_of(engine, ended.id)] == [1, 1, 1]


def test_those_that_can_go_on_do_so_before_one_of_them_fails_for_good(orders: Catalog) -> None:
    handler = Sharing(fails=[2], pause=None)
    engine = sharing(orders, handler, parts=3)
    engine.lease.ensure()
    before = state(orders)
    with pytest.raises(Unavailable, match="busy"):
        execute(engine, "tried", Nothing())
    assert (handler.made, handler.discarded) == ([1, 3], [])
    assert state(orders) == before


def test_parts_that_share_their_work_share_their_transaction(orders: Catalog) -> None:
    class Counted(Sharing):
        def store_all(
            self, tx: Writer, run: AnyRun, parts: Sequence[Part[Told]], made: Sequence[Any]
        ) -> list[Told]:
            transactions.append(list(made))
            return super().store_all(tx, run, parts, made)

    transactions: list[list[Any]] = []
    execute(sharing(orders, Counted(fails=[2]), parts=5), "tried", Nothing())
    assert transactions == [[1, 3], [2], [4, 5]]


def test_of_parts_that_share_a_transaction_only_what_came_too_late_is_discarded(orders: Catalog) -> None:
    handler = Sharing()
    engine = sharing(orders, handler, parts=3)
    operation, found = engine.transitions.runnable(engine.start("tried", Nothing()))
    assert engine.transitions.advance(operation, found[1])
    assert engine.transitions.advance(operation, *found)
    assert (handler.made, handler.discarded) == ([2, 1, 3], [2])


class Numbered(Sharing):
    """Adds the number of the piece of work to each result."""

    def work(self, run: AnyRun, part: Part[Told]) -> Any:
        return super().work(run, part), len(self.works)

    def work_all(self, run: AnyRun, parts: Sequence[Part[Told]]) -> list[Any]:
        return [(each, len(self.works)) for each in super().work_all(run, parts)]


def test_a_transaction_that_fails_for_one_of_its_parts_is_made_again_for_each(orders: Catalog) -> None:
    handler = Numbered()
    handler.errors = [Unavailable("busy")]
    engine = sharing(orders, handler, parts=3)
    ended = execute(engine, "tried", Nothing())
    assert handler.discarded == [(1, 1), (2, 1), (3, 1)], "all that was made for it, and nothing else"
    assert handler.made[-3:] == [(1, 2), (2, 3), (3, 4)]
    assert [p.attempt for p in parts_of(engine, ended.id)] == [0, 0, 0], "nobody is to blame yet"


def test_what_was_made_for_many_stays_if_nobody_knows_whether_the_transaction_took_place(
    orders: Catalog,
) -> None:
    handler = Numbered()
    engine = sharing(orders, handler, parts=3)
    operation_id = engine.start("tried", Nothing())

    def fail() -> None:
        orders.after_commit = lambda: None
        raise Unavailable("no answer")

    orders.after_commit = fail
    assert engine.step(operation_id)
    assert handler.made == [(1, 1), (2, 1), (3, 1)]
    assert handler.discarded == [(1, 2), (2, 3), (3, 4)], "what the second look brought, and not the first"
    assert {p.state for p in parts_of(engine, operation_id)} == {"done"}


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_that_hang_together_are_tried_one_by_one(tmp_path: Path, workers: int) -> None:
    release = threading.Event()

    class Hanging(Sharing):
        def work_all(self, run: AnyRun, parts: Sequence[Part[Told]]) -> list[Any]:
            made = super().work_all(run, parts)
            release.wait(300)
            return [made[0], Unavailable("busy"), None]

        def time_limit(self, run: AnyRun, part: Part[Told]) -> float | None:
            return 0.2 if part.row.attempt == 0 else None

    handler = Hanging()
    catalog = open_catalog(tmp_path)
    create(catalog, "/orders", [BY_V])
    engine = engine_of(catalog, kinds=[Tried(handler)], together=100)
    try:
        ended = execute(engine, "tried", Nothing(), workers=workers)
        assert [p.attempt for p in parts_of(engine, ended.id)] == [1, 1, 1]
        (late,) = [t for t in threading.enumerate() if t.name == f"strandline-{ended.id}-1"]
    finally:
        release.set()
    late.join(300)
    assert sorted(handler.made) == [1, 2, 3], "the late report is ignored"
    assert handler.discarded == [1], "and what it brings is discarded, if it brings anything"


def test_a_failure_on_one_of_several_threads_undoes_everything(tmp_path: Path) -> None:
    engine = real_time(tmp_path, Tried(Trouble([Corrupted("bad bytes")])))
    engine.lease.ensure()
    before = state(engine.catalog)
    with pytest.raises(Corrupted):
        execute(engine, "tried", Nothing(), workers=3)
    assert state(engine.catalog) == before


def test_cancelling_reaches_parts_on_several_threads(tmp_path: Path) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    class Waiting(Trouble):
        def work(self, run: AnyRun, part: Part[Told]) -> Any:
            begun.set()
            assert cancelled.wait(300)

    engine = real_time(tmp_path, Tried(Waiting()))
    before = state(engine.catalog)
    operation_id = engine.start("tried", Nothing())
    runner = threading.Thread(target=engine.run, args=(operation_id, 2))
    runner.start()
    assert begun.wait(300)
    engine.cancel(operation_id)
    cancelled.set()
    runner.join(300)
    assert engine.get(operation_id).state == CANCELLED
    assert state(engine.catalog) == before


# -- what is counted and logged
# -----------------------------------------------------------------------------------------------------


def test_every_claim_publication_and_transition_is_counted_and_logged(
    orders: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_of(orders)
    orders.on_publication = engine.metrics.count_publication
    with caplog.at_level(logging.INFO, logger="strandline"):
        operation_id = execute(engine, "copy", COPY).id
    lines = [
        json.loads(r.getMessage().partition("{")[1] + r.getMessage().partition("{")[2])
        | {"event": r.__dict__["strandline"]["event"]}
        for r in caplog.records
    ]
    assert all(line["operation"] == operation_id for line in lines)
    claims = [line for line in lines if line["event"] == "claim"]
    assert [line["result"] for line in claims] == [
        "claimed",
        "claimed",
        "claimed",
        "joined",
        "joined",
        "joined",
        "joined",
    ]
    assert {line["version"] for line in claims} == {2}
    transitions = [(line["part"], line["state"]) for line in lines if line["event"] == "part"]
    assert transitions[:3] == [(1, "configure"), (1, "wait"), (1, "done")]
    assert len(transitions) == 7
    (publication,) = [line for line in lines if line["event"] == "publication"]
    assert publication["paths"]["/orders"] == publication["paths"]["/orders/by_v/indexImplTable"] == 2

    metrics = engine.metrics
    assert (
        counted(metrics, "claims_total", result="claimed"),
        counted(metrics, "claims_total", result="joined"),
    ) == (3, 4)
    assert (counted(metrics, "publications_total"), counted(metrics, "published_paths_total")) == (
        1,
        len(publication["paths"]),
    )
    assert counted(metrics, "part_transitions_total", state="done") == 3
    assert counted(metrics, "operations_total", kind="copy", result="done") == 1
    assert counted(metrics, "publication_delay_seconds_count") == 1
    assert counted(metrics, "schema_mismatches_total", result="failed") == 0


def test_a_claim_that_another_operation_holds_is_a_conflict(orders: Catalog) -> None:
    engine = tried(orders, Trouble())
    with orders.write() as tx:
        claim(tx, "somebody", 1, paths.require(tx.conn, "/orders"))
    with pytest.raises(
        UnderOperation, match="/orders is busy: operation somebody has claimed its next version"
    ):
        execute(engine, "tried", Nothing())
    assert counted(engine.metrics, "claims_total", result="conflict") == 1
    (operation,) = listed(engine)
    with orders.read() as conn:
        table = paths.require(conn, "/orders")
    assert orders.ledger.news().notices == [
        Notice(
            event="conflict",
            time=orders.clock.now(),
            path_id=table.id,
            other="somebody",
            operation_id=operation.id,
            part_id=1,
        )
    ]


def test_an_engine_uses_what_it_is_given(orders: Catalog) -> None:
    registry = VersionRegistry()
    engine = engine_of(orders, scheduler=Explicit((3, 1, 2)), registry=registry)
    assert engine.transitions.registry is registry
    operation_id = engine.start("copy", COPY)
    assert engine.step(operation_id)
    assert [p.state for p in parts_of(engine, operation_id)] == ["propose", "propose", "configure"]


def test_a_kind_that_nobody_knows_is_refused(orders: Catalog) -> None:
    with pytest.raises(InvalidArgument, match="does not know operations of kind 'miracle'"):
        engine_of(orders).start("miracle", Nothing())
