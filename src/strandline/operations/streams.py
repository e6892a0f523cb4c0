"""Streams: named cursors on a table's changes, each with a hold that keeps those changes from being
collected.

A stream is created in three phases: its description (a path that is not visible yet), its hold on the table
at the exact step, and its cursor. Creating or dropping one changes the description of its table, so the
table's version grows with it; on an implementation table the index and the table above it move, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from sqlalchemy import Connection

from strandline.catalog import board, holds, paths
from strandline.catalog.holds import Hold
from strandline.catalog.paths import Path, require_id
from strandline.catalog.streams import StreamBody
from strandline.catalog.versions import unit_above
from strandline.catalog.writer import Writer
from strandline.errors import AlreadyExists, Internal, InvalidArgument
from strandline.operations.kind import AnyRun, Body, Handler, Kind, Part, PartPlan, Plan, Planning, Run
from strandline.records import Nothing, Record, later
from strandline.storage.feed import STATEFUL_MODES


@dataclass(frozen=True)
class StreamSpec:
    """What a stream is asked to be. ``owner``: the id of the backup collection that it belongs to, None for a
    user's own."""

    name: str
    mode: str = "NEW_AND_OLD_IMAGES"
    format: str = "JSON"
    owner: int | None = None


@dataclass(frozen=True, kw_only=True)
class StreamRequest(Record):
    """``table``: the path of a table or an implementation table."""

    table: str
    stream: StreamSpec


@dataclass(frozen=True, kw_only=True)
class AtStep(Body):
    """``step``: where it was cut."""

    step: int


@dataclass(frozen=True, kw_only=True)
class Cut(Record):
    """The result of what was cut at a step."""

    step: int


class CreateStream(Kind[StreamRequest, AtStep, Nothing]):
    """Create one stream."""

    name = "create stream"
    request, body, progress = StreamRequest, AtStep, Nothing

    def __init__(self) -> None:
        self.handlers = {"stream": StreamPart(NewStream)}

    def plan(self, tx: Writer, run: Planning[StreamRequest]) -> Plan[AtStep, Nothing]:
        spec = run.request.stream
        table = paths.require(tx.conn, run.request.table, "table")
        step = board.current_step(tx.conn)
        run.lock(tx, [table, *unit_above(tx.conn, table)], "altering")
        check_free(tx.conn, table, spec.name)
        run.pin(tx, step)
        made = NewStream(table_id=table.id, step=step, stream=spec)
        return Plan([PartPlan("stream", made)], AtStep(step=step), Nothing())

    def finish(self, tx: Writer, run: Run[StreamRequest, AtStep, Nothing]) -> Cut:
        return Cut(step=run.body.step)


@dataclass(frozen=True, kw_only=True)
class NewStream(Record):
    """A part that creates a stream on the table ``table_id`` at ``step``, if there is one to be created.
    ``stream_id``: its path, from the first phase on."""

    table_id: int
    step: int
    stream: StreamSpec | None
    stream_id: int | None = later()


S = TypeVar("S", bound=NewStream)


class StreamPart(Handler[AnyRun, S]):
    """Creates a stream. Handlers of parts that do more build on it."""

    def __init__(self, record: type[S]) -> None:
        self.record = record

    def propose(self, tx: Writer, run: AnyRun, part: Part[S], made: Any) -> S:
        body = part.body
        if body.stream is None:
            return body
        table = require_id(tx.conn, body.table_id)
        stream = paths.add(
            tx,
            table,
            body.stream.name,
            "stream",
            body=StreamBody(
                mode=body.stream.mode,
                format=body.stream.format,
                owner=body.stream.owner,
                table_id=table.id,
                created_step=body.step,
                cursor=None,
            ),
            step=body.step,
            state="creating",
            operation_id=run.operation.id,
        )
        run.move(tx, part, table)
        return replace(body, stream_id=stream.id)

    def configure(self, tx: Writer, run: AnyRun, part: Part[S], made: Any) -> S:
        body = part.body
        if body.stream is not None:
            keeps_state = body.stream.mode in STATEFUL_MODES
            holds.add(tx, Hold(_created(body), body.table_id, body.step, keeps_state))
        return body

    def wait(self, tx: Writer, run: AnyRun, part: Part[S], made: Any) -> S:
        body = part.body
        if body.stream is not None:
            stream = require_id(tx.conn, _created(body))
            paths.set_body(tx, stream.id, replace(stream.record(StreamBody), cursor=body.step))
        return body


def _created(body: NewStream) -> int:
    if body.stream_id is None:
        raise Internal(f"the stream on table {body.table_id} was not created before it was set up")
    return body.stream_id


@dataclass(frozen=True, kw_only=True)
class StreamPaths(Record):
    """The paths of streams, to be dropped."""

    streams: tuple[str, ...]


class DropStreams(Kind[StreamPaths, Body, Nothing]):
    """Drop streams of any tables."""

    name = "drop streams"
    request, body, progress = StreamPaths, Body, Nothing

    def __init__(self) -> None:
        self.handlers = {"drop stream": DropStreamPart()}

    def plan(self, tx: Writer, run: Planning[StreamPaths]) -> Plan[Body, Nothing]:
        return Plan(plan_drops(tx, run, run.request.streams), Body(), Nothing())


@dataclass(frozen=True, kw_only=True)
class DroppedStream(Record):
    """A stream that goes, and the table it is on."""

    stream_id: int
    table_id: int


class DropStreamPart(Handler[AnyRun, DroppedStream]):
    """Claims the next version of the stream's table; the stream itself goes with the publication, for it is
    in state dropping."""

    record = DroppedStream
    phases: ClassVar[tuple[str, ...]] = ("propose",)

    def propose(self, tx: Writer, run: AnyRun, part: Part[DroppedStream], made: Any) -> DroppedStream:
        run.move(tx, part, require_id(tx.conn, part.body.table_id))
        return part.body


def plan_drops(tx: Writer, run: Planning[Any], streams: Sequence[str]) -> list[PartPlan]:
    """Lock streams, and the tables they are on, to be dropped with the operation, and return a part for
    each."""
    plans = []
    for path in dict.fromkeys(streams):
        stream = paths.require(tx.conn, path, "stream")
        table = require_id(tx.conn, stream.parent_id)
        run.lock(tx, [table, *unit_above(tx.conn, table)], "altering")
        run.lock(tx, [stream], "dropping")
        plans.append(PartPlan("drop stream", DroppedStream(stream_id=stream.id, table_id=table.id)))
    if not plans:
        raise InvalidArgument("no stream to drop was named", "Name at least one.")
    return plans


def check_free(conn: Connection, table: Path, name: str) -> None:
    found = paths.find(conn, f"{table.path}/{name}")
    if found is not None:
        raise AlreadyExists(f"{found.path} is a {found.type} already", "Choose another name.")
