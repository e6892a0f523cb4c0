"""Run statements one after the other, each with its handler from ``HANDLERS``.

Consecutive statements that change rows are one commit.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from strandline.api.result import Result
from strandline.errors import PreconditionFailed, Unsupported
from strandline.sql import statements as st
from strandline.sql.parser import parse

if TYPE_CHECKING:
    from strandline.api.database import Database
    from strandline.sql.binding import Params
    from strandline.tables.transaction import Transaction

HANDLERS: Mapping[type[st.Statement], str] = {
    st.Select: "select.select",
    st.Explain: "select.explain",
    st.ExplainStatement: "explain.run",
    st.Export: "export.run",
    st.Begin: "transactions.begin",
    st.Commit: "transactions.commit",
    st.Rollback: "transactions.rollback",
    st.CheckTable: "select.check_table",
    st.ShowTables: "show.tables",
    st.ShowCreateTable: "show.create_table",
    st.Describe: "show.describe",
    st.DescribeHistory: "show.history",
    st.ShowBackupCollections: "show.backup_collections",
    st.ShowBackups: "show.backups",
    st.ShowOperations: "show.operations",
    st.ShowOperation: "show.operation",
    st.ShowVersions: "show.versions",
    st.ShowWarehouse: "show.warehouse",
    st.ShowBin: "show.bin_",
    st.ShowCreateBackupCollection: "show.create_backup_collection",
    st.AlterWarehouse: "warehouse.alter",
    st.Maintain: "warehouse.maintain",
    st.CreateTable: "ddl.create_table",
    st.AlterTable: "ddl.alter_table",
    st.DropTable: "ddl.drop_table",
    st.UndropTable: "ddl.undrop_table",
    st.CreateBackupCollection: "backups.create_collection",
    st.AlterBackupCollection: "backups.alter_collection",
    st.DropBackupCollection: "backups.drop_collection",
    st.UndropBackupCollection: "backups.undrop_collection",
    st.DropBackup: "retention.drop_backup",
    st.Prune: "retention.prune",
    st.PinBackup: "retention.pin",
    st.CreateSchedule: "schedules.create",
    st.AlterSchedule: "schedules.alter",
    st.DropSchedule: "schedules.drop",
    st.PauseSchedule: "schedules.pause",
    st.ShowSchedules: "schedules.show",
    st.ShowScheduleRuns: "schedules.show_runs",
    st.ShowAlarms: "alarms.show",
    st.AcknowledgeAlarm: "alarms.acknowledge",
    st.Backup: "backups.backup",
    st.CopyBackup: "backups.copy_backup",
    st.CompactBackups: "backups.compact",
    st.AttachBackupCollection: "backups.attach_collection",
    st.Restore: "backups.restore",
    st.Verify: "backups.verify",
    st.Repair: "backups.repair",
}
"""The handler of each statement: a module of this package, and a function in it.

Each module is imported by the first statement that needs it. So statements that read the catalog do not wait
for Arrow, and queries do not wait for the modules of operations. ``_change`` handles statements that change
rows.
"""

_FREE_SPACE = (st.Maintain, st.DropTable, st.DropBackupCollection, st.DropBackup, st.Prune)
"""Statements that work on a full disk."""
_CHANGE_WHAT_EXISTS = ("ddl", "backups", "retention", "warehouse")


def execute(db: Database, text: str, params: Params = None) -> Result:
    """Run all statements of a text with ``params``; return the result of the last one."""
    return run(db, parse(text, params))


def run_statement(db: Database, statement: st.Statement) -> Result:
    """Run a statement that was built by code instead of parsed from a text."""
    with db._guard():
        return run(db, [statement])


def run(db: Database, statements: Sequence[st.Statement]) -> Result:
    """Run statements; return the result of the last one."""
    result = Result()
    begun = False
    try:
        for group in groups(statements):
            result = _run(db, group)
            begun = isinstance(group[0], st.Begin) or (begun and db._transactions.current is not None)
    except BaseException:
        # A transaction that began in the same text is rolled back with it.
        if begun and db._transactions.current is not None:
            db._transactions.rollback()
        raise
    return result


def groups(statements: Sequence[st.Statement]) -> Iterator[list[st.Statement]]:
    """Group statements: consecutive changes form one commit, every other statement is its own group."""
    for changes, found in itertools.groupby(statements, key=lambda s: isinstance(s, st.Change)):
        if changes:
            yield list(found)
        else:
            yield from ([statement] for statement in found)


def _run(db: Database, group: list[st.Statement]) -> Result:
    changes = [statement for statement in group if isinstance(statement, st.Change)]
    if changes:
        return _change(db, changes)
    (statement,) = group
    handler = HANDLERS.get(type(statement))
    if handler is None:
        raise Unsupported(f"{type(statement).__name__} cannot be run")
    module, _, name = handler.partition(".")
    if module in _CHANGE_WHAT_EXISTS and db._transactions.current is not None:
        raise PreconditionFailed(
            "only statements that read or change rows can be part of a transaction",
            "Run this statement before or after the transaction.",
        )
    if module in _CHANGE_WHAT_EXISTS:
        db._operations.note_change()
    run = getattr(importlib.import_module(f"strandline.api.{module}"), name)
    is_freeing = isinstance(statement, _FREE_SPACE)
    with db._runtime.catalog.database.freeing_space() if is_freeing else nullcontext():
        result: Result = db._transactions.attempts.unblock(lambda: run(db, statement))
    return result


def _change(db: Database, statements: Sequence[st.Change]) -> Result:
    """Run statements that change rows as one commit."""
    from strandline.tables import changes

    def run(tx: Transaction) -> None:
        for statement in statements:
            changes.execute(tx, statement)

    named = [table for statement in statements for table in changes.tables_of_statement(statement)]
    return Result.of_change(*db._transactions.change(run, named))
