"""Tables in the catalog: their descriptions, their heads, and the holds on them.

A table's description lists its indexes with their versions; an index's version always equals that of its
implementation table. The head has the digest of the last commit, and the oldest step at which the table can
be read. A hold records which changes of a table a stream, or an asynchronous index, still needs. The step of
a stream's hold is its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select, update

from strandline import records
from strandline.catalog import paths, sqltables
from strandline.catalog.conflicts import Stale
from strandline.catalog.paths import Path
from strandline.catalog.sessions import this_user
from strandline.catalog.transactions import Writer
from strandline.chunks import chunks
from strandline.errors import PathNotFound
from strandline.model import Digest, IndexDef, IndexKind, TableSchema
from strandline.names import did_you_mean
from strandline.records import Record, later

_FORGET = delete(sqltables.tables).where(sqltables.among(sqltables.tables.c.path_id, "gone"))
_NEW_DIGEST: dict[str, Any] = {"rows": bindparam("new_rows"), "digest": bindparam("new_digest")}
_SET_HEAD = (
    update(sqltables.tables).where(sqltables.tables.c.path_id == bindparam("of")).values(**_NEW_DIGEST)
)
_SET_COMMITS = (
    update(sqltables.commits).where(sqltables.commits.c.table_id == bindparam("of")).values(**_NEW_DIGEST)
)
# One statement per column, so that each can use its own index.
_ENDS = [
    delete(sqltables.holds).where(sqltables.among(column, "gone"))
    for column in (sqltables.holds.c.owner_id, sqltables.holds.c.table_id)
]


@dataclass(frozen=True, kw_only=True)
class IndexRef:
    """An index in its table's description.

    Attributes:
        omitted: whether only the definition of the index exists, and its implementation table has no data.
    """

    name: str
    kind: IndexKind
    columns: tuple[str, ...]
    cover: tuple[str, ...]
    index_id: int
    impl_id: int
    version: int
    omitted: bool = False
    unique: bool = later(False)
    stored: tuple[tuple[str, str], ...] = later(())

    @staticmethod
    def of(index: IndexDef, *, index_id: int, impl_id: int, version: int, omitted: bool = False) -> IndexRef:
        return IndexRef(
            name=index.name,
            kind=index.kind,
            columns=index.columns,
            cover=index.cover,
            index_id=index_id,
            impl_id=impl_id,
            version=version,
            omitted=omitted,
            unique=index.unique,
            stored=index.stored,
        )

    @cached_property
    def definition(self) -> IndexDef:
        return IndexDef(
            name=self.name,
            kind=self.kind,
            columns=self.columns,
            cover=self.cover,
            unique=self.unique,
            stored=self.stored,
        )


@dataclass(frozen=True, kw_only=True)
class TableBody(Record):
    """The record of a table's path.

    Attributes:
        increment: whether the table is part of an incremental backup, so that it has changes instead of rows.
    """

    schema: TableSchema
    indexes: tuple[IndexRef, ...] = ()
    increment: bool = later(False)


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """The description of a table for planning, without rows and segments.

    Attributes:
        since: the step from which on this description is valid. At a step, the description with the largest
            ``since`` up to this step is valid.
    """

    id: int
    path: str
    version: int
    state: str
    operation_id: str | None
    created_step: int
    schema: TableSchema
    indexes: tuple[IndexRef, ...]
    since: int = field(default=0, compare=False)

    @staticmethod
    def of(path: Path, since: int = 0) -> TableInfo:
        body = path.record(TableBody)
        return TableInfo(
            id=path.id,
            path=path.path,
            version=path.version,
            state=path.state,
            operation_id=path.operation_id,
            created_step=path.created_step,
            schema=body.schema,
            indexes=body.indexes,
            since=since,
        )

    def body(self) -> TableBody:
        return TableBody(schema=self.schema, indexes=self.indexes)

    def index(self, name: str) -> IndexRef:
        for ref in self.indexes:
            if ref.definition.name == name:
                return ref
        raise PathNotFound(
            f"{self.path} has no index {name!r}",
            did_you_mean(name, (i.definition.name for i in self.indexes)),
        )


def begin_following(tx: Writer, impl_id: int, table_id: int, step: int) -> None:
    """Record that an asynchronous index has the state of its table at ``step``.

    The index is brought up to date from this step on, so a hold keeps the table's state at ``step``.
    """
    tx.conn.execute(
        update(sqltables.tables).where(sqltables.tables.c.path_id == impl_id).values(followed_step=step)
    )
    add_holds(tx, Hold(impl_id, table_id, step, keeps_state=True))


def add_state(tx: Writer, table_id: int, step: int, digest: Digest) -> None:
    add_states(tx, {table_id: digest}, step)


def add_states(
    tx: Writer, digests: Mapping[int, Digest], step: int, followed: Mapping[int, int] | None = None
) -> None:
    """Add the first states of tables.

    Args:
        digests: the digest of each table's rows, by table id.
        followed: the step that each asynchronous index among the tables has reached, by table id.
    """
    steps, author = followed or {}, this_user()
    tx.insert(
        sqltables.tables,
        ("path_id", "step", "rows", "digest", "kept_from", "followed_step"),
        [(i, step, of.rows, of.hex, step, steps.get(i)) for i, of in digests.items()],
    )
    tx.insert(
        sqltables.commits,
        ("table_id", "step", "kind", "rows", "digest", "time", "author"),
        [(i, step, "create", of.rows, of.hex, tx.now, author) for i, of in digests.items()],
    )


def digest_at(conn: Connection, table_id: int, step: int) -> Digest:
    """Return the row count and digest recorded for a table's state at ``step``."""
    row = conn.execute(
        select(sqltables.commits)
        .where(sqltables.commits.c.table_id == table_id, sqltables.commits.c.step <= step)
        .order_by(sqltables.commits.c.step.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        raise Stale(table_id, "it was dropped")
    return Digest.parse(row.rows, row.digest)


def digests_at(conn: Connection, table_ids: Iterable[int], step: int) -> dict[int, Digest]:
    """Return the row counts and digests of many tables at ``step``, by id. Missing tables are left out."""
    table, commit_, earlier = sqltables.tables.c, sqltables.commits.c, sqltables.commits.alias()
    last = (
        select(func.max(earlier.c.step))
        .where(earlier.c.table_id == table.path_id, earlier.c.step <= step)
        .correlate(sqltables.tables)
        .scalar_subquery()
    )
    at_last = and_(commit_.table_id == table.path_id, commit_.step == last)
    recorded = select(sqltables.commits).select_from(sqltables.tables.join(sqltables.commits, at_last))
    found: dict[int, Digest] = {}
    for chunk in chunks(table_ids):
        rows = conn.execute(recorded.where(table.path_id.in_(chunk)))
        found |= {row.table_id: Digest.parse(row.rows, row.digest) for row in rows}
    return found


def forget(tx: Writer, ids: Sequence[int]) -> None:
    """Delete the states of dropped tables, and the holds of all dropped paths."""
    tx.conn.execute(_FORGET, {"gone": list(ids)})
    _end_holds(tx, ids)


def begin_at(tx: Writer, ids: Sequence[int]) -> None:
    """Set the writer's step as the first step of tables that were filled before they became visible."""
    for chunk in chunks(ids):
        head, commit, chain = sqltables.tables, sqltables.commits, sqltables.chains
        tx.conn.execute(update(head).where(head.c.path_id.in_(chunk)).values(step=tx.step, kept_from=tx.step))
        tx.conn.execute(update(commit).where(commit.c.table_id.in_(chunk)).values(step=tx.step, time=tx.now))
        tx.conn.execute(
            update(chain).where(chain.c.table_id.in_(chunk)).values(added=tx.step, reaches=tx.step)
        )


def set_digest(tx: Writer, table_id: int, digest: Digest) -> None:
    """Set the digest in a table's head."""
    at = sqltables.tables.c.path_id == table_id
    tx.conn.execute(update(sqltables.tables).where(at).values(rows=digest.rows, digest=digest.hex))


def set_first_digest(tx: Writer, table_id: int, digest: Digest) -> None:
    """Set the digest of a table that was filled before it became visible."""
    set_first_digests(tx, {table_id: digest})


def set_first_digests(tx: Writer, digests: Mapping[int, Digest]) -> None:
    """Set the digests of tables that were filled before they became visible, by id."""
    values = [{"of": i, "new_rows": d.rows, "new_digest": d.hex} for i, d in digests.items()]
    if values:
        tx.conn.execute(_SET_HEAD, values)
        tx.conn.execute(_SET_COMMITS, values)


def move_followed(tx: Writer, impl_id: int, followed: int, step: int) -> None:
    """Record that an asynchronous index has advanced from step ``followed`` to ``step``.

    Raises Stale if another process has advanced the index in the meantime.
    """
    at = sqltables.tables.c
    query = update(sqltables.tables).where(at.path_id == impl_id, at.followed_step == followed)
    if tx.conn.execute(query.values(followed_step=step)).rowcount != 1:
        raise Stale(impl_id, "another process brought the index up to date")
    move_hold(tx, impl_id, step)


def oldest_kept(conn: Connection) -> int:
    """Return the oldest step at which every table can be read."""
    kept: int | None = conn.execute(select(func.max(sqltables.tables.c.kept_from))).scalar_one()
    return kept or 0


def publish(tx: Writer, path_ids: Sequence[int]) -> None:
    paths.publish(tx, paths.by_ids(tx.conn, path_ids))


def at_step(conn: Connection, row: Path, step: int) -> TableInfo:
    """Return a table's description as of ``step``."""
    found = conn.execute(
        select(sqltables.descriptions)
        .where(sqltables.descriptions.c.path_id == row.id, sqltables.descriptions.c.step <= step)
        .order_by(sqltables.descriptions.c.version.desc())
        .limit(1)
    ).one_or_none()
    if found is None:
        raise PathNotFound(
            f"{row.path} did not exist at step {step}",
            f"It exists since step {row.created_step}; ask for that step or a later one.",
        )
    return TableInfo.of(row._replace(version=found.version, body=found.body), found.step)


def since(conn: Connection, path_ids: Sequence[int]) -> dict[int, int]:
    """Return the step from which on the present description of each path is valid, by path id."""
    at = sqltables.descriptions.c
    found: dict[int, int] = {}
    for chunk in chunks(path_ids):
        last = select(at.path_id, func.max(at.step)).where(at.path_id.in_(chunk)).group_by(at.path_id)
        found |= {row[0]: row[1] for row in conn.execute(last)}
    return found


def last_drop(conn: Connection, table_id: int) -> int:
    """Return the last step at which a column of the table was dropped. 0: no column was dropped."""
    rows = conn.execute(
        select(sqltables.descriptions)
        .where(sqltables.descriptions.c.path_id == table_id)
        .order_by(sqltables.descriptions.c.version)
    ).all()
    step, before = 0, set[int]()
    for row in rows:
        what = f"version {row.version} of the description of path {table_id}"
        columns = {column.id for column in records.from_text(TableBody, row.body, what).schema.columns}
        if before - columns:
            step = row.step
        before = columns
    return step


@dataclass(frozen=True)
class Hold:
    """A hold: it keeps all changes of a table after a step for its owner.

    Attributes:
        owner_id: the path id of the owner, which is the stream or index that needs the changes.
        step: all changes after this step are kept.
        keeps_state: whether the owner also needs the table's state at ``step``.
    """

    owner_id: int
    table_id: int
    step: int
    keeps_state: bool


def add_holds(tx: Writer, *new: Hold) -> None:
    columns = ("owner_id", "table_id", "step", "keeps_state")
    tx.insert(sqltables.holds, columns, [(h.owner_id, h.table_id, h.step, h.keeps_state) for h in new])


def find_hold(conn: Connection, owner_id: int) -> Hold | None:
    row = conn.execute(select(sqltables.holds).where(sqltables.holds.c.owner_id == owner_id)).one_or_none()
    return None if row is None else Hold(row.owner_id, row.table_id, row.step, row.keeps_state)


def held_steps(conn: Connection, owner_ids: Iterable[int]) -> dict[int, int]:
    """Return the step of each owner's hold, by owner id."""
    at, found = sqltables.holds.c, dict[int, int]()
    for chunk in chunks(owner_ids):
        rows = conn.execute(select(at.owner_id, at.step).where(at.owner_id.in_(chunk)))
        found |= {row.owner_id: row.step for row in rows}
    return found


def move_hold(tx: Writer, owner_id: int, step: int) -> None:
    tx.conn.execute(update(sqltables.holds).where(sqltables.holds.c.owner_id == owner_id).values(step=step))


def keep_held_state(tx: Writer, owner_id: int, keeps: bool) -> None:
    """Set whether a hold also keeps the table's state at its step."""
    of = sqltables.holds.c.owner_id == owner_id
    tx.conn.execute(update(sqltables.holds).where(of).values(keeps_state=keeps))


def is_held(conn: Connection, table_id: int) -> bool:
    found = select(sqltables.holds.c.owner_id).where(sqltables.holds.c.table_id == table_id).limit(1)
    return conn.execute(found).one_or_none() is not None


def _end_holds(tx: Writer, path_ids: Iterable[int]) -> None:
    """Delete the holds that dropped paths own, and the holds of other owners on dropped tables."""
    if gone := list(path_ids):
        for ends in _ENDS:
            tx.conn.execute(ends, {"gone": gone})


def size_kept_by(conn: Connection, hold: Hold) -> tuple[int, int]:
    """Return number and bytes of the segments that the table no longer needs but this hold keeps.

    Other holds may keep the same segments.
    """
    chain, segment = sqltables.chains.c, sqltables.segments.c
    needed = and_(segment.role == "log", segment.upto > hold.step)
    if hold.keeps_state:
        needed = or_(needed, chain.removed > hold.step)
    count, size = conn.execute(
        select(func.count(), func.coalesce(func.sum(segment.bytes), 0))
        .select_from(sqltables.chains.join(sqltables.segments, segment.id == chain.segment_id))
        .where(
            chain.table_id == hold.table_id,
            chain.removed.is_not(None),
            chain.superseded.is_(False),
            needed,
        )
    ).one()
    return int(count), int(size)
