"""Descriptions of paths as plain dicts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from strandline.catalog import board, chains, paths, sqltables
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableInfo


def describe(conn: Connection, row: Path) -> dict[str, Any]:
    """What there is to know about a path, all from one snapshot of the catalog."""
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
    return common | {key: value for key, value in row.body.items() if key not in common}


def overview(conn: Connection, parent: Path) -> list[dict[str, Any]]:
    """What is directly below a path, each with what ``describe`` says of its size. However many there are,
    four queries find them."""
    child, table, impl = sqltables.paths.alias(), sqltables.tables.c, sqltables.paths.alias()
    tables = select(child.c.id, table.rows).join(sqltables.tables, table.path_id == child.c.id)
    indexes = (
        select(child.c.id, table.rows)
        .join(impl, and_(impl.c.parent_id == child.c.id, impl.c.name == paths.IMPL_TABLE))
        .join(sqltables.tables, table.path_id == impl.c.id)
        .where(child.c.type == "index")
    )
    sizes = (
        select(child.c.id, func.sum(sqltables.segments.c.bytes))
        .join(sqltables.chains, sqltables.chains.c.table_id == child.c.id)
        .join(sqltables.segments, sqltables.segments.c.id == sqltables.chains.c.segment_id)
        .where(chains.is_part_at(board.current_step(conn)))
        .group_by(child.c.id)
    )
    rows = {
        row[0]: row[1]
        for query in (tables, indexes)
        for row in conn.execute(query.where(child.c.parent_id == parent.id))
    }
    bytes_ = {row[0]: int(row[1]) for row in conn.execute(sizes.where(child.c.parent_id == parent.id))}
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
    chain = chains.load(conn, row.id, board.current_step(conn))
    return {
        "columns": [
            {"name": c.name, "type": c.type.name, "not_null": c.not_null} for c in info.schema.columns
        ],
        "key": list(info.schema.key),
        "step": state.step,
        "rows": state.digest.rows,
        "digest": state.digest.hex,
        "indexes": [{**ref.definition.to_json(), "version": ref.version} for ref in info.indexes],
        "partition_at_keys": [list(bound) for bound in info.schema.bounds],
        "segments": len(chain.segments),
        "bytes": sum(s.bytes for s in chain.segments),
        "readable_from": state.kept_from,
    }


def _index(conn: Connection, row: Path) -> dict[str, Any]:
    impl = paths.require(conn, f"{row.path}/{paths.IMPL_TABLE}", "table")
    state = chains.state(conn, impl.id)
    described: dict[str, Any] = {
        "kind": row.body["kind"],
        "columns": row.body["columns"],
        "cover": row.body["cover"],
        "rows": state.digest.rows,
        "digest": state.digest.hex,
        "step": state.step,
    }
    if state.followed_step is not None:
        described["step"] = state.followed_step
        table_id = row.parent_id
        described["steps_behind"] = conn.execute(
            select(func.count())
            .select_from(sqltables.commits)
            .where(
                sqltables.commits.c.table_id == table_id,
                sqltables.commits.c.step > state.followed_step,
                sqltables.commits.c.kind == "data",
            )
        ).scalar_one()
    return described


def _stream(conn: Connection, row: Path) -> dict[str, Any]:
    """``position``: the step up to which it was dealt with; ``steps_behind``: how far the table has gone
    since; ``held_segments`` and ``held_bytes``: what the table itself does not need any more and only this
    stream, perhaps with others, keeps."""
    hold = conn.execute(select(sqltables.holds).where(sqltables.holds.c.owner_id == row.id)).one_or_none()
    owner = row.body["owner"]
    collection = None if owner is None else paths.by_id(conn, owner)
    described: dict[str, Any] = {
        "mode": row.body["mode"],
        "format": row.body["format"],
        "owner": None if collection is None else collection.path,
        "created_step": row.body["created_step"],
    }
    if hold is None:
        return described  # it is being created
    held = select(func.count(), func.coalesce(func.sum(sqltables.segments.c.bytes), 0)).select_from(
        sqltables.chains.join(sqltables.segments, sqltables.segments.c.id == sqltables.chains.c.segment_id)
    )
    needed = and_(sqltables.segments.c.role == "log", sqltables.segments.c.upto > hold.step)
    if hold.keeps_state:
        needed = or_(needed, sqltables.chains.c.removed > hold.step)
    gone = and_(
        sqltables.chains.c.table_id == hold.table_id,
        sqltables.chains.c.removed.is_not(None),
        sqltables.chains.c.superseded.is_(False),
    )
    count, size = conn.execute(held.where(gone, needed)).one()
    return described | {
        "position": hold.step,
        "steps_behind": max(0, chains.state(conn, hold.table_id).step - hold.step),
        "held_segments": int(count),
        "held_bytes": int(size),
    }
