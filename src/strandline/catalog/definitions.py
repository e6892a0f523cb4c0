"""Create, alter, rename and drop tables with their indexes.

A table's body lists its indexes with their versions; an index's version always equals that of its
implementation table. The functions run inside the caller's write transaction and publish their changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, update

from strandline.catalog import bulk_paths, chains, paths, sqltables, tables
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.catalog.transactions import Writer
from strandline.chunks import chunks
from strandline.errors import AlreadyExists
from strandline.model import Digest, IndexDef, TableSchema
from strandline.records import Record


@dataclass(frozen=True)
class TableDefinition:
    """A table to create: its path, its columns and key, and its indexes."""

    path: str
    schema: TableSchema
    indexes: tuple[IndexDef, ...] = ()


def check_free(conn: Connection, path: str) -> None:
    """Raise an error if the path for a new table already exists, or if an operation is creating it."""
    if (found := paths.find(conn, path)) is not None:
        if found.state in paths.CLOSED_STATES:
            paths.check_ready(found)  # The operation decides whether the path will exist.
        raise AlreadyExists(f"{path} already exists")


def create(
    tx: Writer, new: TableDefinition, digests: Mapping[str | None, Digest] = MappingProxyType({})
) -> TableInfo:
    """Create a table with its indexes, and the missing directories above it.

    Args:
        digests: digests of the rows that the caller attaches. The key None means the table, any other key
            the index with this name.
    """
    check_free(tx.conn, new.path)
    parent = bulk_paths.make_parent(tx, new.path)
    body = TableBody(schema=new.schema)
    row = bulk_paths.add_one(tx, NewPath(parent, new.path.rsplit("/", 1)[1], "table", body))
    tables.add_state(tx, row.id, tx.step, digests.get(None, Digest()))
    refs = tuple(
        add_index_paths(tx, row, index, table=new.schema, digest=digests.get(index.name, Digest()))
        for index in new.indexes
    )
    info = replace(TableInfo.of(row), indexes=refs)
    paths.set_body(tx, row.id, info.body())
    tables.publish(tx, [row.id, *(i for ref in refs for i in (ref.index_id, ref.impl_id))])
    return info


def add_index_paths(
    tx: Writer, table_row: Path, index: IndexDef, *, table: TableSchema, digest: Digest
) -> IndexRef:
    """Add the paths of an index and of its implementation table; return the entry for the table's body.

    The caller adds this entry to the table's body and publishes the table.
    """
    index_row = bulk_paths.add_one(tx, NewPath(table_row, index.name, "index", index))
    impl = TableBody(schema=index.impl_schema(table))
    impl_row = bulk_paths.add_one(tx, NewPath(index_row, IMPL_TABLE, "table", impl))
    tables.add_state(tx, impl_row.id, tx.step, digest)
    if not index.is_sync:
        tables.begin_following(tx, impl_row.id, table_row.id, tx.step)
    return IndexRef.of(index, index_id=index_row.id, impl_id=impl_row.id, version=impl_row.version)


def alter(tx: Writer, info: TableInfo) -> None:
    """Store and publish a changed description of a table with the version ``info.version + 1``."""
    paths.set_body(tx, info.id, info.body())
    paths.set_version(tx, info.id, info.version + 1)
    tables.publish(tx, [info.id])


def alter_all(tx: Writer, bodies: Mapping[int, Record]) -> None:
    """Store and publish changed descriptions of many paths, by path id; each version grows by 1."""
    bulk_paths.set_bodies(tx, bodies)
    at = sqltables.paths.c
    for chunk in chunks(bodies):
        tx.conn.execute(update(sqltables.paths).where(at.id.in_(chunk)).values(version=at.version + 1))
    tables.publish(tx, list(bodies))


def describe_anew(
    tx: Writer,
    info: TableInfo,
    schema: TableSchema,
    definitions: Mapping[str, IndexDef],
    impls: Mapping[int, TableSchema],
) -> None:
    """Store and publish new columns of a table with its indexes.

    An index whose definition does not change keeps its version.

    Args:
        definitions: the new definitions of all indexes, by name.
        impls: the new columns of the implementation tables, by id.
    """
    bodies: dict[int, Record] = {}
    refs = []
    for ref in info.indexes:
        new = definitions[ref.name]
        if new == ref.definition:
            refs.append(ref)
            continue
        bodies |= {ref.index_id: new, ref.impl_id: TableBody(schema=impls[ref.impl_id])}
        ids: dict[str, Any] = {"index_id": ref.index_id, "impl_id": ref.impl_id, "omitted": ref.omitted}
        refs.append(IndexRef.of(new, version=ref.version + 1, **ids))
    bodies[info.id] = TableBody(schema=schema, indexes=tuple(refs))
    alter_all(tx, bodies)


def rename(tx: Writer, table: Path, to: str) -> None:
    """Move a table to a new path, with everything below it, and create the missing directories.

    Statements that were planned with the old path are planned again. A reader of an earlier step does not
    find the new path, because ``created_step`` is set to the writer's step.
    """
    info, parent = TableInfo.of(table), bulk_paths.make_parent(tx, to)
    moved = [table.id, *(i for ref in info.indexes for i in (ref.index_id, ref.impl_id))]
    at = sqltables.paths.c
    tx.conn.execute(
        update(sqltables.paths)
        .where(at.id == table.id)
        .values(parent_id=parent.id, name=to.rsplit("/", 1)[1])
    )
    refs = tuple(replace(ref, version=ref.version + 1) for ref in info.indexes)
    paths.set_body(tx, table.id, replace(info, indexes=refs).body())
    for chunk in chunks(moved):
        tx.conn.execute(
            update(sqltables.paths)
            .where(at.id.in_(chunk))
            .values(version=at.version + 1, created_step=tx.step)
        )
    tables.publish(tx, moved)


def drop(tx: Writer, root: Path) -> None:
    """Remove a path and everything below it.

    The garbage collector deletes the segments when nothing refers to them any more.
    """
    gone = paths.subtree(tx.conn, root)
    ids = [p.id for p in gone]
    chains.end(tx, ids)
    tables.forget(tx, ids)
    paths.remove(tx, ids)
    paths.publish(tx, [], gone)
