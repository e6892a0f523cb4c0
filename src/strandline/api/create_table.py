"""Create a table with rows in one commit: ``db.create_table`` and CREATE TABLE ... AS SELECT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from strandline import names
from strandline.api.caller_rows import CallerFrame, columns_of_table, read_caller_rows
from strandline.api.result import Result
from strandline.catalog.definitions import TableDefinition
from strandline.errors import InvalidArgument, PreconditionFailed, Unsupported
from strandline.model import IndexDef
from strandline.sql import statements as st
from strandline.sql.query import Query
from strandline.sql.tokens import quote
from strandline.tables import ddl, read, write
from strandline.tables.transaction import Transaction
from strandline.types import Type
from strandline.types.arrays import python_to_array, to_outgoing
from strandline.types.inference import type_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.api.database import Database

__all__ = [
    "Columns",
    "Index",
    "create_table",
    "create_with_rows",
    "define_for_columns",
    "suggest_create_table",
    "suggest_key_option",
]

Columns: TypeAlias = Sequence[tuple[str, Type | None]]
"""Names of columns, each with its type in a table. None: no type can hold the values of the column."""


@dataclass(frozen=True)
class Index:
    """A global index of a new table.

    Args:
        name: its name in the table.
        columns: the indexed columns.
        cover: columns that queries can read from the index alone.
        unique: refuse a row if another row has the same values in the indexed columns.
        asynchronous: update the index after a commit to the table, instead of in that commit.
    """

    name: str
    columns: Sequence[str]
    _: KW_ONLY
    cover: Sequence[str] = ()
    unique: bool = False
    asynchronous: bool = False

    def definition(self) -> IndexDef:
        """Return the definition for the catalog."""
        for given, what in ((self.columns, "columns"), (self.cover, "cover")):
            if isinstance(given, str):
                raise InvalidArgument(
                    f"{what} of the index {self.name!r} is a text", f"Pass a list: {what}=[{given!r}]."
                )
        if self.unique and self.asynchronous:
            raise Unsupported(
                f"the index {self.name!r} is unique and asynchronous",
                "Leave asynchronous out: an index that follows later cannot refuse a row.",
            )
        return IndexDef(
            name=self.name,
            kind="GLOBAL ASYNC" if self.asynchronous else "GLOBAL SYNC",
            columns=tuple(self.columns),
            cover=tuple(self.cover),
            unique=self.unique,
        )


def create_table(
    db: Database,
    path: str,
    data: Any,
    *,
    key: Sequence[str],
    indexes: Sequence[Index],
    types: Mapping[str, str],
    if_not_exists: bool,
) -> bool:
    """Create a table with the columns and rows of ``data``; return whether it was created."""
    if isinstance(key, str):
        raise InvalidArgument("key is a text, not a list of columns", f"Pass a list: key=[{key!r}].")
    for index in indexes:
        if not isinstance(index, Index):
            raise InvalidArgument(
                f"{index!r} is not an index", f'Pass a list: indexes=[Index("by_{key[0]}", ["{key[0]}"])].'
            )
    statement = st.CreateTable(
        names.normalize(path),
        tuple(st.ColumnDef(name, type_) for name, type_ in types.items()),
        tuple(key),
        indexes=tuple(index.definition() for index in indexes),
        if_not_exists=if_not_exists,
    )
    rows = data.empty_table() if isinstance(data, pa.Schema) else read_caller_rows("INSERT", data)
    if isinstance(rows, list):
        rows = _table_of_dicts(rows)
    return create_with_rows(db, statement, rows).step is not None


def create_with_rows(
    db: Database, statement: st.CreateTable, source: CallerFrame | pa.Table | Query
) -> Result:
    """Create a table with rows of a caller or of a query, in one commit.

    A column that ``statement`` defines has the type from its definition. Every other column of ``source``
    gets a type that can hold its values.
    """
    _refuse_in_transaction(db)
    db._operations.note_change()

    def run(tx: Transaction) -> None:
        if statement.if_not_exists:
            with db._runtime.catalog.read() as conn:
                if ddl.table_exists(conn, statement.path):
                    return
        if isinstance(source, Query):
            rows, types = _select(tx, source)
        else:
            rows, types = source, _types_of(source)
        view = tx.create(ddl.define_table(replace(statement, columns=_columns(statement, types))))
        if isinstance(rows, CallerFrame):
            rows.write(tx, view, "INSERT")
        elif isinstance(rows, pa.Table):
            write.write_arrow(tx, view, "INSERT", rows)
        else:
            tx.write(view, "INSERT", rows)

    keep = source.keep if isinstance(source, CallerFrame) else lambda tx: None
    return Result.of_change(*db._transactions.change(run, before_abort=keep))


def _refuse_in_transaction(db: Database) -> None:
    """Refuse to create a table inside an open transaction: a rollback could not remove the table."""
    if db._transactions.current is not None:
        raise PreconditionFailed(
            "a table cannot be created inside a transaction", "Create it before or after the transaction."
        )


def suggest_create_table(path: str, data: CallerFrame | pa.Table | Sequence[Any]) -> str:
    """Return a hint with the statement that creates a missing table for these rows."""
    rows = data if isinstance(data, CallerFrame | pa.Table) else _table_of_dicts(data)
    types = _types_of(rows)
    otherwise = f"create it with its rows: db.create_table({path!r}, data, key=[{next(iter(types))!r}])"
    return _suggest(path, types, otherwise)


def suggest_key_option(path: str, columns: Columns) -> str:
    """Return a hint with the statement, or with the option of a Spark write, that creates a missing table."""
    types = _known_types(columns)
    return _suggest(path, types, f'set the option of the write: option("key", "{next(iter(types))}")')


def _suggest(path: str, types: Mapping[str, Type], otherwise: str) -> str:
    key = next(iter(types))
    columns = ", ".join(
        f"{quote(name)} {type_.name}{' NOT NULL' if name == key else ''}" for name, type_ in types.items()
    )
    statement = f"CREATE TABLE {quote(path.lstrip('/'))} ({columns}, PRIMARY KEY ({quote(key)}))"
    return f"Create it with the key that fits: {statement}; or {otherwise}."


def define_for_columns(
    path: str, columns: Columns, key: Sequence[str], indexes: Sequence[Index]
) -> TableDefinition:
    """Return the definition of a table with these columns, for rows that Spark writes."""
    statement = st.CreateTable(path, (), tuple(key), indexes=tuple(index.definition() for index in indexes))
    types = _known_types(columns)
    return ddl.define_table(replace(statement, columns=_columns(statement, types)))


def _columns(statement: st.CreateTable, types: Mapping[str, Type]) -> tuple[st.ColumnDef, ...]:
    """Return the columns of the new table: those of the rows, with the types that the statement defines."""
    given = {names.column(column.name, list(types), "the data"): column for column in statement.columns}
    key = {names.column(name, list(types), "the data") for name in statement.key}
    return tuple(
        st.ColumnDef(
            name,
            given[name].type if name in given else type_.name,
            name in key or (name in given and given[name].not_null),
        )
        for name, type_ in types.items()
    )


def _types_of(source: CallerFrame | pa.Table) -> dict[str, Type]:
    """Return the types of the columns; refuse columns that no table can have."""
    return _known_types(source.columns if isinstance(source, CallerFrame) else columns_of_table(source))


def _known_types(columns: Columns) -> dict[str, Type]:
    found: dict[str, Type] = {}
    for name, type_ in columns:
        if type_ is None:
            raise Unsupported(
                f"column {name} has values that no column type can hold", "Convert or omit the column."
            )
        if name in found:
            raise InvalidArgument(f"two columns are named {name}", "Give each column its own name.")
        found[name] = type_
    return found


def _select(tx: Transaction, query: Query) -> tuple[pa.Table | DataFrame, dict[str, Type]]:
    """Return the rows of a query in a transaction, and the types of its columns.

    Spark has no unsigned types. So a column that has the same name and the same Spark type as a column of a
    queried table gets the type of the table's column.
    """
    found = read.select(tx, query)
    if found.rows is not None and found.types is not None:
        types = dict(zip(found.columns, found.types, strict=True))
        arrays = [
            to_outgoing(type_, python_to_array(type_, [row[i] for row in found.rows]))
            for i, type_ in enumerate(types.values())
        ]
        return pa.table(arrays, list(types)), types
    rows: pa.Table | DataFrame
    if found.found is not None:
        rows = found.found.physical.rename_columns(list(found.found.names))
        inferred = _known_types(
            list(zip(found.found.names, map(type_of_spark, found.found.types), strict=True))
        )
    else:
        rows = found.frame()
        inferred = _types_of(CallerFrame(rows))
    own = {
        column.name: column.type
        for ref in query.tables
        if ref.is_now
        for column in tx.view(ref.path).info.schema.columns
    }
    return rows, {
        name: own[name] if name in own and own[name].spark == type_.spark else type_
        for name, type_ in inferred.items()
    }


def _table_of_dicts(rows: Sequence[Any]) -> pa.Table:
    found = [row.asDict() if hasattr(row, "asDict") else row for row in rows]
    for number, row in enumerate(found):
        if not isinstance(row, Mapping):
            raise InvalidArgument(
                f"row {number} is a {type(row).__name__}, not a dict",
                "Pass dicts that map column names to values.",
            )
    columns = list(dict.fromkeys(name for row in found for name in row))
    if not columns:
        raise InvalidArgument(
            "there are no rows to take columns from",
            "Pass an Arrow schema, or create the table with CREATE TABLE.",
        )
    try:
        return pa.table([pa.array([row.get(name) for row in found]) for name in columns], columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InvalidArgument(
            f"the values of a column have different types: {error}",
            "Pass an Arrow table, or create the table with CREATE TABLE first.",
        ) from None
