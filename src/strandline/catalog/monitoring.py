"""Monitoring queries. Each function runs a number of queries that does not depend on the number of tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, literal_column, or_, select

from strandline.catalog import paths, sqltables
from strandline.catalog.chains import WrittenBytes


@dataclass(frozen=True)
class Lag:
    """How far a user's stream is behind its table.

    Attributes:
        stream: the path of the stream.
        steps: the number of steps from the stream's position to the table's last commit.
        since: the time of the first unprocessed change. None: all changes are processed.
    """

    stream: str
    steps: int
    since: float | None

    def age(self, now: float) -> float:
        """Return the age of the first unprocessed change in seconds; 0 if everything is processed."""
        return 0.0 if self.since is None else max(0.0, now - self.since)


@dataclass(frozen=True)
class Unfinished:
    """An unfinished operation; ``changed`` is the time of its last progress."""

    id: str
    kind: str
    state: str
    created: float
    changed: float


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A failed operation.

    Attributes:
        error: the text of the record of its error.
        collection: the backup collection in its request. None: the request names no collection.
        elsewhere: the URL of the repository in its request, for example to copy a backup to. None: the
            request has no URL.
        level: the level of a verification. None: the request has no level.
    """

    id: str
    kind: str
    ended: float
    error: str | None
    collection: str | None
    elsewhere: str | None
    level: str | None


REPEATED = ("backup", "incremental backup", "send backup", "compact backups", "merge increments")
"""Kinds of operations whose success makes all earlier failures of this kind and collection obsolete.

The failure of an operation of another kind is obsolete when the same request has succeeded later.
"""


def operations_by_state(conn: Connection) -> dict[tuple[str, str], int]:
    """Return the number of operations by kind and state."""
    at = sqltables.operations.c
    rows = conn.execute(select(at.kind, at.state, func.count()).group_by(at.kind, at.state))
    return {(kind, state): count for kind, state, count in rows}


def oldest_unfinished(conn: Connection) -> dict[str, float]:
    """Return the time when the oldest unfinished operation of each kind was created, by kind."""
    at = sqltables.operations.c
    first = func.min(at.created).label("first")
    rows = conn.execute(select(at.kind, first).where(at.ended.is_(None)).group_by(at.kind))
    return {row.kind: row.first for row in rows}


def list_unfinished(conn: Connection) -> list[Unfinished]:
    """Return the operations that have not ended, oldest first."""
    at, part = sqltables.operations.c, sqltables.parts.c
    last = func.max(case((part.began > part.changed, part.began), else_=part.changed))
    changed = select(last).where(part.operation_id == at.id).scalar_subquery()
    rows = conn.execute(
        select(at.id, at.kind, at.state, at.created, func.coalesce(changed, at.created))
        .where(at.ended.is_(None))
        .order_by(at.number)
    )
    return [Unfinished(*row) for row in rows]


def failed_operations(conn: Connection) -> list[Failed]:
    """Return the failed operations that still matter, oldest first.

    An operation does not matter any more if a later success made it obsolete (``REPEATED``), or if its
    collection was dropped.
    """
    at, later = sqltables.operations.c, sqltables.operations.alias("later").c
    repeated = (
        select(later.id)
        .where(
            later.kind == at.kind,
            later.request == at.request,
            later.state == "done",
            later.number > at.number,
        )
        .exists()
    )
    last = (
        select(*_subject(later), func.max(later.number).label("number"))
        .where(later.state == "done", later.kind.in_((*REPEATED, "drop collection")))
        .group_by(*_subject(later))
        .subquery()
    )
    kind, collection, elsewhere, backup = _subject(at)
    same_place = and_(last.c.elsewhere == elsewhere, last.c.backup == backup)
    replaces = or_(
        last.c.kind == "drop collection",
        and_(last.c.kind == kind, kind.in_(REPEATED), same_place),
        and_(last.c.kind == "backup", kind == "incremental backup"),
    )
    replaced = (
        select(last.c.number)
        .where(last.c.collection == collection, last.c.number > at.number, replaces)
        .exists()
    )
    rows = conn.execute(
        select(
            at.id,
            at.kind,
            at.ended,
            at.error,
            collection,
            sqltables.text_in(at.request, "url").label("elsewhere"),
            sqltables.text_in(at.request, "level").label("level"),
        )
        .where(at.state == "failed", ~repeated, ~replaced)
        .order_by(at.number)
    )
    return [Failed(**row._mapping) for row in rows]


