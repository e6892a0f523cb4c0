"""Reads UPSERT, INSERT, REPLACE, UPDATE and DELETE."""

from __future__ import annotations

from typing import Literal

from strandline.sql.cursor import TokenCursor
from strandline.sql.query import Query, query_of
from strandline.sql.references import TableRef, read_time
from strandline.sql.statements import Delete, DeleteOn, RollBackTable, Update, Values, Write
from strandline.sql.syntax import Expression
from strandline.sql.tokens import NAME, WORD

__all__ = [
    "QUERY_WORDS",
    "read_delete",
    "read_query",
    "read_roll_back",
    "read_update",
    "read_values",
    "read_write",
]

WRITE_FORM = "UPSERT | INSERT | REPLACE INTO table [(columns)] VALUES (values), ... | SELECT ..."
UPDATE_FORM = "UPDATE table SET column = expression, ... [WHERE condition]"
DELETE_FORM = (
    "DELETE FROM table [WHERE condition] | DELETE FROM table ON (columns) VALUES (values), ... | SELECT ..."
)

ROLL_BACK_FORM = "RESTORE TABLE table TO VERSION AS OF step | TIMESTAMP AS OF 'time'"

QUERY_WORDS = ("SELECT", "WITH", "FROM")


def read_write(cursor: TokenCursor) -> Write:
    cursor.form = WRITE_FORM
    mode: Literal["UPSERT", "INSERT", "REPLACE"]
    if cursor.accept("UPSERT"):
        mode = "UPSERT"
    elif cursor.accept("REPLACE"):
        mode = "REPLACE"
    else:
        cursor.expect("INSERT")
        mode = "INSERT"
        if cursor.sees("OVERWRITE") or cursor.sees("OR"):
            raise cursor.unsupported(
                f"INSERT {cursor.peek().key}",
                "UPSERT INTO replaces rows of the same keys. All rows, in one commit: "
                "DELETE FROM table; INSERT INTO table ...",
            )
    cursor.expect("INTO")
    if cursor.sees("TABLE") and cursor.sees_name(1) and cursor.peek(1).key not in (*QUERY_WORDS, "VALUES"):
        cursor.take()  # Spark's INSERT INTO TABLE t; a table may be named TABLE, too.
    path = cursor.path()
    columns = _read_columns(cursor)
    return Write(mode, path, columns, _read_source(cursor, columns))


def _read_columns(cursor: TokenCursor) -> tuple[str, ...] | None:
    """Read a list of columns. Return None if a query or VALUES follows instead."""
    after = cursor.peek(1)
    is_query = after.key in (*QUERY_WORDS, "VALUES", "(") and cursor.peek(2).key not in (",", ")")
    if not cursor.sees("(") or is_query:
        return None
    return cursor.name_list("a column name")


def _read_source(cursor: TokenCursor, columns: tuple[str, ...] | None) -> Values | Query:
    if cursor.accept("VALUES"):
        return read_values(cursor, columns)
    return read_query(cursor, "VALUES or SELECT" if columns else "(columns), VALUES or SELECT")


def read_query(cursor: TokenCursor, expected: str = "SELECT") -> Query:
    """Read a query up to the end of the statement."""
    if cursor.peek().key not in (*QUERY_WORDS, "("):
        raise cursor.fault(f"expected {expected}")
    return query_of(cursor.source, cursor.rest())


def read_values(cursor: TokenCursor, columns: tuple[str, ...] | None) -> Values:
    """Read the rows after VALUES up to the end of the statement."""
    rows: list[tuple[Expression, ...]] = []
    width = len(columns) if columns is not None else None
    while True:
        start = cursor.peek()
        cursor.expect("(")
        row = [cursor.expression(",")]
        while cursor.accept(","):
            row.append(cursor.expression(","))
        cursor.expect(")")
        if width is None:
            width = len(row)
        if len(row) != width:
            what = "the columns are" if columns is not None else "the first row has"
            raise cursor.fault(f"this row has {len(row)} values where {what} {width}", token=start)
        rows.append(tuple(row))
        if not cursor.accept(","):
            break
    if not cursor.done:
        raise cursor.fault("expected , or the end of the statement")
    return Values(tuple(rows))


def read_update(cursor: TokenCursor) -> Update:
    cursor.form = UPDATE_FORM
    cursor.expect("UPDATE")
    written, path = cursor.name_and_path("a table name")
    if cursor.sees("ON"):
        raise cursor.unsupported("UPDATE ... ON", "UPSERT INTO table SELECT ... changes rows by key.")
    cursor.expect("SET")
    assignments = [_read_assignment(cursor)]
    while cursor.accept(","):
        assignments.append(_read_assignment(cursor))
    where = _read_where(cursor)
    if not cursor.done:
        raise cursor.fault(
            "expected the end of the statement"
            if where
            else "expected , or WHERE or the end of the statement"
        )
    return Update(path, tuple(assignments), where, written)


def _read_assignment(cursor: TokenCursor) -> tuple[str, Expression]:
    if cursor.sees("("):
        raise cursor.unsupported(
            "UPDATE ... SET (columns) = ...", f"Assign one column at a time. {cursor.hint}"
        )
    column = cursor.name("a column name")
    cursor.expect("=")
    return column, cursor.expression(",", "WHERE")


def _read_where(cursor: TokenCursor) -> Expression | None:
    return cursor.expression() if cursor.accept("WHERE") else None


def read_delete(cursor: TokenCursor) -> Delete | DeleteOn:
    cursor.form = DELETE_FORM
    cursor.expect("DELETE", "FROM")
    written, path = cursor.name_and_path("a table name")
    if cursor.accept("ON"):
        columns = _read_columns(cursor)
        if columns is None and cursor.sees("VALUES"):
            raise cursor.fault("expected (columns)")
        return DeleteOn(path, columns, _read_source(cursor, columns))
    if not cursor.done and not cursor.sees("WHERE"):
        kind = cursor.peek().kind
        raise cursor.fault(
            "expected WHERE or ON"
            if kind in (WORD, NAME)
            else "expected WHERE, ON or the end of the statement"
        )
    where = _read_where(cursor)
    cursor.expect_end()
    return Delete(path, where, written)


def read_roll_back(cursor: TokenCursor) -> RollBackTable:
    cursor.form = ROLL_BACK_FORM
    cursor.expect("RESTORE")
    if not cursor.sees("TABLE", "TO"):
        cursor.accept("TABLE")
    name, path = cursor.name_and_path("a table name")
    cursor.accept("TO")
    source = read_time(cursor, TableRef(path, name))
    if source is None or source.backup is not None:
        raise cursor.fault("expected VERSION AS OF step or TIMESTAMP AS OF 'time'")
    cursor.expect_end()
    return RollBackTable(path, source)
