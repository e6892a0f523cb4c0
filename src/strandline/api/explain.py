"""EXPLAIN of statements other than queries: show what they would do, without doing it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.api.result import Result
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.api.database import Database

_COLUMNS = ("what", "name", "details")


def run(db: Database, statement: st.ExplainStatement) -> Result:
    """Return the plan of a statement: a tree for changes of rows, a list of lines for backup statements."""
    from strandline.api import retention

    match statement.statement:
        case st.Change() as change:
            return _change(db, change)
        case st.Export() as export:
            return _export(db, export)
        case st.Restore() as restore:
            return _restore(db, restore)
        case st.Prune() as prune:
            return retention.prune(db, replace(prune, confirm=False))
        case st.DropBackup() as drop:
            return retention.drop_backup(db, replace(drop, confirm=False))
    return _operation(db, statement.statement)


def _change(db: Database, statement: st.Change) -> Result:
    from strandline.tables import changes
    from strandline.tables.explain import Step
    from strandline.tables.explain_changes import explain_change

    found = db._transactions.read(
        lambda reader: explain_change(reader, statement), changes.tables_of_statement(statement)
    )
    return Result(Step._fields, found)


def _export(db: Database, statement: st.Export) -> Result:
    from strandline.api.export import target_of
    from strandline.tables import explain, read

    target = target_of(db, statement)
    target.check()
    found = db._transactions.read(
        lambda reader: explain.explain(reader, statement.query), read.tables_of_query(statement.query)
    )
    what = f"{target.format} {'file' if target.is_file else 'table' if target.is_lake else 'folder'}"
    taken = "replaces what is there" if target.overwrite else "refused if something is there"
    steps = [step._replace(level=step.level + 1) for step in found]
    return Result(explain.Step._fields, [explain.Step(0, "export", target.place, f"{what}, {taken}"), *steps])


def _restore(db: Database, statement: st.Restore) -> Result:
    from strandline.api.backup_info import preview_restore
    from strandline.backups.restore.restore_request import restore_request

    plan = preview_restore(db._runtime, restore_request(statement, db._runtime.limits))
    return Result(_COLUMNS, plan.steps)


def _operation(db: Database, statement: st.Statement) -> Result:
    from strandline.api.backups import build_request
    from strandline.backups.backup.full import FullNeeded
    from strandline.backups.explain import explain

    kind, request = build_request(db, statement)
    try:
        return Result(_COLUMNS, explain(db._runtime, db._operations.kind(kind), request))
    except FullNeeded as error:
        if not (isinstance(statement, st.Backup) and statement.or_full):
            raise
        request = replace(request, because=error.message)
        return Result(_COLUMNS, explain(db._runtime, db._operations.kind("backup"), request))
