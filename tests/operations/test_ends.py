"""The end of an operation: the hooks of its kind, followers, metrics, and released memory."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, select

from strandline.catalog import paths, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import DONE, FAILED, OperationRow
from strandline.catalog.transactions import Writer
from strandline.errors import Corrupted, InvalidArgument, TimedOut, Unavailable
from strandline.operations.engine import Engine
from strandline.operations.kind import AnyRun, pause_after
from strandline.records import Nothing, Record
from tests.catalogs import ManualClock, counted, create, kept
from tests.engines import Work, Worked, engine_of, kinds, listed, on_sqlite, stream_on

pytestmark = on_sqlite


@pytest.fixture(autouse=True)
def orders(catalog: Catalog) -> None:
    create(catalog, "/orders", ())


class Leading(Worked):
    """Changes the version of a table at its end, then lets a stream on it be created."""

    name = "leading"

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.told: list[tuple[str, Any]] = []

    def finish(self, tx: Writer, run: AnyRun) -> Record:
        run.move_all(tx, [(None, paths.require(tx.conn, "/orders"))])
        return super().finish(tx, run)

    def follow(self, conn: Connection, run: AnyRun) -> tuple[str, Record]:
        return "create stream", stream_on("/orders", "feed")

    def let_go(self, operation_id: str) -> None:
        self.told.append(("let go", operation_id))

    def after(self, engine: Engine, operation: OperationRow, result: Any) -> None:
        self.told.append(("after", (operation.id, result)))


@pytest.mark.parametrize("workers", [1, 2])
def test_what_begins_with_the_end_is_carried_out_as_well(catalog: Catalog, workers: int) -> None:
    kind = Leading(Work())
    engine = engine_of(catalog, kinds=[*kinds(), kind])
    operation_id = engine.start("leading", Nothing())
    ended = engine.run(operation_id, workers)
    first, second = listed(engine)
    assert (first.id, first.state, second.kind, second.state) == (operation_id, DONE, "create stream", DONE)
    assert engine.follower(ended) == kept(first.body)["followed_by"] == second.id
    assert engine.follower(second) is None
    assert kind.told == [("let go", operation_id), ("after", (operation_id, Nothing()))]
    with catalog.read() as conn:
        assert paths.require(conn, "/orders/feed").state == paths.READY
        assert paths.require(conn, "/orders").version == 3
        claimed = conn.execute(select(sqltables.claimed)).all()
    assert [(c.operation_id, c.part_id) for c in claimed] == [(operation_id, 0), (second.id, 1)]
    assert counted(engine.metrics, "claims_total", result="claimed") == 2
    assert engine.transitions._plans == {}


def test_what_fails_leads_to_nothing(catalog: Catalog) -> None:
    work = Work(pauses=0)
    work.errors = {1: [Corrupted("bad bytes")]}
    kind = Leading(work)
    engine = engine_of(catalog, kinds=[*kinds(), kind])
    operation_id = engine.start("leading", Nothing())
    assert engine.run(operation_id).state == FAILED
    assert [o.id for o in listed(engine)] == [operation_id]
    assert kind.told == [("let go", operation_id)]


def test_how_long_a_publication_takes_after_the_last_part(catalog: Catalog, clock: ManualClock) -> None:
    engine = engine_of(catalog, kinds=[Worked(Work())])
    operation_id = engine.start("worked", Nothing())
    clock.sleep(8)
    while engine.get(operation_id).parts_done < 3:
        engine.step(operation_id)
    clock.sleep(0.5)
    assert engine.run(operation_id).state == DONE
    assert counted(engine.metrics, "publication_delay_seconds_sum") == 0.5


@pytest.mark.parametrize(
    ("error", "pauses"),
    [
        (Unavailable("away"), [2.0, 3.0, None]),
        (TimedOut("no answer"), [2.0, 3.0, None]),
        (OSError("the disk"), [2.0, 3.0, None]),
        (Corrupted("bad bytes"), [None] * 3),
        (InvalidArgument("no such path"), [None] * 3),
    ],
)
def test_what_may_come_back_is_tried_again_and_what_is_refused_is_not(
    error: Exception, pauses: list[float | None]
) -> None:
    assert [pause_after(error, attempt, (2.0, 3.0)) for attempt in (1, 2, 3)] == pauses
