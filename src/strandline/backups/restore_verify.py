"""The check of a restore before anything of it is published: everything is read again, shard by shard, and
compared with what was recorded when it was backed up.

A part for each table finds out into which shards it and its indexes fall; the part of a shard reads the bytes
of the segments that begin in it, and adds up the rows that are in it. The sums are compared at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline.backups.restore_parts import (
    NOTHING_PUBLISHED,
    RestorePart,
    RestoreRun,
    deadline_of,
    incoming_chain,
)
from strandline.catalog import chains, paths
from strandline.catalog.paths import require_id
from strandline.catalog.tables import TableInfo
from strandline.catalog.writer import Writer
from strandline.errors import Corrupted
from strandline.model import Digest, KeyRange, Segment, State, TableSchema
from strandline.operations.kind import Part, PartPlan
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.storage.shards import begins_in, cuts, ranges, spread


@dataclass(frozen=True, kw_only=True)
class Checked(Record):
    """A table to be compared, with its indexes, with what was recorded."""

    table_id: int


@dataclass(frozen=True, kw_only=True)
class CheckedShard(Record):
    """A shard of a table, or of its ``index``. ``until``: when the time for the whole restore is over. When
    it was read: ``digest`` is what its rows add up to, ``entries`` what they do in the columns of each index
    of the table."""

    table_id: int
    index: str | None
    within: KeyRange
    until: float | None
    digest: Digest | None = later()
    entries: Mapping[str, Digest] | None = later()


class VerifyPart(RestorePart[Checked]):
    """Finds the shards of a table and its indexes, as they are now that all of them are there."""

    record = Checked

    def _make(self, run: RestoreRun, body: Checked) -> list[tuple[str | None, KeyRange]]:
        with self.runtime.catalog.read() as conn:
            table = TableInfo.of(require_id(conn, body.table_id))
            least = len(table.schema.bounds) + 1
            found: dict[str | None, list[KeyRange]] = {None: self._shards(conn, table.id, table.schema, 1)}
            for ref in table.indexes:
                impl = ref.definition.impl_schema(table.schema)
                found[ref.name] = self._shards(conn, ref.impl_id, impl, least)
        return [(index, within) for index, shards in found.items() for within in shards]

    def _shards(self, conn: Connection, table_id: int, schema: TableSchema, least: int) -> list[KeyRange]:
        segments = incoming_chain(conn, table_id).segments
        return ranges(cuts(schema.bounds, spread(segments), self.runtime.settings.shard_bytes, least))

    def configure(
        self, tx: Writer, run: RestoreRun, part: Part[Checked], made: list[tuple[str | None, KeyRange]]
    ) -> Checked:
        table_id, until = part.body.table_id, deadline_of(run)
        shards = [CheckedShard(table_id=table_id, index=i, within=w, until=until) for i, w in made]
        run.add_parts(tx, [PartPlan("verify shard", shard, part.row.stage + 1) for shard in shards])
        return part.body


@dataclass(frozen=True)
class _Sums:
    digest: Digest
    entries: Mapping[str, Digest]


class VerifyShardPart(RestorePart[CheckedShard]):
    """Reads a shard of what was restored."""

    record = CheckedShard

    def _make(self, run: RestoreRun, body: CheckedShard) -> _Sums:
        store = self.runtime.store
        with self.runtime.catalog.read() as conn:
            table = TableInfo.of(require_id(conn, body.table_id))
            impls = {r.name: (r.impl_id, r.definition.impl_schema(table.schema)) for r in table.indexes}
            id_, schema = (table.id, table.schema) if body.index is None else impls[body.index]
            chain = incoming_chain(conn, id_)
        _check_bytes(self.runtime, [s for s in chain.segments if begins_in(s, body.within)])
        state = State(schema, chain).narrowed(body.within)
        wanted = impls if body.index is None else {}
        return _Sums(store.digest(state), {i: store.digest(state, impl) for i, (_, impl) in wanted.items()})

    def configure(self, tx: Writer, run: RestoreRun, part: Part[CheckedShard], made: _Sums) -> CheckedShard:
        return replace(part.body, digest=made.digest, entries=made.entries)

    def time_limit(self, part: Part[CheckedShard]) -> float | None:
        return self.seconds_left(part.body.until)


def _check_bytes(runtime: Runtime, segments: Sequence[Segment]) -> None:
    """Whatever this process remembers of the segments, what counts is what is stored now."""
    inline = {s.id: s for s in segments if s.file is None}
    with runtime.catalog.read() as conn:
        for id_, data, checksum in chains.inline_rows(conn, inline):
            inline[id_] = replace(inline[id_], data=data, checksum=checksum)
    for finding in runtime.store.damaged([inline.get(s.id, s) for s in segments]):
        raise Corrupted(finding.message, NOTHING_PUBLISHED)


def compare(conn: Connection, run: RestoreRun) -> None:
    """Refuse what did not come back as it was recorded."""
    found: dict[tuple[int, str | None], Digest] = {}
    derived: dict[tuple[int, str], Digest] = {}
    for shard in run.bodies(conn, "verify shard", CheckedShard):
        of = (shard.table_id, shard.index)
        found[of] = found.get(of, Digest()) + (shard.digest or Digest())
        for index, digest in (shard.entries or {}).items():
            derived[shard.table_id, index] = derived.get((shard.table_id, index), Digest()) + digest
    infos = [TableInfo.of(path) for path in paths.by_ids(conn, run.body.tables.values())]
    heads = chains.states(conn, [i for t in infos for i in (t.id, *(r.impl_id for r in t.indexes))])
    for table in infos:
        if (table.id, None) not in found:
            continue  # a version that knew no shards has compared it already
        _compare(table.path, heads[table.id].digest, found[table.id, None])
        for ref in table.indexes:
            path, recorded = f"{table.path}/{ref.name}", heads[ref.impl_id].digest
            _compare(path, recorded, found[table.id, ref.name])
            if derived[table.id, ref.name] != recorded:
                raise Corrupted(f"the restored index {path} does not match its table", NOTHING_PUBLISHED)


def _compare(path: str, recorded: Digest, found: Digest) -> None:
    if found != recorded:
        raise Corrupted(
            f"{path} was backed up with {recorded.rows} rows ({recorded.hex}), but {found.rows} rows "
            f"({found.hex}) came back",
            NOTHING_PUBLISHED,
        )
