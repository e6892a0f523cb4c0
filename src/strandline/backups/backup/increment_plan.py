"""Plan of an increment: the slices of all tables and indexes, and the parts that make them.

A *source* is a table or an implementation table of an index. The *cut* of a backup is the step whose state it
holds. If a source has changed since the cut of the last backup, each of its shards with changes gets a part.
Up to ``UNCHANGED`` unchanged sources share a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from strandline.backups.backup.full import FullNeeded, backup_stream, take_full
from strandline.backups.collection import CollectionRequest
from strandline.backups.record import (
    META,
    BackupRecord,
    SliceRecord,
    TableRecord,
    backup_records,
    chain_to,
    slices_of,
    stream_name,
)
from strandline.catalog import bulk_paths, chains, paths, sizes
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import Path
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.catalog.transactions import Writer
from strandline.errors import Internal
from strandline.model import EVERYWHERE, Digest, KeyRange, TableSchema, may_hold
from strandline.operations.kind import PartPlan, Planning
from strandline.operations.streams import NewStream, StreamSpec, droppable_streams, plan_drops
from strandline.records import Record, later
from strandline.storage.shards import cuts, ranges, spread

UNCHANGED = 1000
"""Maximum number of unchanged sources in one part."""


C = TypeVar("C", bound="CutShard")


@dataclass(frozen=True, kw_only=True)
class CutShard(Record):
    """A shard of a source, whose changes in ``(after, step]`` are folded into a slice.

    The fields ``rows``, ``tombstones``, ``bytes`` and ``delta`` are None until the shard is folded.

    Attributes:
        table_id: Id of the source.
        target_id: Id of the path that holds the slice.
        whole: The slice gets all rows of the source, because the parent does not have the source.
        base: Slices of earlier backups that hold the table, as pairs of path id and step. If a column was
            dropped since the parent, the new slice cannot be checked without them. None: no column was
            dropped, or the source is an index or new.
        within: Key range of the shard.
        delta: Digest of the folded rows. If ``base`` is given: digest of the whole shard at ``step``.
        was: Path of the table in the parent. None: the table was not renamed since.
    """

    table_id: int
    target_id: int
    after: int
    step: int
    whole: bool
    base: tuple[tuple[int, int], ...] | None
    within: KeyRange = later(EVERYWHERE)
    rows: int | None = later()
    tombstones: int | None = later()
    bytes: int | None = later()
    delta: Digest | None = later()
    was: str | None = later()

    @property
    def made(self) -> Made:
        """Row count, tombstones, bytes and digest of the folded shard. Fails if it is not folded yet."""
        if self.rows is None or self.tombstones is None or self.bytes is None or self.delta is None:
            raise Internal(f"the slice of path {self.table_id} is not cut yet")
        return Made(self.rows, self.tombstones, self.bytes, self.delta)

    def finish(self: C, made: Made) -> C:
        """Return the shard with the result of folding it."""
        return replace(self, rows=made.rows, tombstones=made.tombstones, bytes=made.bytes, delta=made.delta)


@dataclass(frozen=True)
class Made:
    """Result of folding one or more shards of a source. See ``CutShard`` for ``delta``."""

    rows: int
    tombstones: int
    bytes: int
    delta: Digest

    def __add__(self, other: Made) -> Made:
        return Made(
            self.rows + other.rows,
            self.tombstones + other.tombstones,
            self.bytes + other.bytes,
            self.delta + other.delta,
        )


@dataclass(frozen=True, kw_only=True)
class CutSlice(NewStream, CutShard):
    """The first shard of a source, with the fields of the whole slice.

    The part of this shard also creates the new ``stream``, which begins at ``step``.

    Attributes:
        before: Digest of the source at ``after``.
        digest: Digest that the catalog has recorded for the source at ``step``. None: not folded yet.
        continues: See ``SliceRecord``.
    """

    before: Digest
    digest: Digest | None = later()
    continues: int | None = later()

    def shard(self, within: KeyRange) -> CutShard:
        """Return another shard of the same source."""
        return CutShard(
            table_id=self.table_id,
            target_id=self.target_id,
            after=self.after,
            step=self.step,
            whole=self.whole,
            base=self.base,
            within=within,
            was=self.was,
        )

    def plus(self, shard: CutShard) -> CutSlice:
        """Return the slice after adding the result of another shard of the same source."""
        return self.finish(self.made + shard.made)

    @property
    def found(self) -> Digest:
        """Digest of the source at ``step``, computed from the earlier backups and the folded changes."""
        return self.made.delta + (self.before if self.base is None else Digest())

    def record(self, version: int) -> SliceRecord:
        """Return the slice record for the backup.

        Args:
            version: Version of the source.
        """
        made = self.made
        if self.digest is None:
            raise Internal(f"the slice of path {self.table_id} is not cut yet")
        return SliceRecord(
            source_id=self.table_id,
            target_id=self.target_id,
            version=version,
            whole=self.whole,
            before=self.before,
            after=self.digest,
            delta=None if self.base is not None else made.delta,
            rows=made.rows,
            tombstones=made.tombstones,
            bytes=made.bytes,
            continues=self.continues,
        )


@dataclass(frozen=True, kw_only=True)
class UnchangedSlice:
    """A source that has not changed since the cut of the last backup. Its slice is empty.

    Attributes:
        digest: Digest of the source that the last backup recorded.
        continues: See ``SliceRecord``.
        was: See ``CutShard``.
    """

    table_id: int
    target_id: int
    digest: Digest
    continues: int | None = later()
    was: str | None = later()

    def record(self, version: int) -> SliceRecord:
        """Return the slice record for the backup.

        Args:
            version: Version of the source.
        """
        return SliceRecord(
            source_id=self.table_id,
            target_id=self.target_id,
            version=version,
            whole=False,
            before=self.digest,
            after=self.digest,
            delta=Digest(),
            rows=0,
            tombstones=0,
            bytes=0,
            continues=self.continues,
        )


@dataclass(frozen=True, kw_only=True)
class Unchanged(Record):
    """Unchanged sources that share a part. The part creates a new stream on each of them.

    Attributes:
        step: The step at which the new streams begin.
        stream: Specification of the new streams.
    """

    step: int
    stream: StreamSpec
    slices: tuple[UnchangedSlice, ...]


@dataclass(frozen=True, kw_only=True)
class IncrementCut:
    """The increment that is planned. It holds the changes after ``parent``, up to ``step``."""

    collection: Path
    parent: BackupRecord
    backup: Path
    step: int
    omit_indexes: bool


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A table or an implementation table, and where its slice is stored.

    Attributes:
        body: Body of the path that will hold the slice.
        target: Path that will hold the slice.
        previous: Slice of the source in the parent. None: the parent does not have the source.
        old_stream: The stream that the parent created on the source. None: the parent does not have the
            source.
        base: See ``CutShard``.
        least: Wanted minimum number of shards. A source with few segments may get fewer shards.
        since: Step at which ``old_stream`` began.
        was: See ``CutShard``.
    """

    source: Path
    body: TableBody
    target: str
    previous: SliceRecord | None
    old_stream: Path | None
    base: tuple[tuple[int, int], ...] | None = None
    least: int = 1
    since: int
    was: str | None = None

    @property
    def continues(self) -> int | None:
        """Id of the source that the parent recorded, if this source has replaced it.

        None: the parent recorded this source, or has no slice of it.
        """
        if self.previous is None or self.previous.source_id == self.source.id:
            return None
        return self.previous.source_id


