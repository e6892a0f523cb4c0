"""Execute statements that change rows in a transaction, and list the tables that they use."""

from __future__ import annotations

from strandline.catalog.snapshots import Named
from strandline.errors import InvalidArgument
from strandline.sql import statements as st
from strandline.sql.query import Query
from strandline.tables import read, write
from strandline.tables.merge import merge
from strandline.tables.roll_back import roll_back
from strandline.tables.transaction import Transaction

__all__ = ["execute", "tables_of_statement"]


_NAMES = {st.Merge: "MERGE", st.RollBackTable: "RESTORE"}
"""Names for the table's history of statements that make several writes."""


def execute(tx: Transaction, statement: st.Change) -> None:
    """Execute one statement inside the transaction."""
    tx.statement = _NAMES.get(type(statement))
    try:
        _execute(tx, statement)
    finally:
        tx.statement = None


def _execute(tx: Transaction, statement: st.Change) -> None:
    match statement:
        case st.Write():
            view = tx.writable(statement.path)
            columns = write.columns_of(view, statement.columns)
            write.write_source(tx, view, statement.mode, columns, statement.source)
        case st.DeleteOn():
            view = tx.writable(statement.path)
            columns = write.key_columns_of(view, statement.columns)
            write.write_source(tx, view, "DELETE ON", columns, statement.source)
        case st.Update():
            write.update(tx, statement)
        case st.Delete():
            write.delete(tx, statement)
        case st.Merge():
            merge(tx, statement)
        case st.RollBackTable():
            roll_back(tx, statement)
        case _:
            raise InvalidArgument(f"{type(statement).__name__} does not change rows")


def tables_of_statement(statement: st.Change) -> list[Named]:
    """Return the table that a statement changes, and the tables that it reads."""
    match statement:
        case st.Write(path=path, source=source) | st.DeleteOn(path=path, source=source):
            return [
                Named(path, writes=True),
                *(read.tables_of_query(source) if isinstance(source, Query) else ()),
            ]
        case st.Merge(path=path, source=source):
            return [Named(path, writes=True), *read.tables_of_query(source)]
        case st.Update(path=path) | st.Delete(path=path) | st.RollBackTable(path=path):
            return [Named(path, writes=True)]
    return []
