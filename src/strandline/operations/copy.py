"""Consistent copy: tables with their indexes and implementation tables, all at one step, by reference.

The first transaction fixes the step, pins it, locks the sources and makes the targets, which stay invisible.
Then there is one part for each table, for each index and for each implementation table; they may run in any
order. A part attaches the segments that make up its source at the step to its target: no data moves. Where
streams are asked for, the part of a table creates the one on its source, at the same step, so what the copy
does not hold the stream will.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sqlalchemy import Connection

from strandline import names
from strandline.catalog import chains, commits, paths, tables
from strandline.catalog.paths import IMPL_TABLE, Path, require_id
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.catalog.versions import unit_above
from strandline.catalog.writer import Writer
from strandline.errors import AlreadyExists, Internal, InvalidArgument
from strandline.model import Digest
from strandline.operations.kind import AnyRun, Handler, Part, PartPlan, Planning
from strandline.operations.streams import (
    DropStreamPart,
    NewStream,
    StreamPart,
    StreamSpec,
    check_free,
    plan_drops,
)
from strandline.records import Record


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


@dataclass(frozen=True, kw_only=True)
class CopiedTable(NewStream):
    """A table, or implementation table, to be copied as it was at ``step``; ``omitted``: without its rows."""

    target_id: int
    omitted: bool


@dataclass(frozen=True, kw_only=True)
class CopiedIndex(Record):
    """An index to be listed in the copy ``target_id`` of its table. ``table_id``: the source's implementation
    table, whose version ``moves`` because it gets a stream. ``order``: the names of all indexes of the table,
    in the order in which it lists them."""

    table_id: int
    target_id: int
    index: IndexRef
    order: tuple[str, ...]
    moves: bool


def copy_handlers() -> dict[str, Handler[Any, Any]]:
    """The handlers for the parts that ``plan_copy`` makes; for every kind that copies."""
    return {"table": TablePart(CopiedTable), "index": IndexPart(), "drop stream": DropStreamPart()}


def plan_copy(tx: Writer, run: Planning[Any], request: CopyRequest, step: int) -> list[PartPlan]:
    """Pin ``step`` (the present one), lock the sources, make the targets in state creating, and return the
    parts, siblings all."""
    _check_distinct(request)
    run.pin(tx, step)
    plans: list[PartPlan] = []
    for source_path, target_path in request.tables:
        source = paths.require(tx.conn, source_path, "table")
        if unit_above(tx.conn, source):
            raise InvalidArgument(
                f"{source.path} is the implementation table of an index",
                "Copy its table: the index comes with it.",
            )
        plans += _plan_table(tx, run, request, source, names.normalize(target_path), step=step)
    if request.drop_streams:
        plans += plan_drops(tx, run, request.drop_streams)
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
    tx: Writer, run: Planning[Any], request: CopyRequest, source: Path, target_path: str, *, step: int
) -> list[PartPlan]:
    info = TableInfo.of(source)
    impls = {ref.impl_id: require_id(tx.conn, ref.impl_id) for ref in info.indexes}
    run.lock(
        tx, [source, *(require_id(tx.conn, ref.index_id) for ref in info.indexes), *impls.values()], "copying"
    )
    target = _make_target(tx, run, source, target_path, step)
    plans = [_copied(tx.conn, source, target, request.stream, omitted=False)]
    order = tuple(ref.name for ref in info.indexes)
    for ref in info.indexes:
        omitted = request.omit_indexes or ref.omitted or not ref.definition.is_sync
        stream = None if omitted else request.stream
        source_impl = impls[ref.impl_id]
        index = _make(tx, run, target, ref.name, type_="index", body=ref.definition, step=step)
        body = source_impl.record(TableBody)
        impl = _make(tx, run, index, IMPL_TABLE, type_="table", body=body, step=step)
        listed = replace(ref, index_id=index.id, impl_id=impl.id, version=impl.version, omitted=omitted)
        moved = CopiedIndex(
            table_id=ref.impl_id, target_id=target.id, index=listed, order=order, moves=stream is not None
        )
        plans += [PartPlan("index", moved), _copied(tx.conn, source_impl, impl, stream, omitted=omitted)]
    return plans


def _copied(
    conn: Connection, source: Path, target: Path, stream: StreamSpec | None, *, omitted: bool
) -> PartPlan:
    if stream is not None:
        check_free(conn, source, stream.name)
    body = CopiedTable(
        table_id=source.id, target_id=target.id, step=target.created_step, stream=stream, omitted=omitted
    )
    return PartPlan("table", body)


def _make_target(tx: Writer, run: Planning[Any], source: Path, path: str, step: int) -> Path:
    found = paths.find(tx.conn, path)
    if found is not None:
        paths.check_ready(found, run.id)
        raise AlreadyExists(f"{path} already exists", "Choose another target, or drop it first.")
    parent = run.make_parents(tx, path, step)
    # Indexes are listed by their own parts, when they are there.
    body = replace(source.record(TableBody), indexes=())
    return _make(tx, run, parent, path.rsplit("/", 1)[1], type_="table", body=body, step=step)


def _make(
    tx: Writer,
    run: Planning[Any],
    parent: Path,
    name: str,
    *,
    type_: str,
    body: Record,
    step: int,
) -> Path:
    return paths.add(tx, parent, name, type_, body=body, step=step, state="creating", operation_id=run.id)


class TablePart(StreamPart[CopiedTable]):
    """Copies one table, or implementation table, and creates the stream on its source."""

    def configure(self, tx: Writer, run: AnyRun, part: Part[CopiedTable], made: Any) -> CopiedTable:
        source, target, step = part.body.table_id, part.body.target_id, part.body.step
        if part.body.omitted:
            # Nothing of its table is in it yet; an asynchronous index must know, so that it starts from the
            # beginning.
            followed = None if chains.state(tx.conn, source).followed_step is None else 0
            tables.add_state(tx, target, step, Digest(), followed_step=followed)
        else:
            tables.add_state(tx, target, step, commits.digest_at(tx.conn, source, step))
            chains.attach(tx, target, chains.chain_ids(tx.conn, source, step), step)
        return super().configure(tx, run, part, made)

    def wait(self, tx: Writer, run: AnyRun, part: Part[CopiedTable], made: Any) -> CopiedTable:
        source, target, step = part.body.table_id, part.body.target_id, part.body.step
        copied = part.body.omitted or set(chains.chain_ids(tx.conn, source, step)) == set(
            chains.chain_ids(tx.conn, target, step)
        )
        if not copied:
            raise Internal(f"the copy of table {source} at step {step} does not hold the same segments")
        return super().wait(tx, run, part, made)


class IndexPart(Handler[AnyRun, CopiedIndex]):
    """Lists a copied index in its copied table, and moves the source index along when its implementation
    table gets a stream."""

    record = CopiedIndex
    phases: ClassVar[tuple[str, ...]] = ("propose", "configure")

    def propose(self, tx: Writer, run: AnyRun, part: Part[CopiedIndex], made: Any) -> CopiedIndex:
        if part.body.moves:
            run.move(tx, part, require_id(tx.conn, part.body.table_id))
        return part.body

    def configure(self, tx: Writer, run: AnyRun, part: Part[CopiedIndex], made: Any) -> CopiedIndex:
        target, order = require_id(tx.conn, part.body.target_id), part.body.order
        body = target.record(TableBody)
        listed = sorted([*body.indexes, part.body.index], key=lambda ref: order.index(ref.name))
        paths.set_body(tx, target.id, replace(body, indexes=tuple(listed)))
        return part.body
