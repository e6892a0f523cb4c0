"""Execute UPSERT, INSERT, REPLACE, UPDATE and DELETE in a transaction, from statements or from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import InvalidArgument
from strandline.model import Key, TableSchema
from strandline.names import column
from strandline.sql import statements as st
from strandline.sql.evaluate.literals import NotConstant
from strandline.sql.query import Query
from strandline.sql.syntax import Expression
from strandline.sql.tokens import quote
from strandline.storage.rows import Mode, Row
from strandline.tables import read
from strandline.tables.snapshot import TableView
from strandline.tables.transaction import Transaction
from strandline.tables.values import constant_of, text_of, value_function
from strandline.types import coerce
from strandline.types.arrays import array_from_user, check_source, column_to_python, python_to_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVALUATED = 200
"""Maximum number of expressions that one query evaluates."""


def write_rows(
    tx: Transaction, view: TableView, mode: Mode, columns: Sequence[str], rows: Sequence[Row]
) -> None:
    """Write rows of canonical values."""
    types = [view.info.schema[name].type for name in columns]
    arrays = [python_to_array(type_, [row[i] for row in rows]) for i, type_ in enumerate(types)]
    tx.write(view, mode, pa.table(arrays, list(columns)))


def write_arrow(tx: Transaction, view: TableView, mode: Mode, data: pa.Table) -> None:
    """Write the rows of an Arrow table. Its columns have names of the table's columns."""
    table = view.info.schema
    columns = frame_columns(view, mode, tuple(data.column_names))
    arrays = [array_from_user(table[name].type, data.column(i), name) for i, name in enumerate(columns)]
    tx.write(view, mode, pa.table(arrays, list(columns)))


