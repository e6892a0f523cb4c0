"""An operation of the simplest kind; a test decides what the work of its parts does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strandline.cancellation import current
from strandline.catalog import part_progress
from strandline.catalog.connection import Catalog
from strandline.catalog.part_progress import ShardInfo
from strandline.catalog.transactions import Writer
from strandline.operations.engine import Engine
from strandline.operations.kind import AnyRun, Body, Handler, Kind, Part, PartPlan, Plan, Planning
from strandline.records import Nothing, Record
from tests.world import engine_of

on_sqlite = pytest.mark.parametrize("catalog", ["sqlite"], indirect=True)
"""For tests that do not depend on the database."""


class Work(Handler[AnyRun, Nothing]):
    """A handler whose slow work does what a test tells it."""

    record = Nothing

    def __init__(self, pauses: int = 2) -> None:
        self.errors: dict[int, list[Exception]] = {}
        self.hangs: set[int] = set()
        self.reached, self.let_go = threading.Event(), threading.Event()
        self.ended = threading.Event()
        """Set when the work that it started elsewhere is ended."""
        self.pauses = pauses

    def work(self, run: AnyRun, part: Part[Nothing]) -> Any:
        if part.id in self.hangs and (present := current()):
            present.elsewhere(self.ended.set)
            self.reached.set()
            assert self.let_go.wait(300)
        if self.errors.get(part.id):
            raise self.errors[part.id].pop(0)

    def time_limit(self, run: AnyRun, part: Part[Nothing]) -> float | None:
        return 100.0

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return 5.0 if attempt <= self.pauses else None


class Quick(Handler[AnyRun, Nothing]):
    record = Nothing


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
        return part_progress.list_parts(conn, operation, most)


def states(engine: Engine, operation_id: str) -> list[str]:
    return [shard.state for shard in shown(engine, operation_id)]


@contextmanager
def running(engine: Engine, operation_id: str, workers: int) -> Iterator[None]:
    thread = threading.Thread(target=engine.run, args=(operation_id, workers))
    thread.start()
    yield
    thread.join(300)
    assert not thread.is_alive()


@contextmanager
def hanging(catalog: Catalog, workers: int) -> Iterator[tuple[Engine, str, Work]]:
    """Start an operation whose first part hangs, until a test releases it or the operation is cancelled."""
    handler = Work()
    handler.hangs = {1}
    engine = engine_of(catalog, kinds=[Worked(handler)])
    operation_id = engine.start("worked", Nothing())
    with running(engine, operation_id, workers):
        assert handler.reached.wait(300)
        yield engine, operation_id, handler


def until_state(engine: Engine, operation_id: str, number: int, state: str) -> None:
    for _ in range(2000):
        if shown(engine, operation_id)[number].state == state:
            return
        threading.Event().wait(0.01)
    raise AssertionError(states(engine, operation_id))
