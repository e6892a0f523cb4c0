"""Find rows: in this process with Arrow or DuckDB, otherwise on Spark. All of them return the same rows.

Arrow finds rows by key, by index, in a small table, or as a stream. DuckDB runs the other queries whose
results are the same as on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.cancellation import phase
from strandline.catalog.snapshots import Named
from strandline.errors import InvalidArgument, PathNotFound
from strandline.model import Key, TableSchema
from strandline.names import did_you_mean, quote_spark
from strandline.sql.columns import missing_column
from strandline.sql.evaluate.predicates import predicate
from strandline.sql.evaluate.ranges import Constraints, key_ranges, lookup_keys
from strandline.sql.evaluate.simple_select import SimpleSelect, sort_rows
from strandline.sql.query import Query, parse_query
from strandline.sql.references import TableRef
from strandline.sql.syntax import Expression
from strandline.sql.tokens import quote
from strandline.storage.rows import Row
from strandline.tables.process_query import QueryRows, run_query
from strandline.tables.session_views import check_catalogs, views_of
from strandline.tables.snapshot import Reader, TableView, count_known, resolve
from strandline.tables.streaming_select import PlainScan, plain_select
from strandline.types import Type, parse_type
from strandline.types.arrays import column_to_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_COUNTED = parse_type("Int64")


@dataclass(frozen=True)
class Selected:
    """The result of a query.

    Attributes:
        frame: creates a DataFrame of the rows.
        columns: names of the columns, if the rows were found in the process.
        rows: the rows as canonical values, if Arrow found them in the process.
        types: types of the columns of ``rows``.
        scan: a scan of the rows, if they can be streamed through the process.
    """

    frame: Callable[[], DataFrame]
    columns: Sequence[str] = ()
    rows: Sequence[tuple[Any, ...]] | None = None
    types: Sequence[Type] | None = None
    _: KW_ONLY
    scan: PlainScan | None = None
    found: QueryRows | None = None
    """The rows, if DuckDB found them in the process."""


def tables_of_query(query: Query) -> list[Named]:
    """Return the tables whose present state a query reads."""
    return [Named(ref.path, ref.index) for ref in query.tables if ref.is_now]


def select(reader: Reader, query: Query) -> Selected:
    """Run a query in this process with Arrow or DuckDB if possible, otherwise on Spark."""
    with phase("querying"):
        try:
            return _select(reader, query)
        except PathNotFound:
            if not views_of(reader, query):
                raise
            frame = query_frame(reader, query)
            return Selected(lambda: frame)


def _select(reader: Reader, query: Query) -> Selected:
    simple = None if reader.runtime.settings.engine == "spark" else query.simple
    found = None if simple is None else _select_here(reader, simple)
    if found is not None:
        return Selected(lambda: query_frame(reader, query), *found)
    if simple is not None and reader.is_fixed:
        scan = plain_select(reader, simple)
        if scan is not None:
            return Selected(lambda: query_frame(reader, query), scan=scan)
    rows = run_query(reader, query)
    if rows is not None:
        return Selected(lambda: query_frame(reader, query), rows.names, found=rows)
    frame = query_frame(reader, query)
    return Selected(lambda: frame)


def lookup(
    reader: Reader, view: TableView, keys: Collection[Key], columns: Sequence[str] | None = None
) -> dict[Key, Row]:
    return reader.runtime.store.lookup(view.state, keys, columns)


# --- in this process --------------------------------------------------------------------------------------


def matching_rows(reader: Reader, view: TableView, alias: str, where: Expression | None) -> list[Row] | None:
    """Return the rows of a table that satisfy a condition; None if this needs Spark."""
    if reader.runtime.settings.engine == "spark":
        return None
    types = {c.name: c.type for c in view.info.schema.columns}
    holds = (lambda row: True) if where is None else predicate(where, types, alias)
    if holds is None:
        return None
    names = view.info.schema.names
    found = _candidates(reader, view, key_ranges(where, types, view.info.schema.key, alias), names)
    if found is None:
        return None
    return [row for row in found if holds(dict(zip(names, row, strict=True))) is True]


def _candidates(
    reader: Reader, view: TableView, constraints: Constraints, columns: Sequence[str]
) -> Iterable[Row] | None:
    """Return a superset of the rows that satisfy the constraints; None if it is too large."""
    if constraints.impossible:
        return []
    key = view.info.schema.key
    keys = lookup_keys(key, constraints)
    if keys is not None:
        reader.read_keys(view, keys)
        return lookup(reader, view, keys, columns).values()
    # Record the read also for an empty table: the result depends on the absence of rows.
    reader.read_whole(view)
    if not view.chain.segments:
        return []
    rows = reader.runtime.store.scan(replace(view.state, within=constraints.key_range(key)), columns)
    if rows is None:
        return None
    values = [column_to_python(view.info.schema[name].type, rows[name]) for name in columns]
    return list(zip(*values, strict=True)) if columns else [()] * rows.num_rows


def columns_used(simple: SimpleSelect, table: TableSchema) -> set[str] | None:
    """Return the columns that a query shows or sorts by.

    None if it names something that is no column: Spark then resolves the name or reports the error.
    """
    exact = {name.lower(): name for name in table.names}
    shown = table.names if simple.columns is None else [column for column, _ in simple.columns]
    used = [name.lower() for name in (*shown, *(o.column for o in simple.order))]
    return {exact[name] for name in used} if all(name in exact for name in used) else None


def _select_here(
    reader: Reader, simple: SimpleSelect
) -> tuple[list[str], list[tuple[Any, ...]], list[Type]] | None:
    reader, view = resolve(reader, simple.table)
    if view.increment:
        return None
    table = view.info.schema
    types = {c.name: c.type for c in table.columns}
    exact = {name.lower(): name for name in table.names}
    wanted = [(n, n) for n in table.names] if simple.columns is None else list(simple.columns)
    used = columns_used(simple, table)
    if used is None:
        return None
    holds = (
        (lambda row: True) if simple.where is None else predicate(simple.where, types, simple.table.qualifier)
    )
    if holds is None:
        return None
    if simple.count is not None and simple.where is None and simple.table.index is None:
        known = count_known(view.chain)
        if known is not None:
            reader.read_whole(view)
            return [simple.count], [(known,)], [_COUNTED]
    rows = _rows_here(reader, view, simple, types, used)
    if rows is None:
        return None
    found = [row for row in rows if holds(row) is True]
    if simple.count is not None:
        return [simple.count], [(len(found),)], [_COUNTED]
    order = [type(o)(exact[o.column.lower()], o.descending, o.nulls_first) for o in simple.order]
    ordered = sort_rows(found, order)[: simple.limit]
    columns = [(exact[column.lower()], types[exact[column.lower()]]) for column, _ in wanted]
    values = [tuple(row[name] for name, _ in columns) for row in ordered]
    return [shown for _, shown in wanted], values, [type_ for _, type_ in columns]


def _rows_here(
    reader: Reader, view: TableView, simple: SimpleSelect, types: Mapping[str, Type], used: set[str]
) -> list[dict[str, Any]] | None:
    """Return candidate rows as dicts with at least the columns that the query uses.

    Return None if there are too many rows for this process.
    """
    where, qualifier = simple.where, simple.table.qualifier
    if simple.table.index is None:
        names = view.info.schema.names
        found = _candidates(reader, view, key_ranges(where, types, view.info.schema.key, qualifier), names)
        return None if found is None else [dict(zip(names, row, strict=True)) for row in found]
    impl = reader.index(view, view.info.index(simple.table.index))
    names = impl.info.schema.names
    found = _candidates(reader, impl, key_ranges(where, types, impl.info.schema.key, qualifier), names)
    if found is None:
        return None
    entries = [dict(zip(names, row, strict=True)) for row in found]
    mentioned = used | {n for n in types if where is not None and n.lower() in where.names}
    if mentioned <= set(names):
        return entries
    keys = [tuple(entry[n] for n in view.info.schema.key) for entry in entries]
    reader.read_keys(view, keys)
    rows = reader.runtime.store.rows_behind(view.state, keys)
    if rows is None:
        return None
    # Values of the entry replace those of the row: an asynchronous index may be older than its table.
    names = view.info.schema.names
    return [
        {**dict(zip(names, rows[key], strict=True)), **entry}
        for key, entry in zip(keys, entries, strict=True)
        if key in rows
    ]


# --- on Spark ---------------------------------------------------------------------------------------------


def query_frame(reader: Reader, query: Query, prefix: str = "") -> DataFrame:
    """Return a DataFrame of a query over the tables as the reader sees them.

    Args:
        prefix: SQL before the query, for example EXPLAIN.
    """
    # Resolve all tables first: errors are then reported before Spark is started.
    check_catalogs(reader, query)
    views = views_of(reader, query)
    found = {
        i: _resolve_reference(reader, ref) for i, ref in enumerate(query.tables) if ref.name not in views
    }
    if not views:
        check_columns(query, [view for _, view, _ in found.values()])
    frames = {f"t{i}": _reference_frame(query, query.tables[i], *each) for i, each in found.items()}
    names = [f"{{t{i}}}" if i in found else quote_spark(ref.name) for i, ref in enumerate(query.tables)]
    text = query.render(names)
    if views and not frames:
        text = text.format()  # Turn {{ into {: Spark does this only if it gets frames.
    return reader.runtime.store.queries.sql(prefix + text, frames, query.args)


def matching_query(
    view: TableView,
    alias: str,
    assigned: Sequence[str],
    where: Expression | None,
    *,
    params: Mapping[str, Any],
) -> Query:
    """Return a query for the rows that satisfy a condition: their keys, and values computed from them.

    The condition and the values may use other tables.

    Args:
        assigned: the values, as items of a SELECT.
        params: the parameters in ``assigned``.
    """
    items = ", ".join([*(quote(name) for name in view.info.schema.key), *assigned])
    condition = "" if where is None else f" WHERE ({where.named})"
    text = f"SELECT {items} FROM {quote(view.info.path)} AS {quote(alias)}{condition}"
    values = {**params, **({} if where is None else where.params)}
    return parse_query(text, values)


def rows_or_frame(reader: Reader, query: Query) -> pa.Table | DataFrame:
    """Run a query, in the process if possible. Its rows may be returned under other column names."""
    with phase("querying"):
        found = run_query(reader, query, named=False)
        return query_frame(reader, query) if found is None else found.physical


def values_query(expressions: Sequence[Expression]) -> Query:
    """Return a query that computes expressions without a table, each as a column of one row."""
    items = ", ".join(f"({e.named}) AS __strandline_{i}" for i, e in enumerate(expressions))
    return parse_query(f"SELECT {items}", {name: v for e in expressions for name, v in e.params.items()})


def evaluate(reader: Reader, expressions: Sequence[Expression]) -> list[pa.ChunkedArray]:
    """Evaluate expressions without a table; return for each a column with its value."""
    rows = rows_or_frame(reader, values_query(expressions))
    found = rows if isinstance(rows, pa.Table) else reader.runtime.store.queries.values(rows)
    if found.num_rows != 1:
        raise InvalidArgument(
            f"an expression in VALUES has {found.num_rows} values", "Write SELECT instead of VALUES."
        )
    return list(found.columns)


def table_frame(reader: Reader, view: TableView) -> DataFrame:
    """Return a DataFrame of a table's rows; for an incremental backup, its changes and the column DELETED."""
    store = reader.runtime.store
    return store.queries.increment(view.state) if view.increment else store.queries.frame(view.state)


