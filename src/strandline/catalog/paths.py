"""The tree of paths: find, add, change and publish rows of ``paths``.

All functions run inside the caller's transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Float,
    Row,
    Select,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from strandline import names, records
from strandline.catalog import sqltables
from strandline.catalog.transactions import Told, Writer
from strandline.chunks import chunks
from strandline.errors import Internal, InvalidArgument, PathNotFound, UnderOperation
from strandline.records import R, Record, RecordType

READY = "ready"
ROOT_ID = 1
BIN = "bin"
"""Type of the root node of the recycle bin (``recycle_bin``). Ordinary listings omit this node."""
IMPL_TABLE = "indexImplTable"

# Built once, which halves their cost: walking the tree is the catalog's most frequent work.
_ROW = select(sqltables.paths).where(sqltables.paths.c.id == bindparam("row_id"))
_LISTED = sqltables.among(sqltables.paths.c.id, "row_ids")
_ROWS = select(sqltables.paths).where(_LISTED)
_NAME = (sqltables.paths.c.id, sqltables.paths.c.parent_id, sqltables.paths.c.name)
_ABOVE = select(*_NAME).where(_LISTED).cte("above", recursive=True)
_ABOVE = _ABOVE.union(select(*_NAME).where(sqltables.paths.c.id == _ABOVE.c.parent_id))
_NAMES = select(_ABOVE)
"""Statement that selects the names of rows and of all their ancestors, each row once."""
_NAMES_BELOW = (
    select(sqltables.paths.c.name).distinct().where(sqltables.among(sqltables.paths.c.parent_id, "parents"))
)
_SET_STATE = (
    update(sqltables.paths)
    .where(_LISTED)
    .values(state=bindparam("new_state"), operation_id=bindparam("new_operation"))
)
_REMOVE = delete(sqltables.paths).where(_LISTED)
_FORGET = delete(sqltables.descriptions).where(sqltables.among(sqltables.descriptions.c.path_id, "row_ids"))
_UNDER = (
    select(sqltables.paths)
    .where(sqltables.paths.c.operation_id == bindparam("operation"))
    .order_by(sqltables.paths.c.id)
)
_AT_ONCE = 6
"""Maximum number of names of a path that one statement resolves. Each name adds a join."""

# Statements may not read or change the rows of a table in one of these states.
CLOSED_STATES = frozenset({"creating", "dropping", "incoming restore"})
DIRECTORIES = frozenset({"directory", "backup_collection", "backup"})
"""Types of paths that other paths can be created below."""


class Path(NamedTuple):
    """A row of ``paths`` with its full path; ``body`` is the text of its record.

    A named tuple, because an operation may load a hundred thousand paths.
    """

    id: int
    parent_id: int | None
    path: str
    type: str
    version: int
    state: str
    operation_id: str | None
    created_step: int
    body: str

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1]

    def record(self, kind: RecordType[R]) -> R:
        """Return the path's record."""
        return records.from_text(kind, self.body, f"the description of {self.path}")


def find(conn: Connection, path: str) -> Path | None:
    parts = names.split(path)
    if not parts:
        return of_row(conn.execute(_ROW, {"row_id": ROOT_ID}).one(), "/")
    if names.is_binned(names.join(parts)):
        return None
    row: Any = None
    for some in chunks(parts, _AT_ONCE):
        above = ROOT_ID if row is None else row.id
        followed = {f"name_{number}": name for number, name in enumerate(some)}
        row = conn.execute(_path_query(len(some)), {"parent": above, **followed}).one_or_none()
        if row is None:
            return None
    return of_row(row, names.join(parts))


@cache
def _path_query(count: int) -> Select[Any]:
    """Build the statement that resolves ``count`` names, one below the other, starting below ``parent``."""
    tables = [sqltables.paths.alias(f"at_{number}") for number in range(count - 1)] + [sqltables.paths]
    found = select(sqltables.paths).where(tables[0].c.parent_id == bindparam("parent"))
    for upper, lower in pairwise(tables):
        found = found.where(lower.c.parent_id == upper.c.id)
    return found.where(*(at.c.name == bindparam(f"name_{number}") for number, at in enumerate(tables)))


