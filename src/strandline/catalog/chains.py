"""Chains of segments in the catalog.

A row of ``chains`` says that a segment is part of a table's state from step ``added`` on. If ``removed`` is
set, the segment is part of the state before this step only; ``removed_at`` is the time of the removal.

A merge replaces log segments by one segment that holds exactly the same changes, each with its step. The
replaced rows are marked ``superseded``: only readers that already have them in their plans need them. The
``reaches`` of the new row is the lowest ``reaches`` of the replaced rows, and the new row is part of every
state from this step on. Readers of such a state ignore changes later than the step that they read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    func,
    or_,
    select,
    update,
)

from strandline.catalog import sessions, sqltables
from strandline.catalog.chain_cache import ChainCache
from strandline.catalog.conflicts import Ended, Stale
from strandline.catalog.transactions import Writer, current_step
from strandline.chunks import chunks
from strandline.errors import InvalidArgument, PathNotFound, PreconditionFailed
from strandline.model import PENDING, Chain, Digest, Segment, decode_key, encode_key


def is_part_at(step: int | BindParameter[int]) -> ColumnElement[bool]:
    """Build the condition that a row of ``chains`` is part of its table's state at a step."""
    at = sqltables.chains.c
    return and_(at.superseded.is_(False), at.reaches <= step, or_(at.removed.is_(None), at.removed > step))


def is_log_between(after: int, upto: int) -> ColumnElement[bool]:
    """Build the condition that a row of ``chains`` belongs to a log with changes in ``(after, upto]``."""
    segment = sqltables.segments.c
    window = and_(segment.role == "log", segment.upto > after, segment.after < upto)
    return and_(sqltables.chains.c.superseded.is_(False), window)


# Built once: SQLAlchemy takes longer to build a statement than SQLite takes to answer it.
_STATE = select(sqltables.tables).where(sqltables.tables.c.path_id == bindparam("table"))
_STATES = select(sqltables.tables).where(sqltables.among(sqltables.tables.c.path_id, "tables"))
_CHAIN = select(sqltables.chains.c.segment_id).where(
    sqltables.chains.c.table_id == bindparam("table"), is_part_at(bindparam("at"))
)
_ALL_CHAINS = select(sqltables.chains.c.table_id, sqltables.chains.c.segment_id).where(
    sqltables.among(sqltables.chains.c.table_id, "tables"),
    sqltables.chains.c.added <= bindparam("at"),
    or_(sqltables.chains.c.removed.is_(None), sqltables.chains.c.removed > bindparam("at")),
)
_SEGMENTS = select(sqltables.segments).where(sqltables.among(sqltables.segments.c.id, "ids"))
_NEW_SEGMENT = (
    "id",
    "role",
    "fresh",
    "stepped",
    "after",
    "upto",
    "rows",
    "bytes",
    "file",
    "checksum",
    "min_key",
    "max_key",
    "data",
)


@dataclass(frozen=True)
class WrittenBytes:
    """The bytes of the segments that commits of rows have written, and those that replaced other segments."""

    committed: int = 0
    merged: int = 0

    def __add__(self, other: WrittenBytes) -> WrittenBytes:
        return WrittenBytes(self.committed + other.committed, self.merged + other.merged)

    @property
    def amplification(self) -> float | None:
        """Bytes written per byte committed. None: nothing was committed."""
        return (self.committed + self.merged) / self.committed if self.committed else None


@dataclass(frozen=True)
class TableState:
    """The head of a table: its last commit, and the oldest step at which it can be read.

    Attributes:
        step: the step of the last commit that changed rows.
        kept_from: the oldest step at which the table can be read.
        followed_step: the step up to which an asynchronous index has the changes of its table. None: this
            table is not the implementation table of such an index.
        written: the bytes that commits and merges have written.
    """

    table_id: int
    step: int
    digest: Digest
    kept_from: int
    followed_step: int | None
    written: WrittenBytes = field(default=WrittenBytes(), kw_only=True)


def state(conn: Connection, table_id: int) -> TableState:
    row = conn.execute(_STATE, {"table": table_id}).one_or_none()
    if row is None:
        raise Stale(table_id, "it was dropped")
    return state_of(row)


def states(conn: Connection, table_ids: Iterable[int]) -> dict[int, TableState]:
    """Return the heads of tables, by id. Tables that do not exist are left out."""
    return {row.path_id: state_of(row) for row in conn.execute(_STATES, {"tables": list(table_ids)}).all()}


def check_kept(head: TableState, step: int) -> None:
    """Raise Stale if segments of the state at ``step``, or of changes after it, may have been collected."""
    if head.kept_from > step:
        raise Stale(head.table_id, f"step {step} is no longer kept")


