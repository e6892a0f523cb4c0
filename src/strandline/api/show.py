"""Handlers of SHOW and DESCRIBE, which read only the catalog and need no Arrow."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from strandline.api.result import Result, moment
from strandline.backups.collection import CollectionRecord
from strandline.backups.health import protection_of, standings
from strandline.backups.record import BackupRecord, require_collection
from strandline.catalog import paths, recycle_bin
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableInfo
from strandline.catalog.warehouse_settings import read_stored_settings, settings_at
from strandline.records import plain
from strandline.settings import SHARED
from strandline.sql import statements as st
from strandline.sql.constants import constant
from strandline.sql.tokens import quote

if TYPE_CHECKING:
    from strandline.api.database import Database


def operations(db: Database, statement: st.ShowOperations) -> Result:
    rows = [
        (o.id, o.kind, o.state, o.percent, o.error["message"] if o.error else None) for o in db.operations()
    ]
    return Result(("id", "kind", "state", "percent", "error"), rows)


SHOWN = 100
"""Maximum number of shards of an operation that are shown without ALL."""


def operation(db: Database, statement: st.ShowOperation) -> Result:
    found = db.operation(statement.operation_id)
    listed = found.shards if statement.all else found.first_shards(SHOWN)
    rows = [
        (
            s.increment,
            s.path,
            s.shard,
            s.kind,
            s.state,
            s.attempt,
            moment(s.since),
            s.seconds,
            s.process,
            s.bytes,
            "; ".join(f"{failed.message} [{failed.code}]" for failed in s.errors) or None,
        )
        for s in listed
    ]
    columns = ("increment", "path", "shard", "kind", "state", "attempt", "since", "seconds", "process")
    return Result((*columns, "bytes", "errors"), rows)


def versions(db: Database, statement: st.ShowVersions) -> Result:
    rows = [
        (
            moment(e.time),
            e.event,
            e.version,
            e.step,
            e.operation_id,
            e.operation,
            e.writer,
            ", ".join(map(str, e.siblings)) or None,
            e.details,
        )
        for e in db.versions(statement.path)
    ]
    columns = (
        "time",
        "event",
        "version",
        "step",
        "operation_id",
        "operation",
        "writer",
        "siblings",
        "details",
    )
    return Result(columns, rows)


def history(db: Database, statement: st.DescribeHistory) -> Result:
    columns = (
        *("step", "time", "author", "statement", "inserted", "updated", "deleted", "rows", "readable"),
        *("operation_id", "operation"),
    )
    found = db.table(statement.path).history(statement.limit)
    return Result(columns, [(event.step, moment(event.time), *event[2:]) for event in found])


def warehouse(db: Database, statement: st.ShowWarehouse) -> Result:
    with db._runtime.catalog.read() as conn:
        present = asdict(settings_at(conn, db._runtime.clock.now()))
        stored = read_stored_settings(conn)
    rows = [(name.upper(), present[name], "warehouse" if name in stored else "default") for name in SHARED]
    return Result(("setting", "value", "source"), rows)


def bin_(db: Database, statement: st.ShowBin) -> Result:
    with db._runtime.catalog.read() as conn:
        seconds = settings_at(conn, db._runtime.clock.now()).bin_seconds
        rows = [
            (
                entry.dropped.path if entry.dropped.type == "table" else entry.root.name,
                entry.dropped.type.replace("_", " "),
                moment(entry.dropped.time),
                entry.dropped.by,
                moment(entry.dropped.time + seconds),
                recycle_bin.bytes_in(conn, entry),
            )
            for entry in recycle_bin.entries(conn)
        ]
    return Result(("name", "type", "dropped", "by", "until", "bytes"), rows)


def create_table(db: Database, statement: st.ShowCreateTable) -> Result:
    with db._runtime.catalog.read() as conn:
        return Result(("statement",), [(_create_statement(paths.require(conn, statement.path, "table")),)])


def describe(db: Database, statement: st.Describe) -> Result:
    described = db.describe(statement.path.removeprefix("/"))
    return Result(("property", "value"), [(name, str(value)) for name, value in described.items()])


def tables(db: Database, statement: st.ShowTables) -> Result:
    with db._runtime.catalog.read() as conn:
        listed = paths.user_tables(conn, paths.require(conn, statement.path))
    return Result(("path", "version"), [(table.path, table.version) for table in listed])


def _create_statement(row: Path) -> str:
    """Return the statement that creates an empty table like this one."""
    info = TableInfo.of(row)
    lines = [f"{quote(c.name)} {c.type.name}{' NOT NULL' if c.not_null else ''}" for c in info.schema.columns]
    lines.append(f"PRIMARY KEY ({', '.join(quote(n) for n in info.schema.key)})")
    for ref in info.indexes:
        index = ref.definition
        columns, cover = (", ".join(map(quote, of)) for of in (index.columns, index.cover))
        covered = f" COVER ({cover})" if cover else ""
        lines.append(f"INDEX {quote(index.name)} {index.words} ON ({columns}){covered}")
    body = ",\n    ".join(lines)
    keys = ", ".join(f"({', '.join(map(constant, bound))})" for bound in info.schema.bounds)
    settings = f" WITH (PARTITION_AT_KEYS = ({keys}))" if keys else ""
    return f"CREATE TABLE {quote(row.path.lstrip('/'))} (\n    {body}\n){settings}"


def backup_collections(db: Database, statement: st.ShowBackupCollections) -> Result:
    rows = []
    with db._runtime.catalog.read() as conn:
        for standing in standings(conn):
            path, collection = standing.collection, standing.collection.record(CollectionRecord)
            members = "DATABASE" if collection.tables is None else ", ".join(collection.tables)
            given, found = collection.settings, protection_of(standing, db._runtime.clock.now())
            kinds = (given.incremental, given.omit_indexes, len(standing.backups), path.state)
            where = (given.storage, given.encryption, given.retention)
            proved = (moment(found.restorable_until), found.proved_level, moment(found.proved_at))
            missed = "; ".join(found.missed.values()) or None
            goals = (given.rpo, given.proved_within, found.is_met, missed)
            rows.append((path.name, members, *kinds, *where, *proved, *goals))
    columns = ("name", "tables", "incremental", "omit_indexes", "backups", "state")
    more = ("storage", "encryption", "retention", "restorable_until", "proved_level", "proved_at")
    return Result((*columns, *more, "rpo", "proved_within", "objectives_met", "missed"), rows)


def create_backup_collection(db: Database, statement: st.ShowCreateBackupCollection) -> Result:
    with db._runtime.catalog.read() as conn:
        row = require_collection(conn, statement.name)
    return Result(("statement",), [(_create_collection_statement(row.name, row.record(CollectionRecord)),)])


def _create_collection_statement(name: str, collection: CollectionRecord) -> str:
    """Return the statement that creates an empty collection like this one, or attaches its repository."""
    storage = collection.settings.storage
    if collection.attached:
        return f"ATTACH BACKUP COLLECTION {quote(name)} FROM {constant(storage)}"
    tables = collection.tables
    members = (
        "DATABASE" if tables is None else f"({', '.join(f'TABLE {quote(path[1:])}' for path in tables)})"
    )
    settings = ", ".join(
        f"{setting} = {constant(str(value).lower() if isinstance(value, bool) else value)}"
        for setting, value in plain(collection.settings).items()
    )
    return f"CREATE BACKUP COLLECTION {quote(name)} {members} WITH ({settings})"


def backups(db: Database, statement: st.ShowBackups) -> Result:
    rows: list[tuple[Any, ...]] = []
    with db._runtime.catalog.read() as conn:
        found = paths.children(conn, require_collection(conn, statement.collection))
    for path in found:
        if path.state == "creating":
            rows.append(
                (path.name, path.name.rsplit("_", 1)[1], None, None, None, None, None, False, path.state)
            )
            continue
        record = path.record(BackupRecord)
        state = "done" if path.state == "ready" else path.state
        rows.append(
            (
                record.name,
                record.kind,
                record.parent,
                record.step,
                len(record.tables),
                record.rows,
                record.bytes,
                record.pinned,
                state,
            )
        )
    return Result(("name", "kind", "parent", "step", "tables", "rows", "bytes", "pinned", "state"), rows)
