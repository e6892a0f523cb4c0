"""Consistent copy: tables with their indexes and implementation tables, all at one step, by reference.

The first transaction fixes the step, pins it, locks the sources and makes the targets, which stay invisible.
Then there is one part for each table, for each index and for each implementation table; they may run in any
order. A part attaches the segments that make up its source at the step to its target: no data moves. Where
streams are asked for, the part of a table creates the one on its source, at the same step, so what the copy
does not hold the stream will.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import Connection

from strandline import names
from strandline.catalog import chains, commits, paths, tables
from strandline.catalog.operations import Part
from strandline.catalog.paths import IMPL_TABLE, Path, require_id
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.catalog.versions import unit_above
from strandline.errors import AlreadyExists, Internal, InvalidArgument
from strandline.model import Digest
from strandline.operations.kind import Handler, PartPlan, Run
from strandline.operations.streams import DropStreamPart, StreamPart, StreamSpec, check_free, plan_drops


@dataclass(frozen=True)
class CopyRequest:
    """``tables``: pairs of source and target path. ``stream``: the stream to create on every source and on
    the implementation table of each of its synchronous indexes. ``omit_indexes``: targets get the definitions
    of the indexes, not their data, and implementation tables get no streams. ``drop_streams``: paths of
    streams that the new ones replace."""

    tables: tuple[tuple[str, str], ...]
    stream: StreamSpec | None = None
    omit_indexes: bool = False
    drop_streams: tuple[str, ...] = ()


def copy_handlers() -> dict[str, Handler]:
    """The handlers for the parts that ``plan_copy`` makes; for every kind that copies."""
    return {"table": TablePart(), "index": IndexPart(), "drop stream": DropStreamPart()}


def plan_copy(conn: Connection, run: Run, request: CopyRequest, step: int) -> list[PartPlan]:
    """Pin ``step`` (the present one), lock the sources, make the targets in state creating, and return the
    parts, siblings all."""
    _check_distinct(request)
    run.pin(conn, step)
    plans: list[PartPlan] = []
    for source_path, target_path in request.tables:
        source = paths.require(conn, source_path, "table")
        if unit_above(conn, source):
            raise InvalidArgument(
                f"{source.path} is the implementation table of an index",
                "Copy its table: the index comes with it.",
            )
        plans += _plan_table(conn, run, request, step, source, names.normalize(target_path))
    if request.drop_streams:
        plans += plan_drops(conn, run, list(request.drop_streams))
    return plans


def _check_distinct(request: CopyRequest) -> None:
    if not request.tables:
        raise InvalidArgument("no table to copy was named", "Name at least one.")
    for what, given in zip(("source", "target"), zip(*request.tables, strict=True), strict=True):
        seen = [names.normalize(path) for path in given]
        twice = next((path for path in seen if seen.count(path) > 1), None)
        if twice is not None:
            raise InvalidArgument(f"{twice} is named twice as a {what}", f"Name each {what} once.")


def _plan_table(
    conn: Connection, run: Run, request: CopyRequest, step: int, source: Path, target_path: str
) -> list[PartPlan]:
    info = TableInfo.of(source)
    impls = {ref.impl_id: require_id(conn, ref.impl_id) for ref in info.indexes}
    run.lock(
        conn, [source, *(require_id(conn, ref.index_id) for ref in info.indexes), *impls.values()], "copying"
    )
    target = _make_target(conn, run, step, source, target_path)
    plans = [PartPlan("table", _table_body(conn, source, target.id, step, request.stream, omitted=False))]
    order = [ref.definition.name for ref in info.indexes]
    for ref in info.indexes:
        omitted = request.omit_indexes or ref.omitted or not ref.definition.is_sync
        stream = None if omitted else request.stream
        index = _make(conn, run, target, ref.definition.name, "index", ref.definition.to_json(), step)
        impl = _make(conn, run, index, IMPL_TABLE, "table", impls[ref.impl_id].body, step)
        copied = IndexRef(ref.definition, index.id, impl.id, impl.version, omitted)
        plans.append(
            PartPlan(
                "index",
                {
                    "table_id": ref.impl_id,
                    "target_id": target.id,
                    "index": copied.to_json(),
                    "order": order,
                    "moves": stream is not None,
                },
            )
        )
        plans.append(
            PartPlan("table", _table_body(conn, impls[ref.impl_id], impl.id, step, stream, omitted=omitted))
        )
    return plans


def _table_body(
    conn: Connection, source: Path, target_id: int, step: int, stream: StreamSpec | None, *, omitted: bool
) -> dict[str, Any]:
    if stream is not None:
        check_free(conn, source, stream.name)
    return {
        "table_id": source.id,
        "target_id": target_id,
        "step": step,
        "stream": None if stream is None else stream.to_json(),
        "omitted": omitted,
    }


def _make_target(conn: Connection, run: Run, step: int, source: Path, path: str) -> Path:
    found = paths.find(conn, path)
    if found is not None:
        paths.check_ready(found, run.operation.id)
        raise AlreadyExists(f"{path} already exists", "Choose another target, or drop it first.")
    parent = run.make_parents(conn, path, step)
    # Indexes are listed by their own parts, when they are there.
    return _make(conn, run, parent, path.rsplit("/", 1)[1], "table", {**source.body, "indexes": []}, step)


def _make(
    conn: Connection, run: Run, parent: Path, name: str, type_: str, body: dict[str, Any], step: int
) -> Path:
    return paths.add(conn, parent, name, type_, body, step, state="creating", operation_id=run.operation.id)


class TablePart(StreamPart):
    """Copies one table, or implementation table, and creates the stream on its source."""

    def configure(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        source, target, step = part.body["table_id"], part.body["target_id"], part.body["step"]
        if part.body["omitted"]:
            # Nothing of its table is in it yet; an asynchronous index must know, so that it starts from the
            # beginning.
            followed = None if chains.state(conn, source).followed_step is None else 0
            tables.add_state(conn, target, step, run.now, Digest(), followed_step=followed)
        else:
            tables.add_state(conn, target, step, run.now, commits.digest_at(conn, source, step))
            chains.attach(conn, target, chains.chain_ids(conn, source, step), step)
        return super().configure(conn, run, part, made)

    def wait(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        source, target, step = part.body["table_id"], part.body["target_id"], part.body["step"]
        copied = part.body["omitted"] or set(chains.chain_ids(conn, source, step)) == set(
            chains.chain_ids(conn, target, step)
        )
        if not copied:
            raise Internal(f"the copy of table {source} at step {step} does not hold the same segments")
        return super().wait(conn, run, part, made)


class IndexPart(Handler):
    """Lists a copied index in its copied table, and moves the source index along when its implementation
    table gets a stream."""

    phases: ClassVar[tuple[str, ...]] = ("propose", "configure")

    def propose(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        if part.body["moves"]:
            run.move(conn, part, require_id(conn, part.body["table_id"]))
        return part.body

    def configure(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        target = require_id(conn, part.body["target_id"])
        order: list[str] = part.body["order"]
        listed = sorted(
            [*target.body["indexes"], part.body["index"]], key=lambda ref: order.index(ref["name"])
        )
        paths.set_body(conn, target.id, {**target.body, "indexes": listed})
        return part.body
