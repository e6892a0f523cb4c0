"""Owners of operations: the process that runs each, and when it was last seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from strandline.catalog import sessions, sqltables
from strandline.catalog.paths import Path
from strandline.chunks import chunks

_OWNED = select(
    sqltables.operations.c.id,
    sqltables.operations.c.kind,
    sqltables.operations.c.state,
    sqltables.operations.c.process,
    sqltables.sessions.c.host,
    sqltables.sessions.c.pid,
    sqltables.sessions.c.expires,
    sqltables.sessions.c.seen,
).select_from(
    sqltables.operations.outerjoin(
        sqltables.sessions, sqltables.sessions.c.id == sqltables.operations.c.session_id
    )
)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that runs an operation.

    Attributes:
        process: the process, as ``host:pid``.
        is_alive: whether the process is alive, as far as this machine can tell.
        seen: the time when the process last renewed its session. None: unknown.
    """

    operation_id: str
    kind: str
    process: str | None
    is_alive: bool
    seen: float | None


def owners(conn: Connection, operation_ids: Iterable[str], now: float) -> dict[str, Owner]:
    """Return the owners of operations, by operation id."""
    found = (
        row
        for chunk in chunks(operation_ids)
        for row in conn.execute(_OWNED.where(sqltables.operations.c.id.in_(chunk)))
    )
    return {row.id: _owner(row, now) for row in found}


def busy_below(conn: Connection, parent: Path, now: float) -> dict[str, tuple[str, Owner]]:
    """Return state and owner of the direct children of a path on which operations work, by child name."""
    at = sqltables.paths.c
    rows = conn.execute(
        select(at.name, at.state, at.operation_id).where(
            at.parent_id == parent.id, at.operation_id.is_not(None)
        )
    ).all()
    known = owners(conn, {row.operation_id for row in rows}, now)
    busy = {row.name: (row.state, known[row.operation_id]) for row in rows if row.operation_id in known}
    return dict(sorted(busy.items()))


def orphans(conn: Connection, now: float) -> list[str]:
    """Return the ids of unfinished operations whose process is dead, oldest first."""
    at = sqltables.operations.c
    rows = conn.execute(_OWNED.where(at.ended.is_(None)).order_by(at.number))
    return [row.id for row in rows if not _owner(row, now).is_alive]


def _owner(row: Any, now: float) -> Owner:
    known = row.host is not None
    return Owner(
        operation_id=row.id,
        kind=row.kind,
        process=f"{row.host}:{row.pid}" if known else row.process,
        is_alive=known and sessions.is_live(row, now),
        seen=row.seen,
    )