def require(conn: Connection, path: str, type_: str | None = None) -> Path:
    """Return the path; raise PATH_NOT_FOUND with the closest name as a hint if it does not exist.

    Args:
        type_: the type that the path must have. None: any type.
    """
    found = find(conn, path)
    if found is None:
        raise PathNotFound(f"there is no {type_ or 'path'} {names.normalize(path)}", _nearest(conn, path))
    if type_ is not None and found.type != type_:
        raise InvalidArgument(
            f"{found.path} is {names.with_article(found.type)}, not {names.with_article(type_)}",
            f"Name {names.with_article(type_)}.",
        )
    return found


def by_id(conn: Connection, path_id: int) -> Path | None:
    row = conn.execute(_ROW, {"row_id": path_id}).one_or_none()
    return None if row is None else full_paths(conn, [row])[0]


def require_id(conn: Connection, path_id: int | None) -> Path:
    """Return the path with this id; raise an internal error if it does not exist.

    For ids of paths that this transaction has read, or that an operation has locked.
    """
    found = None if path_id is None else by_id(conn, path_id)
    if found is None:
        raise Internal(f"path {path_id} is gone although an operation holds it")
    return found


def by_ids(conn: Connection, path_ids: Iterable[int]) -> list[Path]:
    """Return the paths with these ids, in the order of the ids. Ids without a path are skipped."""
    wanted = list(dict.fromkeys(path_ids))
    known = (
        {path.id: path for path in full_paths(conn, conn.execute(_ROWS, {"row_ids": wanted}).all())}
        if wanted
        else {}
    )
    return [known[i] for i in wanted if i in known]


def under(conn: Connection, operation_id: str) -> list[Path]:
    """Return the paths that an operation works on, in order of creation."""
    return full_paths(conn, conn.execute(_UNDER, {"operation": operation_id}).all())


def full_paths(conn: Connection, found: Iterable[Row[Any]]) -> list[Path]:
    """Convert rows of ``paths`` to ``Path`` objects, which contain the full paths."""
    rows = list(found)
    full = full_names(conn, rows)
    return [of_row(row, full[row.id]) for row in rows]


def full_names(conn: Connection, rows: Sequence[Any]) -> dict[int, str]:
    """Return the full path of each row, by id. Each ancestor is read once.

    Args:
        rows: rows whose first columns are id, parent id and name.
    """
    above: dict[int, tuple[int | None, str]] = {row[0]: (row[1], row[2]) for row in rows}
    missing = {parent for parent, _ in above.values() if parent is not None} - above.keys()
    if missing:
        more = conn.execute(_NAMES, {"row_ids": list(missing)}).all()
        above |= {id_: (parent, name) for id_, parent, name in more}
    known: dict[int, str] = {}

    def full(path_id: int) -> str:
        found = known.get(path_id)
        if found is None:
            parent, name = above[path_id]
            found = known[path_id] = "" if parent is None else f"{full(parent)}/{name}"
        return found

    return {row[0]: full(row[0]) or "/" for row in rows}


def children(conn: Connection, parent: Path) -> list[Path]:
    """Return the direct children of a path, by name."""
    return [of_row(row, path) for row, path in _below(conn, parent, select(sqltables.paths), 1)]


def subtree(conn: Connection, root: Path) -> list[Path]:
    """Return the path and everything below it, parents first."""
    return [root, *(of_row(row, path) for row, path in _below(conn, root, select(sqltables.paths), None))]


def user_tables(conn: Connection, root: Path) -> list[Path]:
    """Return the user tables at and below a path, without tables of indexes and backups.

    The search descends into directories only.
    """
    below = _below(conn, root, select(sqltables.paths), None, through=("directory",))
    found = (root, *(of_row(row, path) for row, path in below))
    return [path for path in found if _is_users(path.type, path.name, path.path)]


def user_table_states(conn: Connection) -> dict[str, str]:
    """Return the state of each user table, by path. The bodies of the paths are not read."""
    at = sqltables.paths.c
    brief = select(at.id, at.parent_id, at.name, at.type, at.state)
    below = _below(conn, require(conn, "/"), brief, None, through=("directory",))
    return {path: row.state for row, path in below if _is_users(row.type, row.name, path)}


def _is_users(type_: str, name: str, path: str) -> bool:
    return type_ == "table" and name != IMPL_TABLE and not names.is_backup(path)


