"""Streams: named cursors on a table's changes, with holds that protect these changes from collection.

A stream is created in three phases:

1. Create its path with its description. The path is not visible yet.
2. Add its hold on the table, at the step where the stream begins.
3. Check the hold, and store the step in the description.

Creating or dropping a stream changes the description of its table, so the version of the table grows. For a
stream on an implementation table, the versions of the index and of its table also grow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from sqlalchemy import Connection

from strandline import names
from strandline.catalog import bulk_paths, chains, paths, tables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import Path
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import Hold
from strandline.catalog.transactions import Writer, current_step
from strandline.catalog.versions import unit_above, units_above
from strandline.errors import AlreadyExists, Internal, InvalidArgument, PreconditionFailed
from strandline.operations.kind import AnyRun, Body, Handler, Kind, Part, PartPlan, Plan, Planning, Run
from strandline.records import Nothing, Record, later
from strandline.storage.feed import STATEFUL_MODES


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """The properties of a new stream.

    Attributes:
        owner: Id of the backup collection that the stream belongs to. None: it is a user's stream.
    """

    name: str
    mode: str = "NEW_AND_OLD_IMAGES"
    format: str = "JSON"
    owner: int | None = None


@dataclass(frozen=True, kw_only=True)
class StreamRequest(Record):
    """A request to create a stream.

    Attributes:
        table: Path of a table or an implementation table.
    """

    table: str
    stream: StreamSpec


@dataclass(frozen=True, kw_only=True)
class AtStep(Body):
    """Body of an operation. Its only field is the step at which the operation was planned."""

    step: int


@dataclass(frozen=True, kw_only=True)
class Cut(Record):
    """The result of creating streams: the step at which they begin."""

    step: int


class CreateStream(Kind[StreamRequest, AtStep, Nothing]):
    """Operation that creates one stream."""

    name = "create stream"
    request, body, progress = StreamRequest, AtStep, Nothing

    def __init__(self) -> None:
        self.handlers = {"stream": StreamPart(NewStream)}

    def plan(self, tx: Writer, run: Planning[StreamRequest]) -> Plan[AtStep, Nothing]:
        spec = run.request.stream
        table = paths.require(tx.conn, run.request.table, "table")
        step = current_step(tx.conn)
        run.lock(tx, [table, *unit_above(tx.conn, table)], "altering")
        check_free(tx.conn, [table], spec.name)
        run.pin(tx, step)
        made = NewStream(table_id=table.id, step=step, stream=spec)
        return Plan([PartPlan("stream", made, path=table.path)], AtStep(step=step), Nothing())

    def finish(self, tx: Writer, run: Run[StreamRequest, AtStep, Nothing]) -> Cut:
        return Cut(step=run.body.step)


@dataclass(frozen=True, kw_only=True)
class NewStream(Record):
    """A part that creates a stream.

    Attributes:
        table_id: Id of the table on which the stream is created.
        step: Step at which the stream begins.
        stream: Properties of the stream. None: the part creates no stream.
        stream_id: Id of the stream's path. None: the first phase is not done yet.
    """

    table_id: int
    step: int
    stream: StreamSpec | None
    stream_id: int | None = later()


S = TypeVar("S", bound=NewStream)


class StreamPart(Handler[AnyRun, S]):
    """Handler of parts that create a stream, in three phases. Base class of handlers that also do other work.

    Each phase has its own transaction, because parts that an earlier version of Strandline has stored may be
    in any phase.
    """

    phases: ClassVar[tuple[str, ...]] = ("propose", "configure", "wait")

    def __init__(self, record: type[S]) -> None:
        self.record = record

    def store_all(self, tx: Writer, run: AnyRun, parts: Sequence[Part[S]], made: Sequence[Any]) -> list[S]:
        phases = {"propose": self.propose, "configure": self.configure, "wait": self.begin}
        return phases[parts[0].state](tx, run, parts, made)

    def propose(self, tx: Writer, run: AnyRun, parts: Sequence[Part[S]], made: Sequence[Any]) -> list[S]:
        asked = [part for part in parts if part.body.stream is not None]
        tables = {p.id: p for p in paths.by_ids(tx.conn, [part.body.table_id for part in asked])}
        new = [
            _new_path(tables[part.body.table_id], part.body.stream, part.body.step)
            for part in asked
            if part.body.stream is not None
        ]
        step = parts[0].body.step  # all parts have the same step
        streams = bulk_paths.add(tx, new, step=step, state="creating", operation_id=run.operation.id)
        run.move_all(tx, [(part, tables[part.body.table_id]) for part in asked])
        created = {part.id: stream.id for part, stream in zip(asked, streams, strict=True)}
        return [replace(p.body, stream_id=created[p.id]) if p.id in created else p.body for p in parts]

    def configure(self, tx: Writer, run: AnyRun, parts: Sequence[Part[S]], made: Sequence[Any]) -> list[S]:
        bodies = [part.body for part in parts]
        tables.add_holds(
            tx,
            *(
                _hold(_create_streams(body), body.table_id, body.stream, body.step)
                for body in bodies
                if body.stream is not None
            ),
        )
        return bodies

    def begin(self, tx: Writer, run: AnyRun, parts: Sequence[Part[S]], made: Sequence[Any]) -> list[S]:
        steps = {_create_streams(part.body): part.body.step for part in parts if part.body.stream is not None}
        if tables.held_steps(tx.conn, steps) != steps:
            raise Internal("a new stream does not hold the changes after its step")
        begun = {
            stream.id: replace(stream.record(StreamBody), cursor=steps[stream.id])
            for stream in paths.by_ids(tx.conn, steps)
        }
        bulk_paths.set_bodies(tx, begun)
        return [part.body for part in parts]


def begin_streams(
    tx: Writer, run: AnyRun, part: Part[Any], tables: Sequence[Path], stream: StreamSpec, *, step: int
) -> None:
    """Create a stream on each table, in all three phases at once. The tables need no other work.

    The streams are invisible until the operation ends.
    """
    new = [(table, stream) for table in tables]
    add_streams(tx, new, step=step, state="creating", operation_id=run.operation.id)
    run.move_all(tx, [(part, table) for table in tables])


def add_streams(
    tx: Writer, new: Sequence[tuple[Path, StreamSpec]], *, step: int, state: str, operation_id: str
) -> None:
    """Add a stream to each table, with a hold from ``step`` on.

    The caller must claim the next versions of the tables.
    """
    wanted = [_new_path(table, stream, step, cursor=step) for table, stream in new]
    made = bulk_paths.add(tx, wanted, step=step, state=state, operation_id=operation_id)
    pairs = zip(made, new, strict=True)
    tables.add_holds(tx, *(_hold(path.id, table.id, stream, step) for path, (table, stream) in pairs))


def _new_path(table: Path, stream: StreamSpec, step: int, cursor: int | None = None) -> NewPath:
    described = StreamBody(
        mode=stream.mode,
        format=stream.format,
        owner=stream.owner,
        table_id=table.id,
        created_step=step,
        cursor=cursor,
    )
    return NewPath(table, stream.name, "stream", described, owner_id=stream.owner)


def _hold(stream_id: int, table_id: int, stream: StreamSpec, step: int) -> Hold:
    return Hold(stream_id, table_id, step, stream.mode in STATEFUL_MODES)


def _create_streams(body: NewStream) -> int:
    assert body.stream_id is not None  # set by the first phase
    return body.stream_id


def alter_stream(tx: Writer, stream: Path, *, mode: str | None = None) -> None:
    """Change the mode of a stream, for all changes after its position.

    A mode that shows the rows before a change needs the table's state at this position. PRECONDITION_FAILED
    if this state is no longer kept.

    Args:
        mode: The new mode. None: do not change the mode.
    """
    table = paths.require_id(tx.conn, stream.parent_id)
    for path in (stream, table):
        paths.check_ready(path)
    body, hold = stream.record(StreamBody), tables.find_hold(tx.conn, stream.id)
    if hold is None:
        raise Internal(f"the stream {stream.path} has no position")
    if mode in (None, body.mode):
        return
    needs_state = mode in STATEFUL_MODES
    kept_from = chains.state(tx.conn, table.id).kept_from
    if needs_state and not hold.keeps_state and hold.step < kept_from:
        raise PreconditionFailed(
            f"{mode} needs the state of {table.path} at step {hold.step}, the position of {stream.path}, "
            "which is no longer kept",
            f"Read the stream and commit step {kept_from} or a later one first, or add another changefeed.",
        )
    tables.keep_held_state(tx, stream.id, needs_state)
    paths.set_body(tx, stream.id, replace(body, mode=mode))
    paths.set_version(tx, stream.id, stream.version + 1)
    paths.publish(tx, paths.by_ids(tx.conn, [stream.id]))


@dataclass(frozen=True, kw_only=True)
class StreamPaths(Record):
    """The paths of streams to be dropped."""

    streams: tuple[str, ...]


class DropStreams(Kind[StreamPaths, Body, Nothing]):
    """Operation that drops streams of any tables."""

    name = "drop streams"
    request, body, progress = StreamPaths, Body, Nothing

    def __init__(self) -> None:
        self.handlers = {"drop stream": DropStreamPart()}

    def plan(self, tx: Writer, run: Planning[StreamPaths]) -> Plan[Body, Nothing]:
        streams = require_streams(tx.conn, run.request.streams)
        return Plan(plan_drops(tx, run, streams), Body(), Nothing())


@dataclass(frozen=True, kw_only=True)
class DroppedStream(Record):
    """A stream to be dropped, and its table."""

    stream_id: int
    table_id: int


class DropStreamPart(Handler[AnyRun, DroppedStream]):
    """Handler that claims the next versions of the tables whose streams are dropped.

    The streams are in state ``dropping``, so the publication removes them.
    """

    record = DroppedStream
    phases: ClassVar[tuple[str, ...]] = ("propose",)

    def store_all(
        self, tx: Writer, run: AnyRun, parts: Sequence[Part[DroppedStream]], made: Sequence[Any]
    ) -> list[DroppedStream]:
        tables = {p.id: p for p in paths.by_ids(tx.conn, [part.body.table_id for part in parts])}
        run.move_all(tx, [(part, tables[part.body.table_id]) for part in parts])
        return [part.body for part in parts]


def plan_drops(tx: Writer, run: Planning[Any], streams: Sequence[Path]) -> list[PartPlan]:
    """Lock streams that will be dropped, and their tables; return a part for each stream."""
    if not streams:
        raise InvalidArgument("no stream to drop was named", "Name at least one.")
    on = [stream.parent_id for stream in streams if stream.parent_id is not None]
    tables = paths.by_ids(tx.conn, on)
    above = [path for unit in units_above(tx.conn, tables).values() for path in unit]
    run.lock(tx, [*tables, *above], "altering")
    run.lock(tx, streams, "dropping")
    return [
        PartPlan("drop stream", DroppedStream(stream_id=s.id, table_id=table_id), path=s.path)
        for s, table_id in zip(streams, on, strict=True)
    ]


def droppable_streams(
    conn: Connection, run: Planning[Any], owner: Path, beside: Collection[int] = ()
) -> list[Path]:
    """Return the streams of an owner that the operation may drop.

    A stream is left out if another operation has locked it or its table. So a concurrent operation does not
    make this one fail.

    Args:
        beside: Ids of streams to leave out.
    """
    streams = bulk_paths.owned_paths(conn, owner.id, beside)
    tables = {p.id: p for p in paths.by_ids(conn, [s.parent_id for s in streams if s.parent_id is not None])}
    above = units_above(conn, tables.values())
    free = {
        table.id
        for table in tables.values()
        if all(_is_free(path, run.id) for path in (table, *above.get(table.id, ())))
    }
    return [stream for stream in streams if stream.parent_id in free and _is_free(stream, run.id)]


def _is_free(path: Path, operation_id: str) -> bool:
    return path.state == paths.READY or path.operation_id == operation_id


def require_streams(conn: Connection, wanted: Iterable[str]) -> list[Path]:
    """Return the streams at these paths, each once. Raise an error for the first path without a stream."""
    asked = list(dict.fromkeys(names.normalize(path) for path in wanted))
    found = bulk_paths.find(conn, asked)
    return [
        found[path] if path in found and found[path].type == "stream" else paths.require(conn, path, "stream")
        for path in asked
    ]


def check_free(conn: Connection, tables: Iterable[Path], name: str) -> None:
    """Refuse a stream name that is already in use on one of the tables."""
    for found in bulk_paths.find_below(conn, tables, name).values():
        raise AlreadyExists(
            f"{found.path} is {names.with_article(found.type)} already", "Choose another name."
        )
