"""Bulk operations on paths: find, add and change thousands of them with a few statements.

All functions run inside the caller's transaction.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import JSON, Connection, Row, Text, bindparam, cast, func, select, update

from strandline import names, records
from strandline.catalog import paths, sqltables
from strandline.catalog.paths import DIRECTORIES, READY, Path
from strandline.catalog.transactions import FEW_ROWS, Writer
from strandline.errors import AlreadyExists, InvalidArgument
from strandline.records import Nothing, Record

_AT = sqltables.paths.c
_NAMED = select(sqltables.paths).where(
    _AT.parent_id == bindparam("parent"), sqltables.among(_AT.name, "children")
)
_BELOW = select(sqltables.paths).where(
    _AT.name == bindparam("child"), sqltables.among(_AT.parent_id, "parents")
)
_FEEDS = (
    select(sqltables.paths)
    .where(_AT.type == "stream", _AT.owner_id.is_(None), sqltables.among(_AT.parent_id, "parents"))
    .order_by(_AT.name)
)
_USED = select(_AT.parent_id).distinct().where(sqltables.among(_AT.parent_id, "parents"))
_CHILDREN = select(sqltables.paths).where(sqltables.among(_AT.parent_id, "parents"))
_PUT = update(sqltables.paths).where(_AT.id == bindparam("path")).values(parent_id=bindparam("parent"))
_COLUMNS = tuple(column.name for column in sqltables.paths.columns)
_SET_BODY = update(sqltables.paths).where(_AT.id == bindparam("path")).values(body=bindparam("text"))
_GIVEN = func.json_each_text(cast(bindparam("bodies", type_=Text), JSON)).table_valued("key", "value")
_SET_BODIES = (
    update(sqltables.paths).where(_AT.id == cast(_GIVEN.c.key, _AT.id.type)).values(body=_GIVEN.c.value)
)


@dataclass(frozen=True)
class NewPath:
    """A path to be added.

    Attributes:
        owner_id: the id of the path that owns this one, such as the backup collection of a stream. None: the
            path has no owner.
    """

    parent: Path
    name: str
    type: str
    body: Record
    version: int = field(default=1, kw_only=True)
    owner_id: int | None = field(default=None, kw_only=True)

    @property
    def path(self) -> str:
        return f"{self.parent.path.rstrip('/')}/{self.name}"


def find(conn: Connection, wanted: Iterable[str]) -> dict[str, Path]:
    """Return the paths that exist, by full path. The tree is read level by level.

    Args:
        wanted: normalized full paths.
    """
    asked = {path for path in wanted if not names.is_binned(path)}
    root = paths.require(conn, "/")
    ids, found = {"": root.id}, {"/": root} if "/" in asked else {}
    for level in _levels(asked):
        pairs = {}
        for path in level:
            above, _, name = path.rpartition("/")
            if above in ids:
                pairs[ids[above], name] = path
        for pair, row in _children(conn, pairs).items():
            path = pairs[pair]
            ids[path] = row.id
            if path in asked:
                found[path] = paths.of_row(row, path)
    return found


def _levels(wanted: Iterable[str]) -> list[list[str]]:
    """Return the paths and all their ancestors except the root, grouped by depth, upper levels first."""
    levels: dict[int, list[str]] = defaultdict(list)
    seen = {"", "/"}
    for path in wanted:
        while path not in seen:
            seen.add(path)
            levels[path.count("/")].append(path)
            path = path.rpartition("/")[0]
    return [levels[depth] for depth in sorted(levels)]


def require_tables(conn: Connection, wanted: Sequence[str]) -> list[Path]:
    """Return the tables at these paths, in order; raise an error for the first path that is not a table."""
    normal = [names.normalize(path) for path in wanted]
    found = find(conn, normal)
    tables = []
    for path in normal:
        table = found.get(path)
        if table is None or table.type != "table":
            table = paths.require(conn, path, "table")
        tables.append(table)
    return tables


def _children(conn: Connection, pairs: Iterable[tuple[int, str]]) -> dict[tuple[int, str], Row[Any]]:
    """Return the rows with these pairs of parent id and name, by pair. Pairs without a row are left out.

    A statement selects either many names below one parent, or one name below many parents. Each pair is
    selected by the kind of statement that finds more pairs at once.
    """
    wanted = list(pairs)
    parents, children_ = Counter(p for p, _ in wanted), Counter(name for _, name in wanted)
    by_parent: dict[int, list[str]] = defaultdict(list)
    by_name: dict[str, list[int]] = defaultdict(list)
    for parent_id, name in wanted:
        if parents[parent_id] >= children_[name]:
            by_parent[parent_id].append(name)
        else:
            by_name[name].append(parent_id)
    asked = [(_NAMED, {"parent": parent, "children": found}) for parent, found in by_parent.items()]
    asked += [(_BELOW, {"child": name, "parents": found}) for name, found in by_name.items()]
    found = (row for query, bound in asked for row in conn.execute(query, bound).all())
    return {(row.parent_id, row.name): row for row in found}


def find_below(conn: Connection, parents: Iterable[Path], name: str) -> dict[int, Path]:
    """Return the direct child with this name of each parent, by parent id; parents without it are omitted."""
    above = {parent.id: parent for parent in parents}
    rows = _children(conn, [(parent_id, name) for parent_id in above])
    return {i: paths.of_row(row, f"{above[i].path}/{name}") for (i, _), row in rows.items()}


def subtrees(conn: Connection, roots: Sequence[Path]) -> list[Path]:
    """Return paths and everything below them, level by level."""
    found, level = list(roots), list(roots)
    while level:
        above = {path.id: path.path for path in level}
        rows = conn.execute(_CHILDREN, {"parents": list(above)})
        level = [paths.of_row(row, f"{above[row.parent_id]}/{row.name}") for row in rows]
        found += level
    return found


def owned_paths(conn: Connection, owner_id: int, known: Collection[int] = ()) -> list[Path]:
    """Return the paths that a path owns, such as the streams of a backup collection.

    Args:
        known: ids of paths to leave out.
    """
    found = conn.execute(select(_AT.id).where(_AT.owner_id == owner_id).order_by(_AT.id)).scalars().all()
    return paths.by_ids(conn, [path_id for path_id in found if path_id not in known])


def streams_below(conn: Connection, tables: Sequence[Path]) -> list[tuple[int, Path]]:
    """Return the users' streams on tables, each with the id of its table, sorted by name."""
    above = {table.id: table for table in tables}
    rows = conn.execute(_FEEDS, {"parents": list(above)})
    return [(row.parent_id, paths.of_row(row, f"{above[row.parent_id].path}/{row.name}")) for row in rows]