def names_below(conn: Connection, parent_ids: Iterable[int], ending: str = "") -> set[str]:
    """Return the names that end with ``ending`` among the direct children of these parents."""
    ended = _NAMES_BELOW.where(sqltables.paths.c.name.endswith(ending, autoescape=True))
    return set(conn.execute(ended, {"parents": list(parent_ids)}).scalars().all())


def backups(conn: Connection, collection: Path, *, last: bool = False, most: int | None = None) -> list[Path]:
    """Return the finished backups of a collection, oldest first: their names sort by time.

    Args:
        last: return only the last backup.
        most: maximum number of characters to read of each body. None: read whole bodies.
    """
    at = sqltables.paths.c
    found = _finished_backups(most).where(at.parent_id == collection.id)
    rows = conn.execute(found.order_by(at.name.desc()).limit(1) if last else found)
    return [of_row(row, f"{collection.path}/{row.name}") for row in sorted(rows, key=lambda row: row.name)]


def backups_of(
    conn: Connection, collections: Sequence[Path], *, most: int | None = None
) -> dict[int, list[Path]]:
    """Return what ``backups`` returns for each of several collections, by the id of the collection."""
    found: dict[int, list[Path]] = {collection.id: [] for collection in collections}
    named = {collection.id: collection.path for collection in collections}
    is_below = sqltables.among(sqltables.paths.c.parent_id, "parents")
    rows = conn.execute(_finished_backups(most).where(is_below), {"parents": list(found)}) if found else ()
    for row in sorted(rows, key=lambda row: row.name):
        found[row.parent_id].append(of_row(row, f"{named[row.parent_id]}/{row.name}"))
    return found


def _finished_backups(most: int | None) -> Select[Any]:
    at = sqltables.paths.c
    body = at.body if most is None else func.substr(at.body, 1, most).label("body")
    columns = (body if column is at.body else column for column in at)
    return select(*columns).where(at.type == "backup", at.state != "creating")


def entries(conn: Connection, root: Path, depth: int | None) -> list[tuple[str, str]]:
    """Return path and type of everything below a path, parents first, siblings sorted by name.

    Args:
        depth: number of levels to list. None: all levels.
    """
    at = sqltables.paths.c
    return [
        (path, row.type)
        for row, path in _below(conn, root, select(at.id, at.parent_id, at.name, at.type), depth)
    ]


def _below(
    conn: Connection, root: Path, rows: Select[Any], depth: int | None, *, through: Sequence[str] = ()
) -> Iterator[tuple[Row[Any], str]]:
    """Yield the rows below a path with their full paths, parents first, siblings sorted by name.

    Each level is one query that uses the index. With one query for all levels, PostgreSQL might read the
    whole tree to find a few rows.

    Args:
        rows: the SELECT of the columns to read.
        depth: number of levels to read. None: all levels.
        through: types of paths to descend into. Empty: all types.
    """
    below: dict[int, list[Row[Any]]] = defaultdict(list)
    children = rows.where(sqltables.among(sqltables.paths.c.parent_id, "parents"))
    level, parents = 0, [root.id]
    while parents and level != depth:
        found = [row for row in conn.execute(children, {"parents": parents}) if row.type != BIN]
        for row in found:
            below[row.parent_id].append(row)
        parents = [row.id for row in found if not through or row.type in through]
        level += 1

    def under(parent_id: int, base: str) -> list[tuple[Row[Any], str]]:
        # Sorted here, because databases may collate text differently. In reverse, because the loop below
        # pops rows from the end.
        return [
            (row, f"{base}/{row.name}")
            for row in sorted(below.get(parent_id, ()), key=lambda row: row.name, reverse=True)
        ]

    waiting = under(root.id, root.path.rstrip("/"))
    while waiting:
        row, path = waiting.pop()
        yield row, path
        waiting += under(row.id, path)


def check_ready(path: Path, operation_id: str | None = None) -> None:
    """Raise UNDER_OPERATION if another operation works on the path.

    Args:
        operation_id: the caller's operation; the paths that it works on are allowed. None: the caller belongs
            to no operation.
    """
    if path.state != READY and (operation_id is None or path.operation_id != operation_id):
        raise under_operation(path.path, path.state, path.operation_id)