def write_dicts(tx: Transaction, view: TableView, mode: Mode, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a list of dicts, which may have different columns.

    A missing column is treated as by a statement that does not name it: UPSERT keeps its value.
    """
    table = view.info.schema
    groups: list[tuple[tuple[str, ...], list[Row]]] = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidArgument(
                f"row {number} is a {type(row).__name__}, not a dict",
                "Pass dicts that map column names to values.",
            )
        given = tuple(row)
        if not all(isinstance(name, str) for name in given):
            raise InvalidArgument(
                f"row {number} has a key that is not a column name",
                "Use column names as the keys of the dict.",
            )
        columns = frame_columns(view, mode, given)
        values = tuple(
            coerce(table[name].type, row[key], name) for name, key in zip(columns, given, strict=True)
        )
        if groups and groups[-1][0] == columns:
            groups[-1][1].append(values)
        else:
            groups.append((columns, [values]))
    for columns, group in groups:
        write_rows(tx, tx.writable(view.info.path), mode, columns, group)


def write_source(
    tx: Transaction, view: TableView, mode: Mode, columns: tuple[str, ...], source: st.Values | Query
) -> None:
    if not isinstance(source, st.Values):
        _write_found(tx, view, mode, columns, read.rows_or_frame(tx, source))
        return
    check_width(columns, source)
    write_rows(tx, view, mode, columns, _rows(tx, view.info.schema, columns, source))


def _write_found(
    tx: Transaction, view: TableView, mode: Mode, columns: Sequence[str], found: pa.Table | DataFrame
) -> None:
    """Write the rows of a query. Its columns are assigned to ``columns`` by position."""
    width = found.num_columns if isinstance(found, pa.Table) else len(found.columns)
    if width != len(columns):
        raise InvalidArgument(
            f"the SELECT has {width} columns, but {len(columns)} columns are written",
            "Select one value for each column.",
        )
    if not isinstance(found, pa.Table):
        tx.write(view, mode, found.toDF(*columns))
        return
    arrays = []
    for name, column_ in zip(columns, found.columns, strict=True):
        type_ = view.info.schema[name].type
        check_source(type_, column_.type, name)
        arrays.append(array_from_user(type_, column_, name))
    tx.write(view, mode, pa.table(arrays, list(columns)))


def check_width(columns: Sequence[str], values: st.Values) -> None:
    """Refuse rows whose number of values differs from the number of columns."""
    for row in values.rows:
        if len(row) != len(columns):
            raise InvalidArgument(
                f"a row has {len(row)} values for {len(columns)} columns", "Give one value for each column."
            )


def _rows(tx: Transaction, table: TableSchema, columns: Sequence[str], values: st.Values) -> list[Row]:
    """Return the rows of VALUES as canonical values.

    Values that are not constants are evaluated by queries, each as a column of its own. If they were rows of
    one table, all values of a column would get one type, and a number could silently become text.
    """
    rows: list[list[Any]] = []
    beyond: list[tuple[list[Any], int, Expression]] = []
    for row in values.rows:
        rows.append([None] * len(columns))
        for i, (name, value) in enumerate(zip(columns, row, strict=True)):
            try:
                rows[-1][i] = constant_of(table, name, value)
            except NotConstant:
                beyond.append((rows[-1], i, value))
    for start in range(0, len(beyond), EVALUATED):
        part = beyond[start : start + EVALUATED]
        for (made, i, _), found in zip(part, read.evaluate(tx, [value for _, _, value in part]), strict=True):
            type_ = table[columns[i]].type
            check_source(type_, found.type, columns[i])
            (made[i],) = column_to_python(type_, array_from_user(type_, found, columns[i]))
    return [tuple(row) for row in rows]


def update(tx: Transaction, statement: st.Update) -> None:
    view = tx.writable(statement.path)
    table = view.info.schema
    setters = setters_of(view, statement)
    set_ = list(setters)
    rows = read.matching_rows(tx, view, statement.alias, statement.where) if all(setters.values()) else None
    columns = (*table.key, *set_)
    if rows is not None:
        at = [table.names.index(name) for name in table.key]
        new = []
        for row in rows:
            fields = dict(zip(table.names, row, strict=True))
            new.append((*(row[i] for i in at), *(s(fields) for s in setters.values() if s is not None)))
        write_rows(tx, view, "UPDATE", columns, new)
        return
    query = query_of_change(view, statement)
    _write_found(tx, view, "UPDATE", columns, read.rows_or_frame(tx, query))


def query_of_change(view: TableView, statement: st.Update | st.Delete) -> Query:
    """Return a query for the rows that a statement changes: their keys and, for UPDATE, their new values."""
    table = view.info.schema
    assignments = statement.assignments if isinstance(statement, st.Update) else ()
    assigned, params = [], {}
    for given, value in assignments:
        name = column(given, table.names, statement.path)
        assigned.append(f"{text_of(table, name, value)} AS {quote(name)}")
        params.update(value.params)
    return read.matching_query(view, statement.alias, assigned, statement.where, params=params)


def setters_of(view: TableView, statement: st.Update) -> dict[str, Any]:
    """Return the columns that an UPDATE sets, each with a function that computes its value from a row.

    The function is None if the value needs Spark.
    """
    table = view.info.schema
    set_ = [column(name, table.names, statement.path) for name, _ in statement.assignments]
    if len(set(set_)) != len(set_):
        raise InvalidArgument("UPDATE sets a column twice", "Set each column once.")
    for name in set_:
        if name in table.key:
            raise InvalidArgument(
                f"column {name!r} is in the primary key, which UPDATE cannot change",
                "Delete the row and insert it under its new key.",
            )
    types = {c.name: c.type for c in table.columns}
    return {
        name: value_function(table, name, value, types, statement.alias)
        for name, (_, value) in zip(set_, statement.assignments, strict=True)
    }


def delete(tx: Transaction, statement: st.Delete) -> None:
    view = tx.writable(statement.path)
    table = view.info.schema
    rows = read.matching_rows(tx, view, statement.alias, statement.where)
    if rows is not None:
        at = [table.names.index(name) for name in table.key]
        keys: list[Key] = [tuple(row[i] for i in at) for row in rows]
        write_rows(tx, view, "DELETE", table.key, keys)
        return
    _write_found(tx, view, "DELETE", table.key, read.rows_or_frame(tx, query_of_change(view, statement)))


def frame_columns(view: TableView, mode: Mode, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of the table that the columns of a DataFrame or an Arrow table are written to."""
    return key_columns_of(view, given) if mode == "DELETE ON" else columns_of(view, given)


def columns_of(view: TableView, given: tuple[str, ...] | None) -> tuple[str, ...]:
    table = view.info.schema
    known = table.names
    if given is None:
        return known
    columns = tuple(column(name, known, view.info.path) for name in given)
    if len(set(columns)) != len(columns):
        raise InvalidArgument("a column is named twice", "Name each column once.")
    for name in table.key:
        if name not in columns:
            raise InvalidArgument(
                f"the key column {name!r} is missing",
                f"Name every column of the primary key ({', '.join(table.key)}).",
            )
    return columns


def key_columns_of(view: TableView, given: tuple[str, ...] | None) -> tuple[str, ...]:
    columns = view.info.schema.key if given is None else columns_of(view, given)
    if set(columns) != set(view.info.schema.key):
        raise InvalidArgument(
            "DELETE ON takes exactly the key columns",
            f"Name {', '.join(view.info.schema.key)}, or use DELETE FROM ... WHERE.",
        )
    return columns
