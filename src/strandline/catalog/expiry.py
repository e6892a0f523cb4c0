"""Delete finished operations and superseded descriptions in batches.

A description is superseded when a later version of its path was recorded. It is deleted when this later
version is older than the history to keep, and no reader, pin or hold needs a step before the later version.
The latest version of a path is always kept.
"""

from __future__ import annotations

from sqlalchemy import bindparam, delete, exists, func, select, update

from strandline.catalog import access, alarms, garbage_collection, operations, schedules, sqltables
from strandline.catalog.transactions import Writer
from strandline.catalog.warehouse_settings import WarehouseSettings

_AT = sqltables.descriptions.c
_HELD = exists().where(sqltables.holds.c.table_id == _AT.path_id, sqltables.holds.c.step < _AT.step)
_DATE = update(sqltables.descriptions).where(_AT.time.is_(None))
_OLDEST_NEEDED = (
    select(_AT.path_id, func.max(_AT.version).label("version"), func.max(_AT.step).label("step"))
    .where(_AT.time <= bindparam("before"), _AT.step <= bindparam("read"), ~_HELD)
    .group_by(_AT.path_id)
    .having(func.max(_AT.version) > func.min(_AT.version))
    .order_by(_AT.path_id)
    .limit(bindparam("most"))
)
_DELETE = delete(sqltables.descriptions).where(
    _AT.path_id == bindparam("of"), _AT.version < bindparam("needed")
)
_KEPT_FROM = (
    update(sqltables.tables)
    .where(sqltables.tables.c.path_id == bindparam("of"), sqltables.tables.c.kept_from < bindparam("kept"))
    .values(kept_from=bindparam("kept"))
)


def forget_operations(tx: Writer, kept: WarehouseSettings, most: int) -> int:
    """Delete operations that ended more than ``operation_history_seconds`` ago, with their parts.

    Deletes at most ``most`` operations, and returns their number.
    """
    old = operations.find_ended_before(tx.conn, tx.now - kept.operation_history_seconds, most)
    operations.forget(tx, *old)
    return len(old)


def forget_runs(tx: Writer, kept: WarehouseSettings, most: int) -> int:
    """Delete runs of schedules that were due more than ``operation_history_seconds`` ago.

    Deletes at most ``most`` runs, and returns their number.
    """
    return schedules.forget_runs(tx, tx.now - kept.operation_history_seconds, most)


def forget_audit(tx: Writer, kept: WarehouseSettings, most: int) -> int:
    """Delete at most ``most`` entries of the audit log older than ``audit_seconds``; return their number."""
    return access.forget_audit(tx, tx.now - kept.audit_seconds, most)


def forget_alarms(tx: Writer, kept: WarehouseSettings, most: int) -> int:
    """Delete alarms that were cleared more than ``operation_history_seconds`` ago.

    Deletes at most ``most`` alarms, and returns their number.
    """
    return alarms.forget(tx, tx.now - kept.operation_history_seconds, most)


def forget_descriptions(tx: Writer, kept: WarehouseSettings, most: int) -> int:
    """Delete superseded descriptions of up to ``most`` paths, and return the number of these paths."""
    # Descriptions from an old version of Strandline have no time: date them now.
    tx.conn.execute(_DATE.values(time=tx.now))
    limits = {
        "before": tx.now - max(kept.history_seconds, kept.grace_seconds),
        "read": garbage_collection.oldest_read(tx.conn),
        "most": most,
    }
    found = tx.conn.execute(_OLDEST_NEEDED, limits).all()
    if found:
        tx.conn.execute(_DELETE, [{"of": row.path_id, "needed": row.version} for row in found])
        # A table cannot be read at a step without a description.
        tx.conn.execute(_KEPT_FROM, [{"of": row.path_id, "kept": row.step} for row in found])
    return len(found)
