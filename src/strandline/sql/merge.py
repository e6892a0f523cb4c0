"""Reads MERGE INTO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from strandline.errors import SyntaxFault
from strandline.names import quote_spark
from strandline.sql.changes import QUERY_WORDS, read_values
from strandline.sql.cursor import TokenCursor
from strandline.sql.query import Query, parse_query, query_of
from strandline.sql.references import read_reference
from strandline.sql.statements import Merge, MergeAction, Values
from strandline.sql.syntax import Expression
from strandline.sql.tokens import Token

__all__ = ["read_merge"]

_FORM = (
    "MERGE INTO table [AS a] USING table | (SELECT ...) | (VALUES ...) [AS b] ON condition "
    "WHEN MATCHED [AND condition] THEN UPDATE SET column = value, ... | UPDATE SET * | DELETE "
    "WHEN NOT MATCHED [AND condition] THEN INSERT (columns) VALUES (values) | INSERT * "
    "WHEN NOT MATCHED BY SOURCE [AND condition] THEN UPDATE SET column = value, ... | DELETE"
)
_UNNAMED = "__strandline_source"
"""Alias of a source if the statement gives none."""

_When: TypeAlias = Literal["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"]


def read_merge(cursor: TokenCursor) -> Merge:
    cursor.form = _FORM
    cursor.expect("MERGE")
    if cursor.sees("WITH", "SCHEMA"):
        raise cursor.unsupported(
            "MERGE WITH SCHEMA EVOLUTION", "Add the columns with ALTER TABLE table ADD COLUMN first."
        )
    cursor.expect("INTO")
    written, path = cursor.name_and_path("a table name")
    alias = _read_alias(cursor, "USING") or written
    cursor.expect("USING")
    start = cursor.peek()
    source, values, columns, name = _read_source(cursor)
    if name.lower() == alias.lower():
        raise cursor.fault(
            f"the table and the source are both named {alias}",
            "Give one of them another name with AS.",
            start,
        )
    cursor.expect("ON")
    on = _read_expression(cursor, "WHEN")
    actions = [_read_action(cursor, alias)]
    while not cursor.done:
        actions.append(_read_action(cursor, alias))
    _check_order(cursor, actions)
    return Merge(
        path,
        source,
        on,
        tuple(actions),
        alias=alias,
        source_alias=name,
        values=values,
        source_columns=columns,
    )


def _read_alias(cursor: TokenCursor, end: str) -> str | None:
    if cursor.accept("AS") or (cursor.sees_name() and not cursor.sees(end)):
        return cursor.name("an alias")
    return None


# --- the source -------------------------------------------------------------------------------------------


def _read_source(cursor: TokenCursor) -> tuple[Query, Values | None, tuple[str, ...] | None, str]:
    """Read the source of a MERGE.

    Returns its query, its rows if they are constants, the names of its columns if they are known, and its
    alias.
    """
    values, columns, name = None, None, _UNNAMED
    if cursor.sees("("):
        inner = _read_parentheses(cursor)
        if not inner or inner[0].key not in (*QUERY_WORDS, "VALUES", "("):
            raise cursor.fault("expected a table, (SELECT ...) or (VALUES ...) before this")
        source = query_of(cursor.source, inner)
        values, columns = _read_constants(cursor.source, inner)
    elif cursor.peek(1).key == ".":
        parts = [cursor.name("a table name")]
        while cursor.accept("."):
            parts.append(cursor.name("a table name"))
        source = parse_query(f"SELECT * FROM {'.'.join(map(quote_spark, parts))}")
        name = parts[-1]
    else:
        ref = read_reference(cursor)
        # Use the name as written: it may name a view of the Spark session.
        source, name = parse_query(f"SELECT * FROM {replace(ref, path=ref.name).text}"), ref.name
    name = _read_alias(cursor, "ON") or name
    if cursor.sees("("):
        columns = cursor.name_list("a column name")
    return source, values, columns, name


def _read_parentheses(cursor: TokenCursor) -> Sequence[Token]:
    """Read a part in parentheses; return the tokens inside."""
    start, depth = cursor.at, 0
    while not cursor.done:
        depth += {"(": 1, ")": -1}.get(cursor.take().key, 0)
        if depth == 0:
            return cursor.tokens[start + 1 : cursor.at - 1]
    raise cursor.fault("expected )")


def _read_constants(source: str, tokens: Sequence[Token]) -> tuple[Values | None, tuple[str, ...] | None]:
    """Return the rows and column names of VALUES, or of a SELECT without a table.

    Both are None for another query.
    """
    cursor = TokenCursor(source, tokens)
    try:
        if cursor.accept("VALUES"):
            rows = read_values(cursor, None)
            return rows, tuple(f"col{i}" for i in range(1, len(rows.rows[0]) + 1))
        if not cursor.accept("SELECT"):
            return None, None
        row: list[Expression] = []
        names: list[str] = []
        while not row or cursor.accept(","):
            row.append(cursor.expression(",", "AS"))
            cursor.expect("AS")
            names.append(cursor.name("a column name"))
        cursor.expect_end()
    except SyntaxFault:
        return None, None
    return Values((tuple(row),)), tuple(names)


# --- the actions ------------------------------------------------------------------------------------------


def _read_action(cursor: TokenCursor, alias: str) -> MergeAction:
    cursor.expect("WHEN")
    when = _read_when(cursor)
    condition = _read_expression(cursor, "THEN") if cursor.accept("AND") else None
    cursor.expect("THEN")
    if when == "NOT MATCHED":
        return _read_insert(cursor, when, condition)
    if cursor.accept("DELETE"):
        return MergeAction(when, "DELETE", condition)
    if not cursor.accept("UPDATE"):
        raise cursor.fault("expected UPDATE or DELETE")
    cursor.expect("SET")
    if cursor.accept("*"):
        if when == "NOT MATCHED BY SOURCE":
            raise cursor.unsupported("UPDATE SET * without a row of the source")
        return MergeAction(when, "UPDATE", condition, None)
    columns: list[str] = []
    values: list[Expression] = []
    while not columns or cursor.accept(","):
        columns.append(_read_column(cursor, alias))
        cursor.expect("=")
        values.append(_read_expression(cursor, ",", "WHEN"))
    return MergeAction(when, "UPDATE", condition, tuple(columns), tuple(values))


def _read_when(cursor: TokenCursor) -> _When:
    if cursor.accept("MATCHED"):
        return "MATCHED"
    if not cursor.accept("NOT", "MATCHED"):
        raise cursor.fault("expected MATCHED or NOT MATCHED")
    if cursor.accept("BY", "SOURCE"):
        return "NOT MATCHED BY SOURCE"
    if cursor.accept("BY"):
        cursor.expect("TARGET")
    return "NOT MATCHED"


def _read_insert(cursor: TokenCursor, when: _When, condition: Expression | None) -> MergeAction:
    cursor.expect("INSERT")
    if cursor.accept("*"):
        return MergeAction(when, "INSERT", condition, None)
    columns = cursor.name_list("a column name")
    cursor.expect("VALUES", "(")
    values = [cursor.expression(",")]
    while cursor.accept(","):
        values.append(cursor.expression(","))
    cursor.expect(")")
    if len(values) != len(columns):
        raise cursor.fault(f"INSERT has {len(values)} values for {len(columns)} columns before this")
    return MergeAction(when, "INSERT", condition, columns, tuple(values))


def _read_column(cursor: TokenCursor, alias: str) -> str:
    """Read a column on the left side of SET. The table's alias may qualify it."""
    name = cursor.name("a column name")
    if not cursor.accept("."):
        return name
    if name.lower() != alias.lower():
        raise cursor.fault(f"only columns of {alias} can be set, not of {name}, before this")
    return cursor.name("a column name")


def _read_expression(cursor: TokenCursor, *stops: str) -> Expression:
    """Read everything up to one of ``stops`` outside parentheses and CASE ... END."""
    start, depth = cursor.at, 0
    while not cursor.done:
        key = cursor.peek().key
        if depth == 0 and key in stops:
            break
        depth += {"(": 1, "[": 1, "CASE": 1, ")": -1, "]": -1, "END": -1 if depth else 0}.get(key, 0)
        if depth < 0:
            raise cursor.fault(f"expected {' or '.join(stops)}")
        cursor.at += 1
    if cursor.at == start:
        raise cursor.fault("expected an expression")
    return Expression(cursor.source, cursor.tokens[start : cursor.at]).check()


def _check_order(cursor: TokenCursor, actions: Sequence[MergeAction]) -> None:
    """Refuse an action that is never reached, because an earlier one of its kind has no condition."""
    without: set[str] = set()
    for action in actions:
        if action.when in without:
            raise SyntaxFault(
                f"a WHEN {action.when} without a condition is followed by one that is never reached",
                "Give the first one a condition, or move it to the end.",
            )
        if action.condition is None:
            without.add(action.when)
