"""Consistent copy: tables with their indexes and implementation tables, all at one step, by reference.

1. The first transaction fixes the step, pins it, locks the sources and creates the targets, which are not
   visible yet.
2. Each table, index and implementation table has one part. These parts may run in any order. A part attaches
   the segments that its source has at the step to its target: no data moves. A table that is split into
   shards also has one part per shard, which runs before the part of the table.
3. If streams are requested, the part of a table creates the stream on its source at the same step. So each
   change is either in the copy or in the stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from strandline import names
from strandline.catalog import bulk_paths, chains, paths, sizes, tables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.catalog.transactions import Writer
from strandline.catalog.versions import units_above
from strandline.errors import AlreadyExists, Internal, InvalidArgument
from strandline.model import Digest, TableSchema
from strandline.operations.kind import AnyRun, Handler, Part, PartPlan, Planning
from strandline.operations.streams import (
    DropStreamPart,
    NewStream,
    StreamPart,
    StreamSpec,
    check_free,
)
from strandline.records import Record, later
from strandline.storage.shards import cuts, segments_by_shard


@dataclass(frozen=True)
class CopyRequest:
    """A request to copy tables.

    Attributes:
        tables: Pairs of source and target path.
        shard_bytes: Approximate size of a shard.
        stream: The stream to create on every source, and on the implementation tables of its synchronous
            indexes. None: create no streams.
        omit_indexes: Copy only the definitions of indexes, without data, and create no streams on
            implementation tables.
    """

    tables: tuple[tuple[str, str], ...]
    shard_bytes: int
    stream: StreamSpec | None = None
    omit_indexes: bool = False


@dataclass(frozen=True, kw_only=True)
class CopiedTable(NewStream):
    """A table, or implementation table, to be copied as of ``step``.

    Attributes:
        omitted: True: the rows are not copied.
        sharded: True: the parts of the table's shards attach the segments.
    """

    target_id: int
    omitted: bool
    sharded: bool = later(False)

    @property
    def is_alone(self) -> bool:
        """True if this part attaches all segments of the table."""
        return not self.omitted and not self.sharded


@dataclass(frozen=True, kw_only=True)
class CopiedShard(Record):
    """A shard of a table to be copied: the segments that begin in it."""

    target_id: int
    step: int
    segments: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CopiedIndex(Record):
    """A copied index that is added to the description of the copied table.

    Attributes:
        table_id: Id of the source's implementation table.
        target_id: Id of the copied table.
        index: The entry of the index in the description.
        order: Names of all indexes of the table, in the order of the table's description.
        moves: The version of the source's implementation table grows, because it gets a stream.
    """

    table_id: int
    target_id: int
    index: IndexRef
    order: tuple[str, ...]
    moves: bool


def copy_handlers() -> dict[str, Handler[Any, Any]]:
    """Return the handlers for the parts of ``plan_copy``. Each kind of operation that copies needs them."""
    return {
        "table": TablePart(CopiedTable),
        "table shard": TableShardPart(),
        "index": IndexPart(),
        "drop stream": DropStreamPart(),
    }


def plan_copy(tx: Writer, run: Planning[Any], request: CopyRequest, step: int) -> list[PartPlan]:
    """Plan a copy as of ``step``, the present step, and return its parts.

    This pins the step, locks the sources, and creates the targets in state ``creating``.
    """
    _check_distinct(request)
    run.pin(tx, step)
    sources = bulk_paths.require_tables(tx.conn, [source for source, _ in request.tables])
    for impl_id in units_above(tx.conn, sources):
        path = next(source.path for source in sources if source.id == impl_id)
        raise InvalidArgument(
            f"{path} is the implementation table of an index", "Copy its table: the index comes with it."
        )
    return _Copies(tx, run, request, step).plan(sources)


def _check_distinct(request: CopyRequest) -> None:
    if not request.tables:
        raise InvalidArgument("no table to copy was named", "Name at least one.")
    for what, given in zip(("source", "target"), zip(*request.tables, strict=True), strict=True):
        for path, number in Counter(names.normalize(path) for path in given).items():
            if number > 1:
                raise InvalidArgument(f"{path} is named twice as a {what}", f"Name each {what} once.")


@dataclass(frozen=True)
class _Copied:
    """A table, or implementation table, whose rows are copied.

    Attributes:
        path: Path of the table or index.
        least: Minimum number of shards, if there are enough segments.
    """

    source_id: int
    target_id: int
    schema: TableSchema
    path: str
    least: int = 1


@dataclass(frozen=True)
class _Copies:
    """Plans the copies of all tables of a request together."""

    tx: Writer
    run: Planning[Any]
    request: CopyRequest
    step: int

    def plan(self, sources: Sequence[Path]) -> list[PartPlan]:
        conn = self.tx.conn
        infos = [TableInfo.of(source) for source in sources]
        listed = [(info, ref) for info in infos for ref in info.indexes]
        below = {p.id: p for p in paths.by_ids(conn, [i for _, r in listed for i in (r.index_id, r.impl_id)])}
        self.run.lock(self.tx, [*sources, *below.values()], "copying")
        if self.request.stream is not None:
            followed = [*sources, *(below[ref.impl_id] for _, ref in listed if not self._is_omitted(ref))]
            check_free(conn, followed, self.request.stream.name)
        targets = self._targets(infos)
        above = [targets[info.id] for info, _ in listed]
        indexes = self._add(
            [NewPath(t, r.name, "index", r.definition) for t, (_, r) in zip(above, listed, strict=True)]
        )
        bodies = [below[ref.impl_id].record(TableBody) for _, ref in listed]
        impls = self._add(
            [NewPath(i, IMPL_TABLE, "table", body) for i, body in zip(indexes, bodies, strict=True)]
        )
        made = {
            ref.impl_id: pair for (_, ref), pair in zip(listed, zip(indexes, impls, strict=True), strict=True)
        }
        copied = [_Copied(info.id, targets[info.id].id, info.schema, info.path) for info in infos]
        copied += [
            _Copied(
                ref.impl_id,
                made[ref.impl_id][1].id,
                body.schema,
                f"{info.path}/{ref.name}",
                len(info.schema.bounds) + 1,
            )
            for (info, ref), body in zip(listed, bodies, strict=True)
            if not self._is_omitted(ref)
        ]
        parts = self._shards(copied)
        sharded = {part.body.target_id for part in parts if isinstance(part.body, CopiedShard)}
        for info in infos:
            target = targets[info.id]
            copy = self._table_plan(info.id, target, omitted=False, sharded=target.id in sharded)
            parts.append(replace(copy, path=info.path))
            for ref in info.indexes:
                index, impl = made[ref.impl_id]
                parts.append(self._index_plan(info, ref, target, index, impl))
                omitted = self._is_omitted(ref)
                copy = self._table_plan(ref.impl_id, impl, omitted=omitted, sharded=impl.id in sharded)
                parts.append(replace(copy, path=f"{info.path}/{ref.name}"))
        return parts

    def _shards(self, copied: Sequence[_Copied]) -> list[PartPlan]:
        """Return one part per shard, for tables that are split into several shards."""
        size = sizes.bytes_of(self.tx.conn, [c.source_id for c in copied])
        most = self.request.shard_bytes
        large = [c for c in copied if size.get(c.source_id, 0) > most or c.schema.bounds or c.least > 1]
        found = chains.copyable_segments(self.tx.conn, [c.source_id for c in large], self.step)
        shards: list[PartPlan] = []
        for of in large:
            segments = found.get(of.source_id, ())
            by_shard = segments_by_shard(cuts(of.schema.bounds, segments, most, of.least), segments)
            if len(by_shard) > 1:
                shards += [
                    PartPlan(
                        "table shard",
                        CopiedShard(
                            target_id=of.target_id, step=self.step, segments=tuple(s.id for s in begun)
                        ),
                        path=of.path,
                        shard=number,
                        bytes=sum(s.bytes for s in begun),
                    )
                    for number, begun in by_shard.items()
                ]
        return shards

    def _is_omitted(self, ref: IndexRef) -> bool:
        return self.request.omit_indexes or ref.omitted or not ref.definition.is_sync

    def _targets(self, infos: Sequence[TableInfo]) -> dict[int, Path]:
        """Create the target tables; return them by the ids of their sources.

        Their descriptions have no indexes yet: the parts of the indexes add them later.
        """
        wanted = [names.normalize(target) for _, target in self.request.tables]
        for found in bulk_paths.find(self.tx.conn, wanted).values():
            paths.check_ready(found, self.run.id)
            raise AlreadyExists(f"{found.path} already exists", "Choose another target, or drop it first.")
        parents = self.run.make_parents(self.tx, wanted, self.step)
        new = [
            NewPath(parents[path], path.rsplit("/", 1)[1], "table", TableBody(schema=info.schema))
            for path, info in zip(wanted, infos, strict=True)
        ]
        return {info.id: target for info, target in zip(infos, self._add(new), strict=True)}

    def _add(self, new: Sequence[NewPath]) -> list[Path]:
        return bulk_paths.add(self.tx, new, step=self.step, state="creating", operation_id=self.run.id)

    def _index_plan(self, info: TableInfo, ref: IndexRef, target: Path, index: Path, impl: Path) -> PartPlan:
        omitted = self._is_omitted(ref)
        listed = replace(ref, index_id=index.id, impl_id=impl.id, version=impl.version, omitted=omitted)
        moved = CopiedIndex(
            table_id=ref.impl_id,
            target_id=target.id,
            index=listed,
            order=tuple(ref.name for ref in info.indexes),
            moves=not omitted and self.request.stream is not None,
        )
        return PartPlan("index", moved, path=f"{info.path}/{ref.name}")

    def _table_plan(self, source_id: int, target: Path, *, omitted: bool, sharded: bool) -> PartPlan:
        body = CopiedTable(
            table_id=source_id,
            target_id=target.id,
            step=self.step,
            stream=None if omitted else self.request.stream,
            omitted=omitted,
            sharded=sharded,
        )
        # The part of a table runs after those of its shards. At its end it checks that all segments are
        # attached.
        return PartPlan("table", body, stage=1 if sharded else 0)


class TableShardPart(Handler[AnyRun, CopiedShard]):
    """Handler that attaches the segments of shards."""

    record = CopiedShard

    def store_all(
        self, tx: Writer, run: AnyRun, parts: Sequence[Part[CopiedShard]], made: Sequence[Any]
    ) -> list[CopiedShard]:
        attached: dict[int, list[int]] = {}
        for part in parts:
            attached.setdefault(part.body.target_id, []).extend(part.body.segments)
        chains.attach_all(tx, attached, parts[0].body.step)  # all parts have the same step
        return [part.body for part in parts]


class TablePart(StreamPart[CopiedTable]):
    """Handler that copies tables or implementation tables, and creates the streams on their sources."""

    def configure(
        self, tx: Writer, run: AnyRun, parts: Sequence[Part[CopiedTable]], made: Sequence[Any]
    ) -> list[CopiedTable]:
        step = parts[0].body.step  # all parts have the same step
        copied = {p.body.target_id: p.body.table_id for p in parts if not p.body.omitted}
        digests = tables.digests_at(tx.conn, copied.values(), step)
        tables.add_states(tx, {target: digests[source] for target, source in copied.items()}, step)
        missing = {p.body.target_id: p.body.table_id for p in parts if p.body.is_alone}
        found = chains.chain_ids(tx.conn, missing.values(), step)
        chains.attach_all(tx, {target: found.get(source, ()) for target, source in missing.items()}, step)
        self._omit(tx, {p.body.target_id: p.body.table_id for p in parts if p.body.omitted}, step)
        return super().configure(tx, run, parts, made)

    def _omit(self, tx: Writer, omitted: Mapping[int, int], step: int) -> None:
        """Give an empty state to the copies whose rows are omitted.

        The copy of an asynchronous index then reads all changes of its table, from the first one.

        Args:
            omitted: Ids of the source tables, by the ids of the copies.
        """
        heads = chains.states(tx.conn, omitted.values())
        followed = {t: 0 for t, source in omitted.items() if heads[source].followed_step is not None}
        tables.add_states(tx, dict.fromkeys(omitted, Digest()), step, followed)

    def begin(
        self, tx: Writer, run: AnyRun, parts: Sequence[Part[CopiedTable]], made: Sequence[Any]
    ) -> list[CopiedTable]:
        step = parts[0].body.step
        copied = {p.body.target_id: p.body.table_id for p in parts if not p.body.omitted}
        found = chains.chain_ids(tx.conn, [*copied, *copied.values()], step)
        for target, source in copied.items():
            if set(found.get(source, ())) != set(found.get(target, ())):
                raise Internal(f"the copy of table {source} at step {step} does not hold the same segments")
        return super().begin(tx, run, parts, made)


class IndexPart(Handler[AnyRun, CopiedIndex]):
    """Handler that adds copied indexes to the descriptions of their copied tables.

    It also claims the next versions of source implementation tables that get streams.
    """

    record = CopiedIndex
    phases: ClassVar[tuple[str, ...]] = ("propose",)

    def store_all(
        self, tx: Writer, run: AnyRun, parts: Sequence[Part[CopiedIndex]], made: Sequence[Any]
    ) -> list[CopiedIndex]:
        moving = [part for part in parts if part.body.moves]
        impls = {p.id: p for p in paths.by_ids(tx.conn, [part.body.table_id for part in moving])}
        run.move_all(tx, [(part, impls[part.body.table_id]) for part in moving])
        targets = paths.by_ids(tx.conn, [part.body.target_id for part in parts])
        bodies = {target.id: target.record(TableBody) for target in targets}
        for part in parts:
            body, order = bodies[part.body.target_id], part.body.order
            listed = sorted([*body.indexes, part.body.index], key=lambda ref: order.index(ref.name))
            bodies[part.body.target_id] = replace(body, indexes=tuple(listed))
        bulk_paths.set_bodies(tx, bodies)
        return [part.body for part in parts]