def add(
    tx: Writer,
    new: Sequence[NewPath],
    *,
    step: int | None = None,
    state: str = READY,
    operation_id: str | None = None,
) -> list[Path]:
    """Add paths, and return them.

    Args:
        new: the paths; their parents must exist.
        step: the step from which on the paths exist. None: the writer's step.
    """
    if not new:
        return []
    taken = set(_children(tx.conn, [(one.parent.id, one.name) for one in new]))
    created = tx.step if step is None else step
    # Paths that share a body share its text.
    written = {id(body): records.to_text(body) for body in {id(one.body): one.body for one in new}.values()}
    texts = [written[id(one.body)] for one in new]
    rows = []
    for one, text in zip(new, texts, strict=True):
        names.check_name(one.name)
        if (one.parent.id, one.name) in taken:
            raise AlreadyExists(f"{one.path} already exists")
        taken.add((one.parent.id, one.name))
        row = (one.parent.id, one.name, one.type, one.version)
        rows.append((*row, state, operation_id, created, text, one.owner_id))
    ids = _insert(tx, rows)
    return [
        Path(
            id=id_,
            parent_id=one.parent.id,
            path=one.path,
            type=one.type,
            version=one.version,
            state=state,
            operation_id=operation_id,
            created_step=created,
            body=text,
        )
        for id_, one, text in zip(ids, new, texts, strict=True)
    ]