def state_of(row: Row[Any]) -> TableState:
    """Return the head stored in a row of ``tables``."""
    return TableState(
        row.path_id,
        row.step,
        Digest.parse(row.rows, row.digest),
        row.kept_from,
        row.followed_step,
        written=WrittenBytes(row.committed_bytes, row.merged_bytes),
    )


def check_readable(conn: Connection, table_id: int, path: str, step: int) -> None:
    """Refuse a step that has not been committed yet, or whose segments may have been collected."""
    now = current_step(conn)
    if step < 0 or step > now:
        raise InvalidArgument(f"step {step} has not been committed yet", f"The last step is {now}.")
    kept_from = state(conn, table_id).kept_from
    if step < kept_from:
        created = conn.execute(
            select(sqltables.paths.c.created_step).where(sqltables.paths.c.id == table_id)
        ).scalar_one()
        if step < created:
            raise PathNotFound(
                f"{path} did not exist at step {step}",
                f"It exists since step {created}; ask for that step or a later one.",
            )
        raise PreconditionFailed(
            f"the state of {path} at step {step} is no longer kept",
            f"The oldest readable step is {kept_from}; pin a step with db.pin() to keep it, or restore a "
            "backup.",
        )


def load_kept(conn: Connection, table_id: int, step: int) -> Chain:
    """Return the chain that folds to the table's state at ``step``.

    Raises Stale if the table was dropped or no longer keeps the step.
    """
    check_kept(state(conn, table_id), step)
    return load(conn, table_id, step)


def log_kept(conn: Connection, table_id: int, after: int, upto: int) -> tuple[Segment, ...]:
    """Return the log segments that hold every change in ``(after, upto]``, for callers without a hold.

    Raises Stale if some of these segments may have been collected.
    """
    check_kept(state(conn, table_id), after)
    return log_between(conn, table_id, after, upto)


def load(conn: Connection, table_id: int, step: int) -> Chain:
    """Return the chain that folds to the table's state at ``step``.

    A pin, a hold, or the caller's transaction must keep the step readable.
    """
    ids = conn.execute(_CHAIN, {"table": table_id, "at": step}).scalars()
    return Chain(in_order(segments(conn, ids)), step)


def log_between(conn: Connection, table_id: int, after: int, upto: int) -> tuple[Segment, ...]:
    """Return the log segments that hold every change in ``(after, upto]``.

    This includes segments that the table's present state no longer needs. A stream or a pin must hold the
    segments.
    """
    ids = conn.execute(
        select(sqltables.chains.c.segment_id)
        .join(sqltables.segments, sqltables.segments.c.id == sqltables.chains.c.segment_id)
        .where(sqltables.chains.c.table_id == table_id, is_log_between(after, upto))
    ).scalars()
    return in_order(segments(conn, ids))


def log_rows(conn: Connection, table_id: int, after: int, upto: int) -> int:
    """Return the number of changes in the logs of ``log_between``."""
    rows = (
        select(func.coalesce(func.sum(sqltables.segments.c.rows), 0))
        .join(sqltables.chains, sqltables.segments.c.id == sqltables.chains.c.segment_id)
        .where(sqltables.chains.c.table_id == table_id, is_log_between(after, upto))
    )
    return int(conn.execute(rows).scalar_one())


def log_bytes(conn: Connection, table_ids: Iterable[int], after: int, upto: int) -> dict[int, int]:
    """Return the bytes of the logs with changes in ``(after, upto]``, by table id.

    Tables without changes are left out.
    """
    found: dict[int, int] = {}
    for chunk in chunks(table_ids):
        sizes = (
            select(sqltables.chains.c.table_id, func.sum(sqltables.segments.c.bytes))
            .join(sqltables.segments, sqltables.segments.c.id == sqltables.chains.c.segment_id)
            .where(sqltables.chains.c.table_id.in_(chunk), is_log_between(after, upto))
            .group_by(sqltables.chains.c.table_id)
        )
        found |= {row[0]: int(row[1]) for row in conn.execute(sizes)}
    return found


def segments(conn: Connection, ids: Iterable[int]) -> list[Segment]:
    """Return the segments with these ids, in this order.

    Segments never change, so they come from the process's cache if it has them.
    """
    wanted = list(ids)
    cache = cache_of(conn)
    known = None if cache is None else cache.segments
    found = {} if known is None else {i: s for i in wanted if (s := known.find(i)) is not None}
    missing = [i for i in wanted if i not in found]
    for chunk in chunks(missing):  # Segments may contain rows inline, so do not load all of them at once.
        for row in conn.execute(_SEGMENTS, {"ids": chunk}):
            found[row.id] = _segment(row)
            if known is not None:
                known.put(row.id, found[row.id])
    return [found[i] for i in wanted]