def plan_increment(
    tx: Writer,
    run: Planning[CollectionRequest],
    cut: IncrementCut,
    members: Sequence[tuple[Path, TableInfo]],
    shard_bytes: int,
) -> list[PartPlan]:
    """Lock the members with their indexes, create the paths of all slices, and return the parts.

    Args:
        members: The tables of the collection.
        shard_bytes: Approximate size of a shard.
    """
    return _Increment(tx, run, cut, members, shard_bytes).plan()


@dataclass
class _Increment:
    tx: Writer
    run: Planning[CollectionRequest]
    cut: IncrementCut
    members: Sequence[tuple[Path, TableInfo]]
    shard_bytes: int
    impls: dict[int, Path] = field(default_factory=dict, init=False)
    followed: dict[int, Path] = field(default_factory=dict, init=False)
    """The parent's streams, by the ids of their tables and implementation tables."""
    alike: dict[str | TableSchema, TableBody] = field(default_factory=dict, init=False)
    """Cache of the bodies of slices, because many are equal.

    The keys are table schemas, and bodies of implementation tables.
    """

    def plan(self) -> list[PartPlan]:
        tx, run, cut = self.tx, self.run, self.cut
        refs = [ref for _, info in self.members for ref in info.indexes]
        below = {p.id: p for p in paths.by_ids(tx.conn, [i for r in refs for i in (r.index_id, r.impl_id)])}
        self.impls = {ref.impl_id: below[ref.impl_id] for ref in refs}
        tables = [member for member, _ in self.members]
        followed = [*tables, *self.impls.values()]
        self.followed = bulk_paths.find_below(tx.conn, followed, cut.parent.stream or "")
        run.lock(tx, [*tables, *below.values()], "copying")
        sources = [source for member, info in self.members for source in self._sources(member, info)]
        targets = self._make_targets(sources)
        heads = chains.states(tx.conn, [s.source.id for s in sources])
        changed: list[tuple[_Source, Path]] = []
        unchanged: list[tuple[_Source, Path]] = []
        for pair in zip(sources, targets, strict=True):
            same = _is_unchanged(pair[0], heads[pair[0].source.id])
            (unchanged if same else changed).append(pair)
        stream = backup_stream(stream_name(cut.backup.name), cut.collection)
        parts = self._plan_changed_shards(changed, stream)
        for start in range(0, len(unchanged), UNCHANGED):
            slices = tuple(
                UnchangedSlice(
                    table_id=s.source.id,
                    target_id=t.id,
                    digest=s.previous.after,
                    continues=s.continues,
                    was=s.was,
                )
                for s, t in unchanged[start : start + UNCHANGED]
                if s.previous is not None
            )
            parts.append(PartPlan("unchanged", Unchanged(step=cut.step, stream=stream, slices=slices)))
        return [*parts, *self._drops([s for s, _ in changed], [s for s, _ in unchanged])]

    @property
    def since(self) -> int:
        """The step at which the parent's streams began.

        This is the parent's step. If a restore has replaced the tables, it is the later step of that restore;
        the restored tables have no changes between the two steps.
        """
        continued = self.cut.parent.continued
        return self.cut.parent.step if continued is None else continued.step

    @cached_property
    def _standing(self) -> dict[int, int]:
        continued = self.cut.parent.continued
        return {} if continued is None else dict(continued.sources)

    def _now(self, slice_: SliceRecord) -> int:
        """Return the id of the source that now belongs to a slice of the parent.

        A restore may have replaced the source that the parent recorded.
        """
        return self._standing.get(slice_.source_id, slice_.source_id)

    @cached_property
    def _known(self) -> dict[int, str]:
        """Path of each table in the parent, by the id of the source that now belongs to it."""
        return {self._now(table.slice): path for path, table in self.cut.parent.tables.items()}

    def _before(self, member: Path) -> str | None:
        """Return the path that a member had in the parent. The member may have been renamed since.

        None: the parent does not have the member. If the parent has a table at the member's path, that is
        another table, which is now a member at another path.
        """
        known = self._known.get(member.id)
        if known is not None or member.path not in self.cut.parent.tables:
            return known
        now = self._now(self.cut.parent.tables[member.path].slice)
        return None if now in self._members else member.path

    @cached_property
    def _members(self) -> set[int]:
        return {member.id for member, _ in self.members}

    def _sources(self, member: Path, info: TableInfo) -> list[_Source]:
        parent, backup = self.cut.parent, self.cut.backup
        known = self._before(member)
        before = None if known is None else parent.tables[known]
        stream = None if before is None else self.followed.get(member.id)
        if before is not None and (self._now(before.slice) != member.id or stream is None):
            raise FullNeeded(
                f"{member.path} was created anew, restored or added again after the backup {parent.name}, so "
                "its changes since then are not known",
                take_full(self.cut.collection),
            )
        # If the parent does not have the source, the slice gets all its rows.
        table = _Source(
            source=member,
            body=self.alike.setdefault(info.schema, TableBody(schema=info.schema, increment=True)),
            target=f"{backup.path}{member.path}",
            previous=None if before is None else before.slice,
            old_stream=stream,
            base=None if before is None else self._base(known or member.path, info.schema, before),
            since=self.since,
            was=None if known == member.path else known,
        )
        found = [table]
        for ref in info.indexes:
            if ref.definition.is_sync and not self.cut.omit_indexes and not ref.omitted:
                found.append(self._index(info, ref, before))
        return found

    def _index(self, table: TableInfo, ref: IndexRef, before: TableRecord | None) -> _Source:
        impl, known = self.impls[ref.impl_id], None if before is None else before.index(ref.name)
        previous = known.slice if known is not None else None
        if previous is not None and self._now(previous) != impl.id:
            previous = None  # The index was dropped and built again, so treat it as a new one.
        stream = None if previous is None else self.followed.get(impl.id)
        if previous is not None and stream is None:
            raise FullNeeded(
                f"the stream {impl.path}/{self.cut.parent.stream} is gone, so the changes of the index are "
                "not known",
                take_full(self.cut.collection),
            )
        target = f"{self.cut.backup.path}/{META}/indexes{table.path}/{ref.name}"
        return _Source(
            source=impl,
            body=self._slice_of(impl),
            target=target,
            previous=previous,
            old_stream=stream,
            least=len(table.schema.bounds) + 1,
            since=self.since,
        )

    def _slice_of(self, impl: Path) -> TableBody:
        if impl.body not in self.alike:
            self.alike[impl.body] = TableBody(schema=impl.record(TableBody).schema, increment=True)
        return self.alike[impl.body]

    def _base(
        self, path: str, schema: TableSchema, before: TableRecord
    ) -> tuple[tuple[int, int], ...] | None:
        if _find_dropped_columns(schema) == _find_dropped_columns(before.schema):
            return None
        chain = chain_to(backup_records(self.tx.conn, self.cut.collection), self.cut.parent.name)
        return tuple((slice_.target_id, chain[place].step) for place, slice_ in slices_of(chain, path))

    def _make_targets(self, sources: Sequence[_Source]) -> list[Path]:
        parents = self.run.make_parents(self.tx, [s.target for s in sources], self.cut.step)
        new = [NewPath(parents[s.target], s.target.rsplit("/", 1)[1], "table", s.body) for s in sources]
        return bulk_paths.add(self.tx, new, step=self.cut.step, state="creating", operation_id=self.run.id)

    def _plan_changed_shards(
        self, changed: Sequence[tuple[_Source, Path]], stream: StreamSpec
    ) -> list[PartPlan]:
        """Return a part for each shard with changes. The first part of a source also creates its stream."""
        conn, after, step = self.tx.conn, self.cut.parent.step, self.cut.step
        new = [s.source.id for s, _ in changed if s.previous is None]
        size = chains.log_bytes(conn, [s.source.id for s, _ in changed], after, step)
        if new:
            size |= sizes.bytes_of(conn, new)
        parts: list[PartPlan] = []
        for source, target in changed:
            bytes_ = size.get(source.source.id, 0)
            first, *others = self._shards(source, bytes_)
            slice_ = CutSlice(
                table_id=source.source.id,
                target_id=target.id,
                after=after,
                step=step,
                whole=source.previous is None,
                before=Digest() if source.previous is None else source.previous.after,
                base=source.base,
                stream=stream,
                within=first,
                continues=source.continues,
                was=source.was,
            )
            path = source.source.path.removesuffix(f"/{paths.IMPL_TABLE}")
            each = bytes_ // (len(others) + 1)  # The sizes of the shards are not known: assume equal sizes.
            parts.append(PartPlan("slice", slice_, path=path, shard=0, bytes=each))
            parts += [
                PartPlan("slice shard", slice_.shard(within), path=path, shard=number, bytes=each)
                for number, within in enumerate(others, start=1)
            ]
        return parts

    def _shards(self, source: _Source, size: int) -> list[KeyRange]:
        """Return the key range of the first shard, then those of the other shards with changes.

        If all rows of the source must be read, shards without changes are returned too.

        Args:
            size: Bytes of all changes of the source.
        """
        if size <= self.shard_bytes and source.least == 1 and not source.body.schema.bounds:
            return [EVERYWHERE]
        conn, table_id, after, step = self.tx.conn, source.source.id, self.cut.parent.step, self.cut.step
        there = spread(chains.load(conn, table_id, step).segments)
        # The distribution of the changes is not known: assume that it is the distribution of the rows.
        each = sum(s.bytes for s in there) * self.shard_bytes // max(size, self.shard_bytes)
        first, *others = ranges(cuts(source.body.schema.bounds, there, each, source.least))
        if source.previous is None or source.base is not None:
            return [first, *others]  # All rows are read, changed or not.
        logs = chains.log_between(conn, table_id, after, step)
        return [first, *(w for w in others if any(may_hold(log, w) for log in logs))]

    def _drops(self, changed: Sequence[_Source], unchanged: Sequence[_Source]) -> list[PartPlan]:
        """Lock all old streams for dropping, and return the parts that drop the streams of changed sources.

        The old streams of unchanged sources need no such part, because the part that creates their new
        streams already claims the versions of these sources.
        """
        going = [s.old_stream for s in unchanged if s.old_stream is not None]
        self.run.lock(self.tx, going, "dropping")
        replaced = [s.old_stream for s in changed if s.old_stream is not None]
        known = {stream.id for stream in (*going, *replaced)}
        replaced += droppable_streams(self.tx.conn, self.run, self.cut.collection, known)
        return plan_drops(self.tx, self.run, replaced) if replaced else []


def _is_unchanged(source: _Source, head: chains.TableState) -> bool:
    """Return True if the source has no changes since the parent, and its digest is still the recorded one.

    Args:
        head: Present state of the source.
    """
    previous = source.previous
    return (
        previous is not None
        and source.base is None
        and head.step <= source.since
        and head.digest == previous.after
    )


def _find_dropped_columns(table: TableSchema) -> set[int]:
    return set(range(1, table.next_id)) - {c.id for c in table.columns}
