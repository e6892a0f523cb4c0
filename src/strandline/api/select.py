"""Handlers of SELECT, EXPLAIN and CHECK TABLE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.api.result import QueryResult, Result, SparkResult, StreamedResult
from strandline.sql import statements as st
from strandline.tables import explain as plan
from strandline.tables import read
from strandline.tables.check import check

if TYPE_CHECKING:
    from strandline.api.database import Database
    from strandline.tables.snapshot import Reader


def select(
    db: Database, statement: st.Select, check: Callable[[Reader], None] = lambda reader: None
) -> Result:
    """Run a query. ``check`` is called with the snapshot before it is read, and may refuse the query."""

    def run(reader: Reader) -> read.Selected:
        check(reader)
        return read.select(reader, statement.query)

    found = db._transactions.read(run, read.tables_of_query(statement.query))
    if found.rows is not None:
        return Result(found.columns, found.rows, types=found.types, _frame=found.frame, _guard=db._guard)
    if found.scan is not None:
        return StreamedResult(_frame=found.frame, scan=found.scan, _guard=db._guard)
    if found.found is not None:
        return QueryResult(_frame=found.frame, found=found.found, _guard=db._guard)
    return SparkResult(_frame=found.frame, _guard=db._guard)


def explain(db: Database, statement: st.Explain) -> Result:
    """Return Strandline's plan of a query. With a mode such as FORMATTED, return Spark's plan."""
    if not statement.mode:
        steps = db._transactions.read(
            lambda reader: plan.explain(reader, statement.query), read.tables_of_query(statement.query)
        )
        return Result(plan.Step._fields, steps)
    frame = db._transactions.read(
        lambda reader: read.query_frame(reader, statement.query, f"EXPLAIN {statement.mode} "),
        read.tables_of_query(statement.query),
    )
    return SparkResult(_frame=lambda: frame)


def check_table(db: Database, statement: st.CheckTable) -> Result:
    problems = check(db._runtime, statement.path).problems
    rows = [(p.kind, p.path, p.message, [str(k) for k in p.keys]) for p in problems]
    return Result(("problem", "path", "message", "keys"), rows)