def select_existing(conn: Connection, ids: Iterable[int]) -> set[int]:
    """Return the ids of segments that exist in the catalog now. Does not use the cache."""
    at = sqltables.segments.c
    return {i for chunk in chunks(ids) for i in conn.execute(select(at.id).where(at.id.in_(chunk))).scalars()}


def inline_rows(conn: Connection, ids: Iterable[int]) -> Iterator[tuple[int, bytes | None, str]]:
    """Yield id, data and checksum of segments as they are in the catalog now. Does not use the cache."""
    at = sqltables.segments.c
    for chunk in chunks(ids):
        for row in conn.execute(select(at.id, at.data, at.checksum).where(at.id.in_(chunk))):
            yield row.id, row.data, row.checksum


def same_content(conn: Connection, checksums: Iterable[str]) -> dict[str, list[Segment]]:
    """Return all segments that have a file and one of these checksums, by checksum."""
    at, found = sqltables.segments.c, defaultdict[str, list[Segment]](list)
    for chunk in chunks(checksums):
        rows = select(sqltables.segments).where(at.checksum.in_(chunk), at.file.is_not(None)).order_by(at.id)
        for row in conn.execute(rows):
            found[row.checksum].append(_segment(row))
    return found


def insert_segments(tx: Writer, new: Sequence[Segment], step: int) -> list[int]:
    """Insert rows for the new segments of one table and return their ids, as ``insert_all`` does."""
    return insert_all(tx, {0: new}, step)[0]


def insert_all(tx: Writer, new: Mapping[int, Sequence[Segment]], step: int) -> dict[int, list[int]]:
    """Insert rows for the new segments of many tables; return their ids, by table id.

    The number of statements does not depend on the number of segments or tables. Raises Ended if the session
    that wrote a file has ended, because the collector may have removed the file.

    Args:
        new: the segments, by table id.
        step: the step of the changes in pending segments.
    """
    every = [segment for segments in new.values() for segment in segments]
    files = [s.file for s in every if s.file is not None]
    if files and (lost := sessions.find_ended_writer(tx.conn, files)):
        raise Ended(0, f"the session that wrote {lost} has ended")
    ids = tx.new_ids(sqltables.segments, len(every)) if every else ()
    tx.insert(sqltables.segments, _NEW_SEGMENT, [_row(i, s, step) for i, s in zip(ids, every, strict=True)])
    numbers = iter(ids)
    return {table_id: list(islice(numbers, len(segments))) for table_id, segments in new.items()}


def _row(id_: int, segment: Segment, step: int) -> tuple[Any, ...]:
    pending = segment.upto >= PENDING
    return (
        id_,
        segment.role,
        segment.fresh,
        segment.stepped,
        step - 1 if pending else segment.after,
        step if pending else segment.upto,
        segment.rows,
        segment.bytes,
        segment.file,
        segment.checksum,
        None if segment.min_key is None else json.dumps(encode_key(segment.min_key)),
        None if segment.max_key is None else json.dumps(encode_key(segment.max_key)),
        segment.data,
    )


def end(tx: Writer, table_ids: Iterable[int]) -> None:
    """End the chains of dropped tables at the writer's step."""
    at = sqltables.chains.c
    for chunk in chunks(table_ids):
        ends = update(sqltables.chains).where(at.table_id.in_(chunk), at.removed.is_(None))
        tx.conn.execute(ends.values(removed=tx.step, removed_at=tx.now))


def replace(tx: Writer, table_id: int, old: Sequence[Segment], *, merged: bool) -> int:
    """Remove segments from a table's chain at the writer's step; return ``reaches`` of their replacement.

    Raises Stale if one of these segments is no longer in the chain.

    Args:
        merged: whether the replacement holds exactly the same changes, so that only readers with the old
            segments in their plans still need them.
    """
    at = sqltables.chains.c
    live = {
        row.segment_id: row.reaches
        for row in tx.conn.execute(
            select(sqltables.chains).where(at.table_id == table_id, at.removed.is_(None))
        )
    }
    check_live(table_id, live, old)
    for gone in chunks(s.id for s in old):
        tx.conn.execute(
            update(sqltables.chains)
            .where(at.table_id == table_id, at.segment_id.in_(gone))
            .values(removed=tx.step, removed_at=tx.now, superseded=merged)
        )
    return min(live[s.id] for s in old) if merged else tx.step


def check_live(table_id: int, live: Container[int], old: Iterable[Segment]) -> None:
    """Raise Stale unless all segments to be replaced are part of the present state.

    Segments that were added later may stay: the replacement does not contain their changes.
    """
    if not all(s.id in live for s in old):
        raise Stale(table_id, "its segments were replaced meanwhile")