_BUSY = {
    "being replaced": "restore {} is replacing it",
    "claimed": "operation {} has claimed its next version",
    "incoming restore": "restore {} is writing to it",
    "outgoing restore": "restore {} is reading from it",
}
"""Phrases for error messages, by state. A state that is a verb, such as ``copying``, needs no phrase."""


def under_operation(path: str, state: str, operation_id: str | None) -> UnderOperation:
    """Build the UNDER_OPERATION error for a path that an operation has locked or claimed."""
    name = path.removeprefix(f"{names.COLLECTIONS}/")
    doing = _BUSY.get(state, f"operation {{}} is {state} it")
    return UnderOperation(
        f"{name} is busy: {doing.format(operation_id)}",
        f"Wait for it with db.wait({operation_id!r}), or cancel it with db.cancel({operation_id!r}).",
        operation_id,
    )


def check_own_name(name: str, what: str) -> None:
    """Refuse a name for a user's path that is reserved for Strandline."""
    names.check_name(name)
    names.check_not_reserved(name, what)
    if name == IMPL_TABLE:
        raise InvalidArgument(
            f"the {what} name {name!r} is reserved",
            "Only the implementation table of an index has this name; choose another one.",
        )


def set_body(tx: Writer, path_id: int, body: Record) -> None:
    at = sqltables.paths.c.id == path_id
    tx.conn.execute(update(sqltables.paths).where(at).values(body=records.to_text(body)))


def set_version(tx: Writer, path_id: int, version: int) -> None:
    """Set a path's version; raise an internal error if it is not higher than the present one."""
    changed = tx.conn.execute(
        update(sqltables.paths)
        .where(sqltables.paths.c.id == path_id, sqltables.paths.c.version < version)
        .values(version=version)
    ).rowcount
    if changed != 1:
        raise Internal(f"the version of path {path_id} would not grow to {version}")


def set_state(tx: Writer, path_ids: Iterable[int], state: str, operation_id: str | None) -> None:
    if ids := list(path_ids):
        tx.conn.execute(_SET_STATE, {"row_ids": ids, "new_state": state, "new_operation": operation_id})


def remove(tx: Writer, path_ids: Iterable[int]) -> None:
    if ids := list(path_ids):
        tx.conn.execute(_REMOVE, {"row_ids": ids})
        tx.conn.execute(_FORGET, {"row_ids": ids})


def publish(tx: Writer, changed: Sequence[Path], dropped: Sequence[Path] = ()) -> int:
    """Record new descriptions at the writer's step, and announce the changes; return their generation.

    Args:
        changed: paths with new descriptions, as read in this transaction.
        dropped: paths that were removed; they are only announced.
    """
    if changed:
        tx.conn.execute(
            insert(sqltables.descriptions),
            [
                {"path_id": p.id, "version": p.version, "step": tx.step, "body": p.body, "time": tx.now}
                for p in changed
            ],
        )
    told = [Told(p.id, p.path, p.version, dropped=False) for p in changed]
    return tx.announce([*told, *(Told(p.id, p.path, p.version, dropped=True) for p in dropped)])


def describe(tx: Writer, which: ColumnElement[bool]) -> None:
    """Record the present descriptions of all matching paths at the writer's step.

    The database copies them with one statement, however many paths match.

    Args:
        which: the condition on ``paths``.
    """
    at, columns = sqltables.paths.c, ["path_id", "version", "step", "body", "time"]
    recorded = literal(tx.step, BigInteger), at.body, literal(tx.now, Float)
    present = select(at.id, at.version, *recorded).where(which)
    tx.conn.execute(insert(sqltables.descriptions).from_select(columns, present))


def of_row(row: Row[Any], path: str) -> Path:
    """Convert a row of ``paths`` to a ``Path`` with this full path."""
    id_, parent_id, _, *rest = cast(tuple[Any, ...], row)  # in the order of the columns
    return Path._make((id_, parent_id, path, *rest[:6]))


def _nearest(conn: Connection, path: str) -> str | None:
    parts = names.split(path)
    for depth in range(len(parts) - 1, -1, -1):
        parent = find(conn, names.join(parts[:depth]))
        if parent is not None:
            return names.did_you_mean(
                parts[depth], (child.rsplit("/", 1)[1] for child, _ in entries(conn, parent, 1))
            )
    return None
