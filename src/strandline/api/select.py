"""Handlers of SELECT, EXPLAIN and CHECK TABLE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.api.result import Result, SparkResult, StreamedResult
from strandline.sql import statements as st
from strandline.tables import explain as plan
from strandline.tables import read
from strandline.tables.check import check

if TYPE_CHECKING:
    from strandline.api.database import Database


def select(db: Database, statement: st.Select) -> Result:
    found = db.look(
        lambda reader: read.select(reader, statement.query), read.tables_of_query(statement.query)
    )
    if found.rows is not None:
        return Result(found.columns, found.rows, types=found.types, frame=found.frame, guard=db.guard)
    if found.scan is not None:
        return StreamedResult(frame=found.frame, scan=found.scan, guard=db.guard)
    return SparkResult(frame=found.frame, guard=db.guard)


def explain(db: Database, statement: st.Explain) -> Result:
    """Return Strandline's plan of a query, or with a mode such as FORMATTED, Spark's plan."""
    if not statement.mode:
        steps = db.look(
            lambda reader: plan.explain(reader, statement.query), read.tables_of_query(statement.query)
        )
        return Result(plan.Step._fields, steps)
    frame = db.look(
        lambda reader: read.query_frame(reader, statement.query, f"EXPLAIN {statement.mode} "),
        read.tables_of_query(statement.query),
    )
    return SparkResult(frame=lambda: frame)


def check_table(db: Database, statement: st.CheckTable) -> Result:
    problems = check(db.runtime, statement.path).problems
    rows = [(p.kind, p.path, p.message, [str(k) for k in p.keys]) for p in problems]
    return Result(("problem", "path", "message", "keys"), rows)
