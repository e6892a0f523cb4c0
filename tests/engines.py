"""Engines of operations, and operations for them: copies, streams, and work that a test decides.

Also orders in which the parts of an operation can go on, and claims of single parts.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import insert

from strandline.cancellation import current
from strandline.catalog import operations, part_progress, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import OperationRow, PartRow
from strandline.catalog.part_progress import ShardInfo
from strandline.catalog.paths import Path
from strandline.catalog.sessions import HOST
from strandline.catalog.transactions import Writer, current_step
from strandline.catalog.versions import Claim, VersionRegistry, Wish
from strandline.operations.copy import CopyRequest, copy_handlers, plan_copy
from strandline.operations.engine import Engine
from strandline.operations.kind import AnyRun, Body, Handler, Kind, Part, PartPlan, Plan, Planning, Run
from strandline.operations.streams import (
    AtStep,
    CreateStream,
    DropStreams,
    StreamPaths,
    StreamRequest,
    StreamSpec,
    plan_drops,
    require_streams,
)
from strandline.operations.transitions import Transitions
from strandline.records import Nothing, Record
from tests.catalogs import LEASE_SECONDS

STREAM = StreamSpec(name="20260101120000Z_continuousBackupImpl")


@dataclass(frozen=True, kw_only=True)
class Copies(Record):
    """A ``CopyRequest`` that is kept. ``drop_streams``: paths of streams that the new ones replace."""

    tables: tuple[tuple[str, str], ...]
    stream: StreamSpec | None
    omit_indexes: bool
    drop_streams: tuple[str, ...]
    shard_bytes: int


@dataclass(frozen=True, kw_only=True)
class Copied(Record):
    step: int
    tables: int


class Copy(Kind[Copies, AtStep, Nothing]):
    """Its result names the step at which the copies were cut."""

    name = "copy"
    request, body, progress = Copies, AtStep, Nothing

    def __init__(self) -> None:
        self.handlers = copy_handlers()

    def plan(self, tx: Writer, run: Planning[Copies]) -> Plan[AtStep, Nothing]:
        asked = run.request
        request = CopyRequest(asked.tables, asked.shard_bytes, asked.stream, asked.omit_indexes)
        step = current_step(tx.conn)
        parts = plan_copy(tx, run, request, step)
        if asked.drop_streams:
            parts += plan_drops(tx, run, require_streams(tx.conn, asked.drop_streams))
        return Plan(parts, AtStep(step=step), Nothing())

    def finish(self, tx: Writer, run: Run[Copies, AtStep, Nothing]) -> Copied:
        return Copied(step=run.body.step, tables=len(run.request.tables))


def copy_request(
    *pairs: tuple[str, str],
    stream: StreamSpec | None = None,
    omit_indexes: bool = False,
    drop_streams: tuple[str, ...] = (),
    shard_bytes: int = 2**28,
) -> Copies:
    """The request to copy each first path of a pair to the second."""
    return Copies(
        tables=pairs,
        stream=stream,
        omit_indexes=omit_indexes,
        drop_streams=drop_streams,
        shard_bytes=shard_bytes,
    )


class Process:
    """A session without a thread that renews it: it lives until its lease runs out, as if its process hung or
    died."""

    def __init__(self, catalog: Catalog, session_id: str | None = None) -> None:
        self.id = session_id or uuid.uuid4().hex[:16]
        self._catalog = catalog
        self._known = False

    @property
    def is_held(self) -> bool:
        return self._known

    def ensure(self) -> str:
        if not self._known:
            with self._catalog.write() as tx:
                expires = self._catalog.clock.now() + LEASE_SECONDS
                tx.conn.execute(
                    insert(sqltables.sessions).values(id=self.id, host=HOST, pid=os.getpid(), expires=expires)
                )
            self._known = True
        return self.id


def kinds() -> list[Kind[Any, Any, Any]]:
    return [Copy(), CreateStream(), DropStreams()]


def engine_of(catalog: Catalog, **options: Any) -> Engine:
    of_engine = {name: options.pop(name) for name in ("workers", "new_id", "away_seconds") if name in options}
    lease = options.pop("lease", None) or Process(catalog)
    transitions = Transitions(catalog, lease, options.pop("kinds", None) or kinds(), **options)
    return Engine(transitions, **of_engine)


def execute(engine: Engine, kind: str, request: Record, workers: int = 1) -> OperationRow:
    """Start an operation, run it to its end and raise its error if it failed."""
    ended = engine.run(engine.start(kind, request), workers)
    failure = ended.failure()
    if failure is not None:
        raise failure
    return ended


def resume(engine: Engine) -> list[OperationRow]:
    """Carry what dead processes left to its end; the operations as they ended."""
    return [engine.run(operation_id) for operation_id in engine.take_over()]


def stream_on(table: str, stream: StreamSpec | str = STREAM) -> StreamRequest:
    """The request to create a stream."""
    return StreamRequest(table=table, stream=StreamSpec(name=stream) if isinstance(stream, str) else stream)


def drop_of(*streams: str) -> StreamPaths:
    """The request to drop streams."""
    return StreamPaths(streams=streams)


def listed(engine: Engine) -> list[OperationRow]:
    with engine.catalog.read() as conn:
        return operations.list_operations(conn)


def parts_of(engine: Engine, operation_id: str) -> list[PartRow]:
    with engine.catalog.read() as conn:
        return operations.parts(conn, operation_id)


def until_alone(catalog: Catalog, operation_id: str) -> None:
    """Wait until one part is all that is left of its stage: if time passes then, it does so for that one."""
    for _ in range(30_000):
        with catalog.read() as conn:
            if len(operations.open_parts(conn, operation_id, 2)) == 1:
                return
        time.sleep(0.01)
    raise AssertionError("there are others")


def claim(tx: Writer, operation_id: str, part_id: int, path: Path, target: int | None = None) -> Claim:
    return VersionRegistry().claim_all(tx, operation_id, [Wish(part_id, path, target)])[0]


def move(tx: Writer, operation_id: str, part_id: int, path: Path) -> list[Claim]:
    """Claim a path and all that must move with it."""
    return [made for _, made in VersionRegistry().move_all(tx, operation_id, [Wish(part_id, path)])]


class Shuffled:
    """Any runnable part at every transition, as the random numbers fall: a seed tells the whole
    interleaving."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_

    def choose(self, runnable: Sequence[PartRow]) -> PartRow:
        return self._random.choice(runnable)


class Explicit:
    """Each part to its end, in the order of the given ids."""

    def __init__(self, part_ids: Sequence[int]) -> None:
        self._rank = {part_id: rank for rank, part_id in enumerate(part_ids)}

    def choose(self, runnable: Sequence[PartRow]) -> PartRow:
        return min(runnable, key=lambda part: self._rank[part.id])


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
