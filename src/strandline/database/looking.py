"""SHOW, DESCRIBE and EXPLAIN RESTORE: statements that only look at the catalog. They need no Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import Connection

from strandline.backup.collections import ROOT, Collection
from strandline.backup.records import BackupRecord
from strandline.catalog import paths
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableInfo
from strandline.database import describing
from strandline.database.constants import constant
from strandline.database.restoring import restore_request
from strandline.database.result import Result
from strandline.operations.records import backup_records, require_collection
from strandline.operations.restore_plan import plan_restore
from strandline.sql import statements as st
from strandline.sql.tokens import quote

if TYPE_CHECKING:
    from strandline.database.database import Database


Look: TypeAlias = (
    st.ShowTables | st.ShowCreateTable | st.Describe | st.ShowBackupCollections | st.ShowBackups | st.ShowOperations | st.ExplainRestore
)


def look(db: Database, statement: Look) -> Result:
    """What a statement shows, all of it from one snapshot of the catalog."""
    if isinstance(statement, st.ShowOperations):
        rows = [(o.id, o.kind, o.state, o.percent, o.error["message"] if o.error else None) for o in db.operations()]
        return Result(("id", "kind", "state", "percent", "error"), rows)
    with db.context.catalog.read() as conn:
        match statement:
            case st.ShowTables():
                return _show_tables(conn, statement.path)
            case st.ShowCreateTable():
                return Result(("statement",), [(_create_statement(paths.require(conn, statement.path, "table")),)])
            case st.Describe():
                described = describing.describe(conn, paths.require(conn, statement.path))
                return Result(("property", "value"), [(name, str(value)) for name, value in described.items()])
            case st.ShowBackupCollections():
                return _show_collections(conn)
            case st.ShowBackups():
                return _show_backups(conn, statement.collection)
            case st.ExplainRestore():
                request = restore_request(statement.restore)
                return Result(("what", "name", "details"), list(plan_restore(conn, request).explain(copy=request.copy)))


def _show_tables(conn: Connection, path: str) -> Result:
    found = paths.subtree(conn, paths.require(conn, path))
    listed = [p for p in found if p.type == "table" and p.name != paths.IMPL_TABLE and not p.path.startswith("/.backups/")]
    return Result(("path", "version"), [(p.path, p.version) for p in listed])


def _create_statement(row: Path) -> str:
    """The statement that creates an empty table like this one."""
    info = TableInfo.of(row)
    lines = [f"{quote(c.name)} {c.type.name}{' NOT NULL' if c.not_null else ''}" for c in info.schema.columns]
    lines.append(f"PRIMARY KEY ({', '.join(quote(n) for n in info.schema.key)})")
    for ref in info.indexes:
        index = ref.definition
        cover = f" COVER ({', '.join(quote(n) for n in index.cover)})" if index.cover else ""
        lines.append(f"INDEX {quote(index.name)} {index.kind} ON ({', '.join(quote(n) for n in index.columns)}){cover}")
    body = ",\n    ".join(lines)
    keys = ", ".join(f"({', '.join(map(constant, bound))})" for bound in info.schema.bounds)
    settings = f" WITH (PARTITION_AT_KEYS = ({keys}))" if keys else ""
    return f"CREATE TABLE {quote(row.path.lstrip('/'))} (\n    {body}\n){settings}"


def _show_collections(conn: Connection) -> Result:
    root = paths.find(conn, ROOT)
    rows = []
    for path in paths.children(conn, root) if root is not None else []:
        if path.type != "backup_collection":
            continue
        collection = Collection.from_json(path.body)
        tables = "DATABASE" if collection.tables is None else ", ".join(collection.tables)
        count = len(backup_records(conn, path))
        rows.append((path.name, tables, collection.incremental, collection.omit_indexes, count, path.state))
    return Result(("name", "tables", "incremental", "omit_indexes", "backups", "state"), rows)


def _show_backups(conn: Connection, collection: str) -> Result:
    rows: list[tuple[Any, ...]] = []
    for path in paths.children(conn, require_collection(conn, collection)):
        if path.state == "creating":
            rows.append((path.name, path.name.rsplit("_", 1)[1], None, None, None, None, None, path.state))
            continue
        record = BackupRecord.from_json(path.body)
        state = "done" if path.state == "ready" else path.state
        rows.append((record.name, record.kind, record.parent, record.step, len(record.tables), record.rows, record.bytes, state))
    return Result(("name", "kind", "parent", "step", "tables", "rows", "bytes", "state"), rows)
