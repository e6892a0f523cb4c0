"""CREATE, ALTER and DROP TABLE.

Each statement is checked first and then executed in one catalog transaction. A refused statement changes
nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from strandline import names
from strandline.catalog import bulk_paths, commits, definitions, paths, recycle_bin, sessions, tables
from strandline.catalog.commits import Basis
from strandline.catalog.definitions import TableDefinition
from strandline.catalog.tables import TableBody, TableInfo
from strandline.catalog.transactions import Writer
from strandline.catalog.warehouse_settings import settings_at
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, PreconditionFailed, Unsupported
from strandline.model import Column, IndexDef, Key, State, TableSchema, order
from strandline.runtime import Runtime
from strandline.sql import statements as st
from strandline.sql.tokens import quote
from strandline.tables.attempts import StatementAttempts
from strandline.tables.indexes import build_index
from strandline.tables.snapshot import Snapshot
from strandline.types import Type, coerce, parse_type

MAX_PARTITIONS = 10_000


def create_table(runtime: Runtime, statement: st.CreateTable) -> int | None:
    """Create the table; return its step, or None if it exists and IF NOT EXISTS is given."""
    new = define_table(statement)
    with runtime.catalog.write() as tx:
        if statement.if_not_exists and table_exists(tx.conn, statement.path):
            return None
        definitions.create(tx, new)
        return tx.step


def define_table(statement: st.CreateTable) -> TableDefinition:
    """Return the definition of the table that a statement creates; refuse an invalid definition."""
    names.check_place(statement.path)
    for component in names.split(statement.path):
        paths.check_own_name(component, "table")
    table = _schema(statement)
    indexes = tuple(_resolve_index(table, index, statement.path) for index in statement.indexes)
    for place, index in enumerate(indexes):
        _check_index(table, index, [i.name for i in indexes[:place]])
    return TableDefinition(statement.path, table, indexes)


def table_exists(conn: Connection, path: str) -> bool:
    """Return True if there is a table at a path; raise an error if the path is of another type."""
    found = paths.find(conn, path)
    if found is not None and found.type != "table":
        raise AlreadyExists(f"{path} already exists and is {names.with_article(found.type)}")
    return found is not None


def drop_table(runtime: Runtime, statement: st.DropTable) -> int | None:
    names.check_no_backup(statement.path)
    with runtime.catalog.write() as tx:
        if statement.if_exists and paths.find(tx.conn, statement.path) is None:
            return None
        row = _require_table(tx.conn, statement.path)
        below = paths.subtree(tx.conn, row)
        for path in below:
            paths.check_ready(path)
        is_kept = not (statement.purge or names.is_replaced(row.path))
        if is_kept and settings_at(tx.conn, tx.now).bin_seconds > 0:
            for stream in (path for path in below if path.type == "stream"):
                definitions.drop(tx, stream)
            # A new version, so that no change that was planned before can be committed to the table.
            paths.set_version(tx, row.id, row.version + 1)
            recycle_bin.put(tx, paths.require_id(tx.conn, row.id), sessions.this_user())
        else:
            definitions.drop(tx, row)
        if names.is_replaced(row.path):
            directories = bulk_paths.find(tx.conn, names.above(row.path)).values()
            bulk_paths.remove_empty(tx, [directory.id for directory in directories])
        return tx.step


def undrop_table(runtime: Runtime, statement: st.UndropTable) -> int:
    """Bring back the last dropped table of a path from the bin; return the step.

    The streams of the table ended when it was dropped, so its next backup is a full backup.
    """
    to = statement.as_path or statement.path
    names.check_place(to)
    for component in names.split(to):
        paths.check_own_name(component, "table")
    with runtime.catalog.write() as tx:
        dropped = [entry.dropped.path for entry in recycle_bin.entries(tx.conn) if entry.root.type == "table"]
        entry = recycle_bin.find(tx.conn, statement.path)
        if entry is None or statement.path not in dropped:
            raise PathNotFound(
                f"there is no table {statement.path} in the bin",
                names.did_you_mean(statement.path, dropped) or "List what is there with SHOW BIN.",
            )
        try:
            definitions.check_free(tx.conn, to)
        except AlreadyExists as error:
            name = quote(statement.path.lstrip("/"))
            raise AlreadyExists(
                error.message, f"Give it another name: UNDROP TABLE {name} AS other."
            ) from None
        recycle_bin.take_back(tx, entry, bulk_paths.make_parent(tx, to), to.rsplit("/", 1)[1])
        return tx.step


def rename_table(tx: Writer, path: str, to: str) -> tuple[str, str]:
    """Rename a table within a transaction; return the old and the new path."""
    for place in (path, to):
        names.check_place(place)
    for component in names.split(to):
        paths.check_own_name(component, "table")
    row = _require_table(tx.conn, path)
    if row.path == to:
        raise InvalidArgument(f"{path} already has this name", "Choose another name.")
    for below in paths.subtree(tx.conn, row):
        paths.check_ready(below)
    definitions.check_free(tx.conn, to)
    definitions.rename(tx, row, to)
    return row.path, to


def alter_table(runtime: Runtime, statement: st.AlterTable) -> int:
    names.check_place(statement.path)
    with runtime.catalog.read() as conn:
        _require_table(conn, statement.path)
    actions = statement.actions
    if all(isinstance(a, st.AddColumn | st.DropColumn) for a in actions):
        return _alter_columns(runtime, statement.path, actions)
    renamed = [action for action in actions if isinstance(action, st.RenameColumn)]
    if len(renamed) == len(actions):
        return _rename_columns(runtime, statement.path, renamed)
    if len(actions) > 1:
        raise Unsupported(
            "only ADD COLUMN with DROP COLUMN, or several RENAME COLUMN, can be combined",
            "Write one ALTER TABLE for each change.",
        )
    (action,) = actions
    if isinstance(action, st.AddIndex):
        return _add_index(runtime, statement.path, action.index)
    if isinstance(action, st.DropIndex):
        return _drop_index(runtime, statement.path, action.name)
    raise Unsupported(f"{type(action).__name__} is not a change of a table's description")


def _schema(statement: st.CreateTable) -> TableSchema:
    if not statement.columns:
        raise InvalidArgument("a table needs at least one column", "Name its columns and their types.")
    _check_settings(statement)
    seen: set[str] = set()
    columns: list[tuple[str, Type, bool]] = []
    for column in statement.columns:
        _check_new_column(column.name, seen)
        seen.add(column.name.lower())
        columns.append((column.name, parse_type(column.type), column.not_null))
    if not statement.key:
        raise InvalidArgument("a table needs a primary key", "Add PRIMARY KEY (column, ...).")
    table = TableSchema.of(columns, ())
    key = tuple(names.column(name, table.names, statement.path) for name in statement.key)
    if len(set(key)) != len(key):
        raise InvalidArgument("the primary key names a column twice", "Name each key column once.")
    table = replace(table, key=key)
    for part in table.key_columns:
        _check_orderable(part.name, part.type, "primary key")
    return replace(table, bounds=_bounds(statement, table))


def _check_settings(statement: st.CreateTable) -> None:
    for name, _ in statement.settings:
        raise InvalidArgument(
            f"CREATE TABLE has no setting {name}",
            names.did_you_mean(name, ("PARTITION_AT_KEYS", "UNIFORM_PARTITIONS"))
            or "It has PARTITION_AT_KEYS and UNIFORM_PARTITIONS.",
        )


def _check_new_column(name: str, existing_lower: set[str]) -> None:
    names.check_name(name)
    names.check_not_reserved(name, "column")
    if name.lower() in existing_lower:
        raise InvalidArgument(
            f"column {name!r} is defined twice", "Column names must differ by more than case."
        )


def _check_orderable(name: str, type_: Type, what: str) -> None:
    if not type_.orderable:
        raise InvalidArgument(
            f"column {name!r} of type {type_.name} cannot be in the {what}",
            "Use an integer, text, bytes or date type there.",
        )


def _bounds(statement: st.CreateTable, table: TableSchema) -> tuple[Key, ...]:
    if statement.partition_at_keys is not None and statement.uniform_partitions is not None:
        raise InvalidArgument(
            "PARTITION_AT_KEYS and UNIFORM_PARTITIONS exclude each other", "Use one of them."
        )
    if statement.uniform_partitions is not None:
        return _uniform_bounds(statement.uniform_partitions, table)
    bounds: list[Key] = []
    for values in statement.partition_at_keys or ():
        if not 0 < len(values) <= len(table.key):
            raise InvalidArgument(
                f"the partition key {values!r} has {len(values)} values, the primary key {len(table.key)}"
            )
        bounds.append(tuple(_bind(c, v) for c, v in zip(table.key_columns, values, strict=False)))
    for lower, upper in itertools.pairwise(bounds):
        if not order(lower) < order(upper):
            raise InvalidArgument("PARTITION_AT_KEYS must be in ascending order, each once", "Sort the keys.")
    return tuple(bounds)


def _bind(column: Column, value: Any) -> Any:
    return coerce(column.type, value, column.name)


def _uniform_bounds(count: int, table: TableSchema) -> tuple[Key, ...]:
    first = table.key_columns[0]
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidArgument(f"UNIFORM_PARTITIONS must be from 1 to {MAX_PARTITIONS}, not {count}")
    if first.type.kind != "int":
        raise InvalidArgument(
            f"UNIFORM_PARTITIONS needs an integer first key column, and {first.name!r} is {first.type.name}",
            "Use PARTITION_AT_KEYS.",
        )
    width = first.type.max - first.type.min + 1
    if count > width:
        raise InvalidArgument(f"{first.type.name} has no {count} different values to split at")
    return tuple((first.type.min + width * i // count,) for i in range(1, count))


def _resolve_index(table: TableSchema, index: IndexDef, path: str) -> IndexDef:
    """Return the index with column names spelled as in the table."""
    return replace(
        index,
        columns=tuple(names.column(name, table.names, path) for name in index.columns),
        cover=tuple(names.column(name, table.names, path) for name in index.cover),
    )


def _check_index(table: TableSchema, index: IndexDef, others: Sequence[str]) -> None:
    paths.check_own_name(index.name, "index")
    if index.name in others:
        raise AlreadyExists(f"there are two indexes named {index.name!r}", "Give each index its own name.")
    if not index.columns:
        raise InvalidArgument(f"index {index.name!r} has no columns", "Name them: ON (column, ...).")
    for group, what in ((index.columns, "ON"), (index.cover, "COVER")):
        if len(set(group)) != len(group):
            raise InvalidArgument(
                f"{what} of index {index.name!r} names a column twice", "Name each column once."
            )
    for name in index.columns:
        _check_orderable(name, table[name].type, "key of an index")
    for name in index.cover:
        if name in index.columns or name in table.key:
            raise InvalidArgument(
                f"index {index.name!r} covers {name!r}, which is in its key already",
                f"Leave {name} out of COVER.",
            )


def _alter_columns(runtime: Runtime, path: str, actions: Sequence[st.AlterAction]) -> int:
    def attempt() -> int:
        snapshot = Snapshot(runtime)
        view = snapshot.table(path)
        changed = _change_schema(view.info, actions)
        # A NULL adds nothing to a row's hash. So an added column does not change the digest, but a dropped
        # column does.
        drops = any(isinstance(a, st.DropColumn) for a in actions)
        digest = runtime.store.checks.digest(State(changed, view.chain)) if drops else None
        with runtime.catalog.write() as tx:
            commits.prove(tx, Basis(view.info.id, view.info.version, snapshot.step if drops else None))
            paths.check_ready(paths.require_id(tx.conn, view.info.id))
            definitions.alter(tx, replace(view.info, schema=changed))
            if digest is not None:
                tables.set_digest(tx, view.info.id, digest)
                commits.record(tx, view.info.id, "schema", digest)
            return tx.step

    return StatementAttempts(runtime).repeat(attempt)


def _change_schema(info: TableInfo, actions: Sequence[st.AlterAction]) -> TableSchema:
    changed = info.schema
    for action in actions:
        if isinstance(action, st.AddColumn):
            column = action.column
            _check_new_column(column.name, {n.lower() for n in changed.names})
            if column.not_null:
                raise InvalidArgument(
                    f"column {column.name!r} cannot be added as NOT NULL: existing rows would have no value",
                    "Add it without NOT NULL.",
                )
            changed = changed.with_column(column.name, parse_type(column.type))
        elif isinstance(action, st.DropColumn):
            name = names.column(action.name, changed.names, info.path)
            if name in changed.key:
                raise InvalidArgument(
                    f"column {name!r} is in the primary key and cannot be dropped",
                    "Create a new table with another key.",
                )
            for ref in info.indexes:
                if name in ref.definition.columns or name in ref.definition.cover:
                    raise PreconditionFailed(
                        f"column {name!r} is used by index {ref.definition.name!r}",
                        f"Drop the index first: ALTER TABLE ... DROP INDEX {ref.definition.name}.",
                    )
            changed = changed.without_column(name)
    return changed


def _rename_columns(runtime: Runtime, path: str, actions: Sequence[st.RenameColumn]) -> int:
    """Rename columns in descriptions, which map names to the names in files. Files do not change."""
    with runtime.catalog.write() as tx:
        row = _require_table(tx.conn, path)
        for below in paths.subtree(tx.conn, row):
            paths.check_ready(below)
        info = TableInfo.of(row)
        schema, refs = info.schema, {ref.name: ref.definition for ref in info.indexes}
        rows = paths.by_ids(tx.conn, [ref.impl_id for ref in info.indexes])
        impls = {impl.id: impl.record(TableBody).schema for impl in rows}
        for action in actions:
            name = names.column(action.name, schema.names, info.path)
            if action.to == name:
                raise InvalidArgument(f"column {name!r} already has this name", "Choose another name.")
            _check_new_column(action.to, {n.lower() for n in schema.names if n != name})
            schema = schema.with_name(name, action.to)
            for ref in info.indexes:
                if name in impls[ref.impl_id]:
                    impls[ref.impl_id] = impls[ref.impl_id].with_name(name, action.to)
                    refs[ref.name] = refs[ref.name].with_name(name, action.to)
        definitions.describe_anew(tx, info, schema, refs, impls)
        return tx.step


def _add_index(runtime: Runtime, path: str, index: IndexDef) -> int:
    def attempt() -> int:
        snapshot = Snapshot(runtime)
        view = snapshot.table(path)
        table = view.info.schema
        resolved = _resolve_index(table, index, path)
        existing = [ref.definition.name for ref in view.info.indexes]
        if index.name in existing:
            raise AlreadyExists(f"{path} has an index {index.name!r} already")
        _check_index(table, resolved, existing)
        return build_index(runtime, snapshot, view, resolved)

    return StatementAttempts(runtime).repeat(attempt)


def _drop_index(runtime: Runtime, path: str, name: str) -> int:
    with runtime.catalog.write() as tx:
        row = _require_table(tx.conn, path)
        paths.check_ready(row)
        info = TableInfo.of(row)
        ref = info.index(name)
        index_row = paths.by_id(tx.conn, ref.index_id)
        if index_row is None:
            raise PathNotFound(f"{path} has no index {name!r}")
        for below in paths.subtree(tx.conn, index_row):
            paths.check_ready(below)
        definitions.drop(tx, index_row)
        definitions.alter(tx, replace(info, indexes=tuple(i for i in info.indexes if i is not ref)))
        return tx.step


def _require_table(conn: Connection, path: str) -> paths.Path:
    row = paths.require(conn, path, "table")
    if row.name == paths.IMPL_TABLE:
        raise InvalidArgument(f"{path} belongs to an index", "Alter or drop the index through its table.")
    return row