def _subject(at: Any) -> tuple[ColumnElement[Any], ...]:
    """Return the subject of an operation: kind, collection, URL of a copy, and copied backup.

    The last two are empty if the operation does not copy a backup.
    """
    url = sqltables.text_in(at.request, "url")
    # A literal: in GROUP BY, PostgreSQL would not recognise two parameters as the same expression.
    none: ColumnElement[str] = literal_column("''")
    backup = case((url.is_(None), none), else_=func.coalesce(sqltables.text_in(at.request, "backup"), none))
    return (
        at.kind.label("kind"),
        sqltables.text_in(at.request, "collection").label("collection"),
        func.coalesce(url, none).label("elsewhere"),
        backup.label("backup"),
    )


def count_held_bytes(conn: Connection) -> dict[int, int]:
    """Return the bytes of segments that tables no longer need but streams keep, by the owner's path id.

    The owner of a backup collection's streams is the collection. A user's stream is its own owner.
    """
    hold, chain, segment, owner = (
        sqltables.holds.c,
        sqltables.chains.c,
        sqltables.segments.c,
        sqltables.paths.c,
    )
    changes = and_(segment.role == "log", segment.upto > hold.step)
    needed = or_(changes, and_(hold.keeps_state, chain.removed > hold.step))
    whose = func.coalesce(owner.owner_id, owner.id)
    # Count a segment once if several streams of one owner keep it.
    kept = (
        select(whose.label("whose"), segment.id, segment.bytes)
        .distinct()
        .join_from(sqltables.holds, sqltables.paths, owner.id == hold.owner_id)
        .join(sqltables.chains, chain.table_id == hold.table_id)
        .join(sqltables.segments, segment.id == chain.segment_id)
        .where(owner.type == "stream", chain.removed.is_not(None), chain.superseded.is_(False), needed)
        .subquery()
    )
    rows = conn.execute(select(kept.c.whose, func.sum(kept.c.bytes)).group_by(kept.c.whose))
    return {path_id: int(size) for path_id, size in rows}


def bytes_within(conn: Connection, root_id: int) -> int:
    """Return the bytes of all tables below a path.

    The tree is read level by level, without the bodies of paths, which may be large.
    """
    at, chain, segment = sqltables.paths.c, sqltables.chains.c, sqltables.segments.c
    below = select(at.id).where(sqltables.among(at.parent_id, "parents"))
    size = (
        select(func.coalesce(func.sum(segment.bytes), 0))
        .join_from(sqltables.chains, sqltables.segments, segment.id == chain.segment_id)
        .where(chain.removed.is_(None), sqltables.among(chain.table_id, "tables"))
    )
    total, level = 0, [root_id]
    while level := list(conn.execute(below, {"parents": level}).scalars()):
        total += int(conn.execute(size, {"tables": level}).scalar_one())
    return total


def written_bytes(conn: Connection) -> dict[str, WrittenBytes]:
    """Return the bytes written to each table with its indexes, by path. Unwritten tables are left out."""
    at = sqltables.tables.c
    rows = conn.execute(
        select(at.path_id, at.committed_bytes, at.merged_bytes).where(
            at.committed_bytes + at.merged_bytes > 0
        )
    ).all()
    named = _names(conn, [row.path_id for row in rows])
    found: dict[str, WrittenBytes] = {}
    for path_id, committed, merged in rows:
        path = named[path_id]
        if path.endswith(f"/{paths.IMPL_TABLE}"):
            path = path.rsplit("/", 2)[0]
        if not path.startswith("/."):  # Not in the bin, not a backup, and not replaced by a restore.
            found[path] = found.get(path, WrittenBytes()) + WrittenBytes(committed, merged)
    return found


def lags(conn: Connection) -> dict[int, Lag]:
    """Return how far users' streams are behind their tables, by the id of the stream."""
    hold, table, owner, commit = sqltables.holds.c, sqltables.tables.c, sqltables.paths.c, sqltables.commits.c
    first = (
        select(func.min(commit.time))
        .where(commit.table_id == hold.table_id, commit.step > hold.step)
        .scalar_subquery()
    )
    rows = conn.execute(
        select(owner.id, table.step - hold.step, first)
        .join_from(sqltables.holds, sqltables.paths, owner.id == hold.owner_id)
        .join(sqltables.tables, table.path_id == hold.table_id)
        .where(owner.type == "stream", owner.owner_id.is_(None))
    ).all()
    named = _names(conn, [path_id for path_id, _, _ in rows])
    return {path_id: Lag(named[path_id], max(0, steps), since) for path_id, steps, since in rows}


def _names(conn: Connection, path_ids: Iterable[int]) -> dict[int, str]:
    return {path.id: path.path for path in paths.by_ids(conn, path_ids)}
