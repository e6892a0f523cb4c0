"""Queries that DuckDB runs in this process: plan one, and read the rows that it needs.

A query runs here if the setting ``engine`` allows it, if ``sql/translate`` can translate all of it, and if
the rows that it may read are few enough to be streamed. Otherwise it runs on Spark; EXPLAIN shows the reason.
If DuckDB refuses a value while the query runs, the query is run again on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import Unsupported
from strandline.model import Key, State
from strandline.names import count
from strandline.sql.evaluate.ranges import Constraints, both, constraints_of, lookup_keys
from strandline.sql.query import Query
from strandline.storage.duckdb_engine import FilesRefused, QueryInput, RefusedByDuckDB
from strandline.storage.duckdb_files import InputColumn
from strandline.tables.session_views import check_catalogs, views_of
from strandline.tables.snapshot import Reader, TableView, resolve
from strandline.types import Type, parse_type
from strandline.types.arrays import column_to_python, python_to_array, to_outgoing

if TYPE_CHECKING:
    from strandline.sql.references import TableRef
    from strandline.sql.translate import QuerySource, Translated

__all__ = ["ProcessPlan", "QueryRows", "TableInput", "plan_query", "run_query", "table_types"]


@dataclass(frozen=True)
class QueryRows:
    """The rows of a query.

    Attributes:
        names: names of the columns.
        types: Spark types of the columns.
        declared: for each column that is a table's column, its type in the table; None for other columns.
        physical: the rows in physical types.
    """

    names: Sequence[str]
    types: Sequence[str]
    declared: Sequence[Type | None]
    physical: pa.Table

    @property
    def table(self) -> pa.Table:
        """The rows as exported Arrow data."""
        arrays = [
            column if type_ is None else to_outgoing(type_, column)
            for type_, column in zip(self.declared, self.physical.columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, names=list(self.names))

    @property
    def column_types(self) -> list[Type] | None:
        """The types of the columns as those of a table; None if a column has no such type."""
        return table_types(zip(self.types, self.declared, strict=True))

    def values(self) -> list[tuple[Any, ...]]:
        """Return the rows as Python values. Values of decimal(20,0) become int, as for results of Spark."""
        columns = [
            _to_python(type_, declared, column)
            for type_, declared, column in zip(self.types, self.declared, self.physical.columns, strict=True)
        ]
        return list(zip(*columns, strict=True))


def table_types(columns: Iterable[tuple[str, Type | None]]) -> list[Type] | None:
    """Return the types of a query's columns as those of a table; None if a column has no such type.

    Args:
        columns: the Spark type of each column, and its type in the table if it is a table's column.
    """
    found = [
        (spark, declared or (None if spark == "void" else parse_type(spark))) for spark, declared in columns
    ]
    types = [type_ for _, type_ in found if type_ is not None]
    return types if len(types) == len(found) else None


def _to_python(type_: str, declared: Type | None, column: pa.ChunkedArray) -> list[Any]:
    if declared is not None:
        return column_to_python(declared, column)
    if type_ == "timestamp":
        return column_to_python(parse_type("Timestamp"), column)
    found: list[Any] = column.to_pylist()
    return [None if v is None else int(v) for v in found] if type_ == "decimal(20,0)" else found


@dataclass(frozen=True)
class TableInput:
    """A table of a planned query, and how its rows are read.

    Attributes:
        columns: names of the columns to read.
        name: name of the table in the translated query.
        keys: keys to look up. None: read ``state``.
        state: rows to read, of the table or an index. None: look up ``keys``.
        behind: the table, if ``state`` is an index that lacks some of the columns.
    """

    reader: Reader
    ref: TableRef
    view: TableView
    _: KW_ONLY
    columns: Sequence[str]
    name: str
    keys: Sequence[Key] | None = None
    state: State | None = None
    behind: State | None = None


@dataclass(frozen=True)
class ProcessPlan:
    """The plan of a query that can run in this process: its translation, and how its tables are read."""

    translated: Translated
    inputs: Sequence[TableInput]


def run_query(reader: Reader, query: Query, *, named: bool = True) -> QueryRows | None:
    """Run a query in this process; return None if it needs Spark.

    If the setting ``engine`` is ``process``, raise Unsupported instead of returning None.

    Args:
        named: whether the result needs the column names that Spark would give it.
    """
    planned = plan_query(reader, query, named=named)
    if isinstance(planned, ProcessPlan):
        try:
            return _run(reader, planned)
        except RefusedByDuckDB as refused:
            planned = str(refused)
    if reader.runtime.settings.engine == "process":
        raise Unsupported(
            f"this query cannot run in the process: {planned}",
            "Set engine to auto, so that such queries run on Spark.",
        )
    return None


def plan_query(reader: Reader, query: Query, *, named: bool = True) -> ProcessPlan | str:
    """Return the plan of a query in this process, or the reason why it needs Spark."""
    if reader.runtime.settings.engine == "spark":
        return "the setting engine is spark"
    check_catalogs(reader, query)
    if query.files or views_of(reader, query):
        return "it reads a view or a table of the Spark session"
    from strandline.sql.translate import Refused, translate

    found = [resolve(reader, ref) for ref in query.tables]
    if any(view.increment for _, view in found):
        return "the changes of an incremental backup are read on Spark"
    tables = [[(c.name, c.type) for c in view.info.schema.columns] for _, view in found]
    translated = translate(query, tables, named=named)
    if isinstance(translated, Refused):
        return translated.reason
    inputs = [
        _input(*found[source.place], query.tables[source.place], source) for source in translated.sources
    ]
    states = [state for each in inputs if each.keys is None for state in (each.state, each.behind) if state]
    if not reader.runtime.store.queries.fits_here(states):
        rows = sum(s.rows for state in states for s in state.chain.segments)
        return f"{count(rows, 'row')} are more than scan_rows or bulk_bytes allow to stream"
    return ProcessPlan(translated, inputs)


def _input(reader: Reader, view: TableView, ref: TableRef, source: QuerySource) -> TableInput:
    schema = view.info.schema
    columns = [schema.names[i] for i in sorted(source.used)] or list(schema.key[:1])
    impl = None if ref.index is None else reader.index(view, view.info.index(ref.index))
    of = view if impl is None else impl
    types = {c.name: c.type for c in schema.columns}
    constraints = Constraints()
    for where in source.where:
        constraints = _both(constraints, constraints_of(where, types, of.info.schema.key, ref.qualifier))
    behind = None if impl is None or all(name in impl.info.schema for name in columns) else view.state
    made = TableInput(reader, ref, view, columns=columns, name=source.name, behind=behind)
    if constraints.impossible:
        return replace(made, keys=())
    keys = lookup_keys(of.info.schema.key, constraints) if impl is None else None
    if keys is not None:
        return replace(made, keys=keys)
    return replace(made, state=of.state.narrow(constraints.key_range(of.info.schema.key)))


def _both(one: Constraints, other: Constraints) -> Constraints:
    found = dict(one.columns)
    for name, allowed in other.columns.items():
        found[name] = both(found[name], allowed) if name in found else allowed
    return Constraints(found)


def _run(reader: Reader, planned: ProcessPlan) -> QueryRows:
    columns = planned.translated.columns
    types = [column.type for column in columns]
    queries, sql = reader.runtime.store.queries, planned.translated.sql
    try:
        rows = queries.run_here(sql, {each.name: _open(each) for each in planned.inputs}, types)
    except FilesRefused:
        inputs = {each.name: _open(each, files=False) for each in planned.inputs}
        rows = queries.run_here(sql, inputs, types)
    return QueryRows([c.name or "" for c in columns], types, [c.declared for c in columns], rows)


def _open(each: TableInput, *, files: bool = True) -> QueryInput:
    """Return the rows of a table for DuckDB. Few rows are read now; many are read while DuckDB runs.

    Args:
        files: whether DuckDB may read files itself.
    """
    schema, store = each.view.info.schema, each.reader.runtime.store
    names = each.columns
    types = [schema[name].type for name in names]
    columns = [
        InputColumn(name, f"c{schema.names.index(name)}", type_.spark)
        for name, type_ in zip(names, types, strict=True)
    ]
    if each.keys is not None:
        each.reader.read_keys(each.view, each.keys)
        rows = list(store.lookup(each.view.state, each.keys, names).values()) if each.keys else []
        arrays = [python_to_array(type_, [row[i] for row in rows]) for i, type_ in enumerate(types)]
        table = pa.table(arrays, list(names))
        return QueryInput(columns, lambda: iter((table,)))
    assert each.state is not None
    each.reader.read_whole(each.view)
    if each.ref.index is not None:
        each.reader.read_whole(each.reader.index(each.view, each.view.info.index(each.ref.index)))
    return store.queries.input(columns, each.state, each.behind, files=files)
