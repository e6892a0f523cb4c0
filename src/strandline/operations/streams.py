"""Streams: named cursors on a table's changes, each with a hold that keeps those changes from being
collected.

A stream is created in three phases: its description (a path that is not visible yet), its hold on the table
at the exact step, and its cursor. Creating or dropping one changes the description of its table, so the
table's version grows with it; on an implementation table the index and the table above it move, too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from sqlalchemy import Connection

from strandline.catalog import board, holds, paths
from strandline.catalog.holds import Hold
from strandline.catalog.operations import Part
from strandline.catalog.paths import Path, require_id
from strandline.catalog.versions import unit_above
from strandline.errors import AlreadyExists, InvalidArgument
from strandline.operations.kind import Handler, Kind, PartPlan, Plan, Run
from strandline.storage.feed import STATEFUL_MODES


@dataclass(frozen=True)
class StreamSpec:
    """What a stream is asked to be. ``owner``: the id of the backup collection that it belongs to, None for a
    user's own."""

    name: str
    mode: str = "NEW_AND_OLD_IMAGES"
    format: str = "JSON"
    owner: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(body: dict[str, Any]) -> StreamSpec:
        return StreamSpec(body["name"], body["mode"], body["format"], body["owner"])


class CreateStream(Kind):
    """Create one stream. Request: ``table`` (path of a table or an implementation table) and ``stream`` (a
    ``StreamSpec``)."""

    name = "create stream"

    def __init__(self) -> None:
        self.handlers = {"stream": StreamPart()}

    def plan(self, conn: Connection, run: Run) -> Plan:
        spec = StreamSpec.from_json(run.operation.request["stream"])
        table = paths.require(conn, run.operation.request["table"], "table")
        step = board.current_step(conn)
        run.lock(conn, [table, *unit_above(conn, table)], "altering")
        check_free(conn, table, spec.name)
        run.pin(conn, step)
        return Plan(
            [PartPlan("stream", {"table_id": table.id, "step": step, "stream": spec.to_json()})],
            {"step": step},
        )

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        return {"step": run.operation.body["step"]}


class StreamPart(Handler):
    """Creates a stream on the table ``table_id`` at ``step``, if the body has a ``stream``. Other handlers
    build on it."""

    def propose(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        if part.body["stream"] is None:
            return part.body
        table = require_id(conn, part.body["table_id"])
        spec = StreamSpec.from_json(part.body["stream"])
        body = {
            "mode": spec.mode,
            "format": spec.format,
            "owner": spec.owner,
            "table_id": table.id,
            "created_step": part.body["step"],
            "cursor": None,
        }
        stream = paths.add(
            conn,
            table,
            spec.name,
            "stream",
            body,
            part.body["step"],
            state="creating",
            operation_id=run.operation.id,
        )
        run.move(conn, part, table)
        return {**part.body, "stream_id": stream.id}

    def configure(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        if part.body["stream"] is not None:
            keeps_state = part.body["stream"]["mode"] in STATEFUL_MODES
            body = part.body
            holds.add(conn, Hold(body["stream_id"], body["table_id"], body["step"], keeps_state))
        return part.body

    def wait(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        if part.body["stream"] is not None:
            stream = require_id(conn, part.body["stream_id"])
            paths.set_body(conn, stream.id, {**stream.body, "cursor": part.body["step"]})
        return part.body


class DropStreams(Kind):
    """Drop streams of any tables. Request: ``streams``, their paths."""

    name = "drop streams"

    def __init__(self) -> None:
        self.handlers = {"drop stream": DropStreamPart()}

    def plan(self, conn: Connection, run: Run) -> Plan:
        return Plan(plan_drops(conn, run, run.operation.request["streams"]))


class DropStreamPart(Handler):
    """Claims the next version of the stream's table; the stream itself goes with the publication, for it is
    in state dropping."""

    phases: ClassVar[tuple[str, ...]] = ("propose",)

    def propose(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        run.move(conn, part, require_id(conn, part.body["table_id"]))
        return part.body


def plan_drops(conn: Connection, run: Run, streams: list[str]) -> list[PartPlan]:
    """Lock streams, and the tables they are on, to be dropped with the operation, and return a part for
    each."""
    plans = []
    for path in dict.fromkeys(streams):
        stream = paths.require(conn, path, "stream")
        table = require_id(conn, stream.parent_id)
        run.lock(conn, [table, *unit_above(conn, table)], "altering")
        run.lock(conn, [stream], "dropping")
        plans.append(PartPlan("drop stream", {"stream_id": stream.id, "table_id": table.id}))
    if not plans:
        raise InvalidArgument("no stream to drop was named", "Name at least one.")
    return plans


def check_free(conn: Connection, table: Path, name: str) -> None:
    found = paths.find(conn, f"{table.path}/{name}")
    if found is not None:
        raise AlreadyExists(f"{found.path} is a {found.type} already", "Choose another name.")