def _insert(tx: Writer, rows: Sequence[tuple[Any, ...]]) -> Sequence[int]:
    """Insert new rows with new ids, and return the ids."""
    ids = tx.new_ids(sqltables.paths, len(rows))
    tx.insert(sqltables.paths, _COLUMNS, [(i, *row) for i, row in zip(ids, rows, strict=True)])
    return ids


def add_one(
    tx: Writer,
    new: NewPath,
    *,
    step: int | None = None,
    state: str = READY,
    operation_id: str | None = None,
) -> Path:
    """Add one path, as ``add`` does."""
    return add(tx, [new], step=step, state=state, operation_id=operation_id)[0]


def make_parent(tx: Writer, path: str) -> Path:
    """Return the parent directory of a path; create it and all directories above it if missing."""
    return make_parents(tx, [path])[0][path]


def make_parents(
    tx: Writer, wanted: Iterable[str], step: int | None = None
) -> tuple[dict[str, Path], list[int]]:
    """Create the missing parent directories of paths.

    Returns the parent directory of each path, by path, and the ids of the created directories, upper ones
    first.

    Args:
        step: the step from which on the new directories exist. None: the writer's step.
    """
    above = {}
    for path in wanted:
        normal = names.normalize(path)
        if normal == "/":
            raise InvalidArgument("the root cannot be created", "Name a path below it.")
        above[path] = normal.rpartition("/")[0] or "/"
    directories = set(above.values())
    levels = _levels(directories)
    found = find(tx.conn, ["/", *(directory for level in levels for directory in level)])
    for parent in found.values():
        if parent.type not in DIRECTORIES:
            raise InvalidArgument(
                f"{parent.path} is {names.with_article(parent.type)}, so nothing can be created below it",
                "Choose a path inside a directory.",
            )
    made: list[int] = []
    for level in levels:
        new = []
        for directory in sorted(level):
            if directory not in found:
                parent_path, _, name = directory.rpartition("/")
                new.append(NewPath(found[parent_path or "/"], name, "directory", Nothing()))
        for row in add(tx, new, step=step):
            found[row.path] = row
            made.append(row.id)
    return {path: found[parent] for path, parent in above.items()}, made


def set_bodies(tx: Writer, bodies: Mapping[int, Record]) -> None:
    """Store the records of paths.

    Args:
        bodies: the records, by path id.
    """
    texts = {i: records.to_text(body) for i, body in bodies.items()}
    if tx.conn.dialect.name == "postgresql" and len(texts) >= FEW_ROWS:
        # As JSON, because PostgreSQL's driver handles an array far more slowly.
        tx.conn.execute(_SET_BODIES, {"bodies": json.dumps(texts)})
    elif texts:
        tx.conn.execute(_SET_BODY, [{"path": i, "text": text} for i, text in texts.items()])


def exchange(tx: Writer, pairs: Sequence[tuple[Path, Path]]) -> None:
    """Swap the two paths of each pair in the tree, with everything below them.

    Both paths of a pair have the same name.
    """
    if not pairs:
        return
    for moves in (
        # Detach the first path of each pair, because a parent cannot have two children of the same name.
        [{"path": one.id, "parent": None} for one, _ in pairs],
        [{"path": other.id, "parent": one.parent_id} for one, other in pairs],
        [{"path": one.id, "parent": other.parent_id} for one, other in pairs],
    ):
        tx.conn.execute(_PUT, moves)


def remove_empty(tx: Writer, directories: Iterable[int]) -> None:
    """Remove those of the directories that are empty, or that become empty by this removal."""
    left = set(directories)
    while left:
        used = set(tx.conn.execute(_USED, {"parents": list(left)}).scalars())
        if used == left:
            return
        paths.remove(tx, left - used)
        left = used
