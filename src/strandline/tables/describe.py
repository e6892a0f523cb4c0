"""Describe paths of the catalog as plain dicts."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection

from strandline import records
from strandline.catalog import chains, commits, owners, paths, sizes, tables
from strandline.catalog.paths import Path
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import TableBody, TableInfo
from strandline.catalog.transactions import current_step
from strandline.model import DELETED, IndexDef


def describe(conn: Connection, row: Path, now: float) -> dict[str, Any]:
    """Describe a path and its contents as a dict.

    If an operation works on the path, the key ``owner`` of the dict describes the process that runs the
    operation. None: the catalog has no such operation any more.
    """
    found = _describe_path(conn, row)
    if row.operation_id is not None:
        known = owners.owners(conn, [row.operation_id], now)
        found["owner"] = asdict(known[row.operation_id]) if row.operation_id in known else None
    return found


def _describe_path(conn: Connection, row: Path) -> dict[str, Any]:
    common: dict[str, Any] = {
        "path": row.path,
        "type": row.type,
        "version": row.version,
        "state": row.state,
        "operation_id": row.operation_id,
        "created_step": row.created_step,
    }
    if row.type == "table":
        return common | _table(conn, row)
    if row.type == "index":
        return common | _index(conn, row)
    if row.type == "stream":
        return common | _stream(conn, row)
    kept = records.to_plain(row.body, f"the description of {row.path}")
    return common | {key: value for key, value in kept.items() if key not in common}


def overview(conn: Connection, parent: Path) -> list[dict[str, Any]]:
    """Return the paths directly below a path, with their rows and bytes. Runs four queries in total."""
    rows, bytes_ = sizes.rows_below(conn, parent), sizes.bytes_below(conn, parent)
    return [
        {
            "name": p.name,
            "type": p.type,
            "path": p.path,
            "version": p.version,
            "state": p.state,
            "rows": rows.get(p.id),
            "bytes": bytes_.get(p.id, 0) if p.type == "table" else None,
        }
        for p in paths.children(conn, parent)
    ]


def _table(conn: Connection, row: Path) -> dict[str, Any]:
    info = TableInfo.of(row)
    state = chains.state(conn, row.id)
    chain = chains.load(conn, row.id, current_step(conn))
    return {
        "columns": _columns(row.record(TableBody)),
        "key": list(info.schema.key),
        "step": state.step,
        "rows": state.digest.rows,
        "digest": state.digest.hex,
        "indexes": [
            {**_describe_index(ref.definition), "unique": ref.unique, "version": ref.version}
            for ref in info.indexes
        ],
        "partition_at_keys": [list(bound) for bound in info.schema.bounds],
        "segments": len(chain.segments),
        "bytes": sum(s.bytes for s in chain.segments),
        "readable_from": state.kept_from,
        **_written(state),
    }


def _written(state: chains.TableState) -> dict[str, Any]:
    amplification = state.written.amplification
    return {
        "committed_bytes": state.written.committed,
        "merged_bytes": state.written.merged,
        "write_amplification": None if amplification is None else round(amplification, 2),
    }


def _columns(table: TableBody) -> list[dict[str, Any]]:
    """Describe the columns as a query sees them.

    An incremental backup also has tombstones, in which all columns except the key are NULL, and the column
    DELETED.
    """
    key, is_state = table.schema.key, not table.increment
    found = [
        {"name": c.name, "type": c.type.name, "not_null": c.not_null and (is_state or c.name in key)}
        for c in table.schema.columns
    ]
    return found if is_state else [*found, {"name": DELETED, "type": "Bool", "not_null": True}]


def _describe_index(index: IndexDef) -> dict[str, Any]:
    """Return an index definition as a dict, without the names that its columns have in files."""
    shown: dict[str, Any] = records.plain(replace(index, stored=()))
    return shown


def _index(conn: Connection, row: Path) -> dict[str, Any]:
    impl = paths.require(conn, f"{row.path}/{paths.IMPL_TABLE}", "table")
    state = chains.state(conn, impl.id)
    index = row.record(IndexDef)
    described: dict[str, Any] = {
        "kind": index.kind,
        "columns": list(index.columns),
        "cover": list(index.cover),
        "unique": index.unique,
        "rows": state.digest.rows,
        "digest": state.digest.hex,
        "step": state.step,
        **_written(state),
    }
    if state.followed_step is not None:
        described["step"] = state.followed_step
        described["steps_behind"] = commits.commits_since(conn, row.parent_id, state.followed_step)
    return described


def _stream(conn: Connection, row: Path) -> dict[str, Any]:
    """Describe a stream. The dict has these keys:

    - ``position``: the step up to which its changes were consumed.
    - ``steps_behind``: number of steps from ``position`` to the table's last step.
    - ``held_segments`` and ``held_bytes``: number and size of the segments that the table no longer needs,
      but this stream does. Other streams may need them, too.
    """
    hold = tables.find_hold(conn, row.id)
    stream = row.record(StreamBody)
    collection = None if stream.owner is None else paths.by_id(conn, stream.owner)
    described: dict[str, Any] = {
        "mode": stream.mode,
        "format": stream.format,
        "owner": None if collection is None else collection.path,
        "created_step": stream.created_step,
    }
    if hold is None:
        return described  # The stream is being created.
    count, size = tables.size_kept_by(conn, hold)
    return described | {
        "position": hold.step,
        "steps_behind": max(0, chains.state(conn, hold.table_id).step - hold.step),
        "held_segments": count,
        "held_bytes": size,
    }
