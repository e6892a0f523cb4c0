"""EXPLAIN of statements that change rows: where they find rows, where they write, and which indexes change.

EXPLAIN and the statement itself use the same functions to decide this. EXPLAIN reads only descriptions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from strandline.model import visible
from strandline.names import count
from strandline.sql import statements as st
from strandline.sql.evaluate.literals import NotConstant
from strandline.sql.evaluate.predicates import predicate
from strandline.sql.evaluate.ranges import key_ranges
from strandline.sql.query import Query
from strandline.sql.syntax import Expression
from strandline.storage.rows import Mode
from strandline.tables import explain, read, write
from strandline.tables.explain import Step
from strandline.tables.merge import constant_rows
from strandline.tables.merge_plan import plan_merge
from strandline.tables.process_query import plan_query, table_types
from strandline.tables.session_views import views_of
from strandline.tables.snapshot import Reader, TableView, resolve
from strandline.tables.transaction import check_writable
from strandline.tables.values import constant_of
from strandline.types import Type
from strandline.types.arrays import python_to_array

_MEANS = {
    "UPSERT": "sets the named columns and keeps the others",
    "INSERT": "refused if one of the keys is there",
    "REPLACE": "sets the columns that are not named to NULL",
    "DELETE ON": "an erase for each key, whether it is there or not",
}


def explain_change(reader: Reader, statement: st.Change) -> list[Step]:
    """Return the plan of a statement. It is a tree: the lines below a step are its parts and inputs."""
    match statement:
        case st.Write():
            return list(_explain_given(reader, statement, statement.mode))
        case st.DeleteOn():
            return list(_explain_given(reader, statement, "DELETE ON"))
        case st.Update() | st.Delete():
            return list(_scan_matching(reader, statement))
        case st.Merge():
            return list(_explain_merge(reader, statement))
    raise AssertionError(statement)


def _writable(reader: Reader, path: str) -> TableView:
    view = reader.view(path)
    check_writable(path, view)
    return view


def _explain_given(reader: Reader, statement: st.Write | st.DeleteOn, mode: Mode) -> Iterator[Step]:
    """Yield the plan of a statement whose rows are VALUES or a query."""
    view, source = _writable(reader, statement.path), statement.source
    schema = view.info.schema
    named = statement.columns or (schema.key if mode == "DELETE ON" else schema.names)
    columns = write.frame_columns(view, mode, named)
    what = mode.split()[0].lower()
    if isinstance(source, Query):
        planned = plan_query(reader, source, named=False)
        if isinstance(planned, str):
            yield Step(0, what, "on Spark", f"{planned}; few rows are written in the process")
        else:
            yield Step(
                0, what, "in the process", "with DuckDB and Arrow, no JVM; many rows are written on Spark"
            )
        yield from _target(view, _MEANS[mode], None)
        yield Step(1, "rows", "of a query", f"for {', '.join(columns)}")
        if isinstance(planned, str):
            _, *steps = explain.on_spark(reader, source, "")
        else:
            steps = list(explain.explain_inputs(planned))
        yield from (step._replace(level=step.level + 1) for step in steps if step.what != "hint")
        return
    beyond, size = _constants(view, columns, source)
    if beyond:
        planned = plan_query(reader, read.values_query(beyond), named=False)
        engine = f"Spark ({planned})" if isinstance(planned, str) else "DuckDB"
        yield Step(0, what, "in the process", f"when {engine} has computed {count(len(beyond), 'value')}")
    elif reader.runtime.store.writes_here(view.state, len(source.rows), size):
        yield Step(0, what, "in the process", "with Arrow, no JVM")
    else:
        much = f"{count(len(source.rows), 'row')}, {size:,} bytes"
        yield Step(0, what, "on Spark", f"{much}: more than bulk_rows or bulk_bytes allow")
    yield from _target(view, _MEANS[mode], None)
    yield Step(1, "rows", str(len(source.rows)), f"values for {', '.join(columns)}")


def _constants(view: TableView, columns: Sequence[str], values: st.Values) -> tuple[list[Expression], int]:
    """Return the values that are not constants, and the size of the constants in bytes.

    Refuse invalid constants.
    """
    write.check_width(columns, values)
    beyond, found = list[Expression](), list[list[Any]]([] for _ in columns)
    for row in values.rows:
        for name, value, into in zip(columns, row, found, strict=True):
            try:
                into.append(constant_of(view.info.schema, name, value))
            except NotConstant:
                beyond.append(value)
    arrays: list[pa.Array] = [
        python_to_array(view.info.schema[name].type, made) for name, made in zip(columns, found, strict=True)
    ]
    return beyond, sum(array.nbytes for array in arrays)


def _scan_matching(reader: Reader, statement: st.Update | st.Delete) -> Iterator[Step]:
    """Yield the plan of an UPDATE or a DELETE that selects its rows by a WHERE condition."""
    view, where = _writable(reader, statement.path), statement.where
    set_ = write.setters_of(view, statement) if isinstance(statement, st.Update) else None
    what = "delete" if set_ is None else "update"
    schema = view.info.schema
    types = {c.name: c.type for c in schema.columns}
    found: list[Step] | str
    few = True
    if set_ is not None and not all(set_.values()):
        found = "what it sets is not what the process computes"
    elif where is not None and predicate(where, types, statement.alias) is None:
        found = "its condition is not one that the process decides"
    else:
        constraints = key_ranges(where, types, schema.key, statement.alias)
        most, found = explain.find(reader, view, constraints, 2)
        few = reader.runtime.store.writes_here(view.state, most)
    means = "an erase for each row" if set_ is None else f"sets {', '.join(set_)}"
    with_duckdb = False
    if isinstance(found, str):
        planned = plan_query(reader, write.query_of_change(view, statement), named=False)
        if isinstance(planned, str):
            found = f"{planned}; few rows are written in the process"
        else:
            found, with_duckdb = list(explain.explain_inputs(planned))[1:], True
    if isinstance(found, str):
        yield Step(0, what, "on Spark", found)
        found = [Step(2, "scan", "all of it", explain.segments(view.state, view.state))]
    else:
        rest = "" if few else "; written on Spark if more rows match than bulk_rows or bulk_bytes allow"
        engines = "DuckDB and Arrow" if with_duckdb else "Arrow"
        yield Step(0, what, "in the process", f"with {engines}, no JVM{rest}")
    yield from _target(view, means, set_)
    if where is not None:
        yield Step(1, "filter", where.text, "")
    yield Step(1, "read", view.info.path, f"at step {view.chain.step}, {explain.size(view.state)}")
    yield from found


def _explain_merge(reader: Reader, statement: st.Merge) -> Iterator[Step]:
    view = _writable(reader, statement.path)
    names, types, rows, of = _source_of(reader, statement)
    plan = None if names is None else plan_merge(view, statement, names, types)
    if plan is None or types is None:
        how, why = "on Spark", "its source is a query; few rows are written in the process"
    elif not plan.is_here:
        how, why = "on Spark", "its expressions are not ones that the process evaluates"
    elif not reader.runtime.store.writes_here(view.state, rows):
        how, why = "on Spark", f"{count(rows, 'row')}: more than bulk_rows or bulk_bytes allow"
    else:
        how, why = "in the process", "with Arrow, no JVM"
    yield Step(0, "merge", how, why)
    kinds = {action.action for action in statement.actions}
    set_ = None
    if plan is not None and kinds == {"UPDATE"}:
        set_ = {name for action in plan.actions for name in action.columns}
    yield from _target(view, "the first action that fits changes a row", set_)
    for action in statement.actions:
        condition = "" if action.condition is None else f"if {action.condition.text}"
        yield Step(2, action.action.lower(), action.when.lower(), condition)
    yield Step(1, "filter", statement.on.text, "")
    yield Step(1, "source", of, "" if names is None else f"with {', '.join(names)}")
    yield Step(1, "read", view.info.path, f"at step {view.chain.step}, {explain.size(view.state)}")
    if plan is not None and plan.has_key and not plan.by_source:
        yield Step(2, "look up", "by key", "one key for each row of the source")
    elif plan is None:
        yield Step(2, "look up", "by key", "if ON compares the key with columns of the query, else all of it")
    else:
        yield Step(2, "scan", "all of it", explain.segments(view.state, view.state))


def _source_of(
    reader: Reader, statement: st.Merge
) -> tuple[Sequence[str] | None, Sequence[Type] | None, int, str]:
    """Return column names, column types, number of rows and description of a source.

    The names and the types are None if they are not known without running a query.
    """
    names = statement.source_columns
    constants = None if statement.values is None else constant_rows(statement.values)
    if constants is not None:
        types, found = constants
        return names, types, len(found), count(len(found), "row") + " of values"
    simple = None if views_of(reader, statement.source) else statement.source.simple
    if simple is None or simple.count is not None or simple.table.index is not None:
        planned = plan_query(reader, statement.source)
        if isinstance(planned, str):
            return None, None, 0, f"a query: {planned}"
        columns = planned.translated.columns
        given = table_types((column.type, column.declared) for column in columns)
        return names or [column.name or "" for column in columns], given, 0, "a query, with DuckDB"
    view = resolve(reader, simple.table)[1]
    schema = view.info.schema
    shown = [(n, n) for n in schema.names] if simple.columns is None else list(simple.columns)
    exact = {name.lower(): name for name in schema.names}
    if view.increment or not all(column.lower() in exact for column, _ in shown):
        return None, None, 0, "a query"
    kinds = [schema[exact[column.lower()]].type for column, _ in shown]
    rows = sum(segment.rows for segment in visible(view.chain))
    return names or [name for _, name in shown], kinds, rows, f"{view.info.path}, {explain.size(view.state)}"


def _target(view: TableView, means: str, set_: Collection[str] | None) -> Iterator[Step]:
    """Yield the steps that write the table and its indexes.

    Args:
        means: what the statement does, for the step of the table.
        set_: the columns that an UPDATE sets. None: all columns may change.
    """
    yield Step(1, "write", view.info.path, means)
    for ref in view.info.indexes:
        words = f"{ref.definition.words} on {', '.join(ref.columns)}"
        if set_ is not None and not set(set_) & {*ref.columns, *ref.cover}:
            how = "none of its columns is set"
        elif not ref.definition.is_sync:
            how = "follows later"
        else:
            how = "in the same commit" + (", no key in two rows" if ref.unique else "")
        yield Step(2, "index", ref.name, f"{words}, {how}")