def attach(
    tx: Writer, table_id: int, segment_ids: Iterable[int], step: int, reaches: int | None = None
) -> None:
    """Add segments to a table's chain from ``step`` on. The same segment may be in many chains.

    Args:
        reaches: the first step whose state is read with the segments. It is earlier than ``step`` if the
            segments are a merge of older ones. None: ``step``.
    """
    attach_all(tx, {table_id: segment_ids}, step, reaches)


def attach_all(
    tx: Writer, segment_ids: Mapping[int, Iterable[int]], step: int, reaches: int | None = None
) -> None:
    """Add segments to the chains of many tables from ``step`` on.

    Args:
        segment_ids: the ids of the segments, by table id.
        reaches: the step from which on the segments serve the tables' states. None: ``step``.
    """
    columns = ("table_id", "segment_id", "added", "reaches", "superseded")
    since = step if reaches is None else reaches
    rows = [(table_id, i, step, since, False) for table_id, ids in segment_ids.items() for i in ids]
    tx.insert(sqltables.chains, columns, rows)


def copyable_segments(
    conn: Connection, table_ids: Iterable[int], step: int
) -> dict[int, tuple[Segment, ...]]:
    """Return the segments that were the state of each table at ``step``, by table id.

    They are in the order of the chain. ``chain_ids`` says which steps are allowed. Tables without segments
    are left out.
    """
    ids = chain_ids(conn, table_ids, step)
    known = {s.id: s for s in segments(conn, {i for found in ids.values() for i in found})}
    return {table_id: in_order(known[i] for i in found) for table_id, found in ids.items()}


def segments_of_backups(
    conn: Connection, table_ids: Iterable[int], step: int
) -> dict[int, tuple[Segment, ...]]:
    """Return the segments of backup tables at ``step``, in the order of the chain, by table id.

    Tables without segments are left out.
    """
    return segments_at(conn, dict.fromkeys(table_ids, step))


def segments_at(conn: Connection, steps: Mapping[int, int]) -> dict[int, tuple[Segment, ...]]:
    """Return the segments of tables, each at its own step, in the order of the chain, by table id.

    Tables without segments are left out.
    """
    at, found = sqltables.chains.c, defaultdict[int, list[int]](list)
    rows = select(at.table_id, at.segment_id, at.reaches, at.removed)
    for chunk in chunks(steps):
        for row in conn.execute(rows.where(at.table_id.in_(chunk), at.superseded.is_(False))):
            step = steps[row.table_id]
            if row.reaches <= step and (row.removed is None or row.removed > step):
                found[row.table_id].append(row.segment_id)
    known = {s.id: s for s in segments(conn, {i for ids in found.values() for i in ids})}
    return {table_id: in_order(known[i] for i in ids) for table_id, ids in found.items()}


def supersede(tx: Writer, table_ids: Iterable[int]) -> None:
    """Mark all segments of tables as superseded by segments with exactly the same rows.

    Only readers that have the old segments in their plans still need the old segments.
    """
    at = sqltables.chains.c
    for chunk in chunks(table_ids):
        old = update(sqltables.chains).where(at.table_id.in_(chunk), at.removed.is_(None))
        tx.conn.execute(old.values(removed=tx.step, removed_at=tx.now, superseded=True))


def chain_ids(conn: Connection, table_ids: Iterable[int], step: int) -> dict[int, list[int]]:
    """Return the ids of the segments that were the state of each table at ``step``, by table id.

    These segments hold no changes after ``step``, so a copy by reference can attach them. Tables without
    segments are left out. The caller must have pinned ``step`` when it was the current step.
    """
    found = defaultdict[int, list[int]](list)
    for table_id, segment_id in conn.execute(_ALL_CHAINS, {"tables": list(table_ids), "at": step}):
        found[table_id].append(segment_id)
    return found


def in_order(found: Iterable[Segment]) -> tuple[Segment, ...]:
    return tuple(sorted(found, key=lambda s: (s.role != "base", s.upto, s.after, s.id)))


def _segment(row: Row[Any]) -> Segment:
    return Segment(
        id=row.id,
        role=row.role,
        fresh=row.fresh,
        stepped=row.stepped,
        after=row.after,
        upto=row.upto,
        rows=row.rows,
        bytes=row.bytes,
        file=row.file,
        checksum=row.checksum,
        min_key=None if row.min_key is None else decode_key(json.loads(row.min_key)),
        max_key=None if row.max_key is None else decode_key(json.loads(row.max_key)),
        data=row.data,
    )


def cache_of(conn: Connection) -> ChainCache | None:
    """Return the cache of chains. None: the connection is in a write transaction, which uses no cache.

    A write transaction may roll back. The database may then give the ids of its new rows to other rows.
    """
    found: ChainCache | None = conn.get_execution_options().get("strandline_chains")
    return found