def check_columns(query: Query, views: Sequence[TableView]) -> None:
    """Refuse a query with a column that none of its tables has."""
    if not views or any(view.increment for view in views):
        return
    names = [view.info.schema.names for view in views]
    missing = missing_column(query, names)
    if missing is not None:
        there = dict.fromkeys(name for each in names for name in each)
        raise InvalidArgument(
            f"there is no column {missing} in {', '.join(dict.fromkeys(view.info.path for view in views))}",
            did_you_mean(missing.rpartition(".")[2], there) or f"There are {', '.join(there)}.",
        )


def _resolve_reference(reader: Reader, ref: TableRef) -> tuple[Reader, TableView, TableView | None]:
    """Return the reader and the table for a reference, and the index that it names; None if it names none."""
    reader, view = resolve(reader, ref)
    impl = None if ref.index is None else reader.index(view, view.info.index(ref.index))
    return reader, view, impl


def _reference_frame(
    query: Query, ref: TableRef, reader: Reader, view: TableView, impl: TableView | None
) -> DataFrame:
    reader.read_whole(view)
    reader.lend()
    store, schema = reader.runtime.store, view.info.schema
    if impl is None:
        return store.queries.declare_types(table_frame(reader, view), schema)
    reader.read_whole(impl)
    rest = [n for n in schema.names if n not in impl.info.schema]
    # A query with a star or a NATURAL JOIN, or without SELECT, may use columns that it does not name.
    unnamed = "*" in query.text or "natural" in query.names or "select" not in query.names
    whole = unnamed or any(name.lower() in query.names for name in rest)
    return store.queries.declare_types(
        store.queries.through_index(view.state, impl.state, whole=whole), schema
    )


def scan_frame(
    reader: Reader, ref: TableRef, columns: Sequence[str] | None, where: Expression | None
) -> DataFrame:
    """Return a DataFrame of the rows of a table that satisfy a condition.

    Args:
        columns: names of the columns to return. None: all columns.
        where: the condition. None: all rows.
    """
    items = "*" if columns is None else ", ".join(quote(name) for name in columns)
    condition = "" if where is None else f" WHERE ({where.named})"
    params = {} if where is None else where.params
    source = f"{ref.text} AS {quote(ref.qualifier)}"
    return query_frame(reader, parse_query(f"SELECT {items} FROM {source}{condition}", params))
