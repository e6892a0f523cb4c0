"""DROP BACKUP, PRUNE, PIN and UNPIN. Without CONFIRM, the first two are dry runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.api.result import Result
from strandline.backups.retention.drop import DropBackups, DropRequest, plan_removal, tables_in
from strandline.backups.retention.pins import set_pinned
from strandline.backups.retention.retention import Decision
from strandline.catalog.sizes import bytes_of, bytes_only_in
from strandline.runtime import Runtime
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.api.database import Database


def drop_backup(db: Database, statement: st.DropBackup) -> Result:
    return _remove(db, removal_request(statement), confirm=statement.confirm)


def prune(db: Database, statement: st.Prune) -> Result:
    return _remove(db, removal_request(statement), confirm=statement.confirm)


def removal_request(statement: st.DropBackup | st.Prune) -> DropRequest:
    """Return the request of a statement that removes backups."""
    if isinstance(statement, st.DropBackup):
        return DropRequest(collection=statement.collection, backup=statement.backup)
    keep = None if statement.keep is None else str(statement.keep)
    return DropRequest(collection=statement.collection, keep=keep)


def pin(db: Database, statement: st.PinBackup) -> Result:
    catalog = db._runtime.catalog
    step = set_pinned(catalog, statement.collection, statement.backup, pinned=statement.pinned)
    return Result(step=step)


def _remove(db: Database, request: DropRequest, *, confirm: bool) -> Result:
    if confirm:
        operation_id = db._operations.run(DropBackups.name, request)
        return Result(("operation_id",), [(operation_id,)], operation_id=operation_id)
    decisions, freed = preview_removal(db._runtime, request)
    rows: list[tuple[str, str, str, int | None]] = [
        ("keep" if d.keep else "remove", d.backup, ", ".join(d.reasons), d.bytes) for d in decisions
    ]
    rows.append(("free", "", "held by nothing else", freed))
    return Result(("action", "backup", "reason", "bytes"), rows)


def preview_removal(runtime: Runtime, request: DropRequest) -> tuple[list[Decision], int]:
    """Return the decision on each backup, and the number of bytes to be freed. Nothing is removed."""
    with runtime.catalog.read() as conn:
        removal = plan_removal(conn, request, runtime.clock.now())
        going = {path.name: tables_in(conn, path) for path in removal.going}
        sizes = {name: sum(bytes_of(conn, ids).values()) for name, ids in going.items()}
        freed = bytes_only_in(conn, [i for ids in going.values() for i in ids])
    return [replace(each, bytes=sizes.get(each.backup)) for each in removal.decisions], freed
