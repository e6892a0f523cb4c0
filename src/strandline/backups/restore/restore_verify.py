"""Verification of a restore before it is published: all restored data is read and compared with the backup.

1. For each table, a part splits the table and its indexes into shards.
2. For each shard, a part verifies the checksums of the segments that begin in it, and computes the digest of
   its rows.
3. At the end of the restore, the sums of these digests are compared with the recorded digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from strandline.backups.restore.restore_parts import (
    NOTHING_PUBLISHED,
    RestorePart,
    RestoreRun,
    check_time,
    deadline_of,
    incoming_chain,
)
from strandline.backups.verify.verify_objects import present
from strandline.catalog import chains, paths
from strandline.catalog.paths import require_id
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import Writer, current_step
from strandline.errors import Corrupted
from strandline.model import Chain, Digest, KeyRange, Segment, State
from strandline.operations.kind import Handler, Part, PartPlan
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.storage.shards import begins_in, coarser, cuts, ranges, spread

SMALLER = 16
"""Maximum number of verified shards for each ``shard_bytes`` bytes of a table or index."""


@dataclass(frozen=True, kw_only=True)
class Checked(Record):
    """A restored table that is verified together with its indexes."""

    table_id: int


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A shard of a table, or of one of its indexes.

    Attributes:
        index: Name of the index. None: the table itself.
        within: Key range of the shard.
        digest: Digest of the rows. None: they are not read yet.
        entries: For a shard of a table: digests of the index entries computed from its rows, by index name.
            None: the rows are not read yet.
    """

    index: str | None
    within: KeyRange
    digest: Digest | None = later()
    entries: Mapping[str, Digest] | None = later()


@dataclass(frozen=True, kw_only=True)
class CheckedShard(Record):
    """The shards that one part verifies: one large shard, or several small ones.

    If a table or its indexes have only one shard each, these shards are verified by the same part.

    Attributes:
        table_id: Id of the table.
        pieces: The shards of the table and its indexes.
        until: Deadline of the whole restore. None: no deadline.
    """

    table_id: int
    pieces: tuple[Piece, ...]
    until: float | None


class VerifyPart(Handler[RestoreRun, Checked]):
    """Part that splits restored tables and their indexes into shards, after all data has arrived."""

    record = Checked

    def __init__(self, runtime: Runtime) -> None:
        self._shard_bytes = runtime.settings.shard_bytes

    def store_all(
        self, tx: Writer, run: RestoreRun, parts: Sequence[Part[Checked]], made: Sequence[Any]
    ) -> list[Checked]:
        check_time(tx, run)
        infos = [TableInfo.of(path) for path in paths.by_ids(tx.conn, [p.body.table_id for p in parts])]
        ids = [i for table in infos for i in (table.id, *(ref.impl_id for ref in table.indexes))]
        found = chains.copyable_segments(tx.conn, ids, current_step(tx.conn))
        until, stage = deadline_of(run), parts[0].row.stage + 1
        # Show the paths that the tables have after the restore is published.
        named = {id_: path for path, id_ in run.body.tables.items()}
        shards = [
            PartPlan(
                "verify shard",
                CheckedShard(table_id=table.id, pieces=pieces, until=until),
                stage,
                path=path if pieces[0].index is None else f"{path}/{pieces[0].index}",
                shard=number,
            )
            for table, path in ((table, named.get(table.id, table.path)) for table in infos)
            for number, pieces in enumerate(self._pieces(table, found))
        ]
        run.add_parts(tx, shards)
        return [part.body for part in parts]

    def _pieces(
        self, table: TableInfo, segments: Mapping[int, Sequence[Segment]]
    ) -> Iterator[tuple[Piece, ...]]:
        small = []
        for index, id_ in [(None, table.id), *((ref.name, ref.impl_id) for ref in table.indexes)]:
            bounds, least = (table.schema.bounds, 1) if index is None else ((), len(table.schema.bounds) + 1)
            there = spread(segments.get(id_, ()))
            limits = cuts(bounds, there, self._shard_bytes, least)
            # Limit the number of shards: more shards would not be faster, and each part costs a transaction.
            limits = coarser(limits, SMALLER * sum(s.bytes for s in there) // self._shard_bytes)
            found = [Piece(index=index, within=within) for within in ranges(limits)]
            if len(found) == 1:
                small += found
            else:
                yield from ((piece,) for piece in found)
        if small:
            yield tuple(small)


class VerifyShardPart(RestorePart[CheckedShard]):
    """Part that verifies the checksums of restored shards and computes the digests of their rows."""

    record = CheckedShard

    def _make(self, run: RestoreRun, body: CheckedShard) -> tuple[Piece, ...]:
        with self.runtime.catalog.read() as conn:
            table = TableInfo.of(require_id(conn, body.table_id))
            ids: dict[str | None, int] = {ref.name: ref.impl_id for ref in table.indexes}
            ids[None] = table.id
            held = {p.index: incoming_chain(conn, ids[p.index]) for p in body.pieces}
        among = run.progress.bytes_total
        return tuple(self._read(table, held[piece.index], piece, among) for piece in body.pieces)

    def _read(self, table: TableInfo, chain: Chain, piece: Piece, among: int) -> Piece:
        """Return the shard with its digests.

        Args:
            among: Number of bytes of the whole restore.
        """
        impls = {ref.name: ref.definition.impl_schema(table.schema) for ref in table.indexes}
        _check_bytes(self.runtime, [s for s in chain.segments if begins_in(s, piece.within)])
        state = State(table.schema if piece.index is None else impls[piece.index], chain)
        state = state.narrow(piece.within)
        derived = impls if piece.index is None else {}
        digest, *others = self.runtime.store.checks.digests(
            state, [state.schema, *derived.values()], among=among
        )
        return replace(piece, digest=digest, entries=dict(zip(derived, others, strict=True)))

    def store(
        self, tx: Writer, run: RestoreRun, part: Part[CheckedShard], made: tuple[Piece, ...]
    ) -> CheckedShard:
        return replace(part.body, pieces=made)


def _check_bytes(runtime: Runtime, segments: Sequence[Segment]) -> None:
    """Verify the checksums of the stored bytes. Results in the cache of this process are not used."""
    for finding in runtime.store.checks.find_damaged(present(runtime, segments)):
        raise Corrupted(finding.message, NOTHING_PUBLISHED)


def compare(conn: Connection, run: RestoreRun) -> None:
    """Raise CORRUPTED if a restored table or index differs from its recorded digest.

    Also raise it if the entries of an index do not match the rows of its table.
    """
    found: dict[tuple[int, str | None], Digest] = {}
    derived: dict[tuple[int, str], Digest] = {}
    for shard in run.bodies(conn, "verify shard", CheckedShard):
        for piece in shard.pieces:
            of = (shard.table_id, piece.index)
            found[of] = found.get(of, Digest()) + (piece.digest or Digest())
            for index, digest in (piece.entries or {}).items():
                derived[shard.table_id, index] = derived.get((shard.table_id, index), Digest()) + digest
    infos = [TableInfo.of(path) for path in paths.by_ids(conn, run.body.tables.values())]
    heads = chains.states(conn, [i for t in infos for i in (t.id, *(r.impl_id for r in t.indexes))])
    for table in infos:
        if (table.id, None) not in found:
            # The operation was begun by an earlier version, which has compared this table in another way.
            continue
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
