"""Recognises queries that need no Spark: filtered and ordered columns of one table, or its count.

Queries are recognised by their tokens. In any case of doubt the result is None. The caller must check that
every name in a recognised query is a column of the table. If so, the query means exactly what it means in
Spark. If not, the caller uses Spark: the name may be a function such as current_date.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from strandline.errors import StrandlineError
from strandline.sql.cursor import TokenCursor
from strandline.sql.keywords import CLAUSES, NOT_COLUMNS, NOT_IN_SIMPLE_WHERE
from strandline.sql.references import TableRef, read_reference
from strandline.sql.syntax import Expression
from strandline.sql.tokens import NUMBER, WORD, Token, value

__all__ = ["OrderBy", "SimpleSelect", "recognise", "sort_rows"]

COUNT_NAME = "count(1)"
"""Spark's name for the column of an unnamed count(*)."""


@dataclass(frozen=True)
class OrderBy:
    """One item of ORDER BY; ``column`` is a column of the table."""

    column: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class SimpleSelect:
    """A simple query.

    Attributes:
        columns: pairs of a table's column (as written; Spark ignores case) and its name in the result. None:
            all columns (``*``). Empty for a count(*).
        count: the name of the result's column for a count(*). None: the query is not a count(*).
        where: the condition. None: all rows. The condition is not compiled yet: ``predicate`` may still
            refuse it because of the types of its columns.
    """

    table: TableRef
    columns: tuple[tuple[str, str], ...] | None
    _: KW_ONLY
    count: str | None = None
    where: Expression | None = None
    order: tuple[OrderBy, ...] = ()
    limit: int | None = None


def recognise(source: str, tokens: Sequence[Token]) -> SimpleSelect | None:
    """Return the simple query that ``tokens`` form; None if they form another query.

    Positions in the result are offsets in ``source``.
    """
    if not tokens or tokens[0].key != "SELECT":
        return None
    try:
        return _read(TokenCursor(source, tokens))
    except (_NotSimple, StrandlineError):
        return None


class _NotSimple(Exception):
    """Raised if the query is not simple. Only used inside this module."""


def _read(cursor: TokenCursor) -> SimpleSelect:
    cursor.expect("SELECT")
    items, count = _read_items(cursor)
    cursor.expect("FROM")
    if cursor.peek().kind == WORD and cursor.peek().key in CLAUSES | {"VALUES"}:
        raise _NotSimple
    ref = read_reference(cursor)
    ref = _with_alias(cursor, ref)
    where = _read_where(cursor)
    order = _read_order(cursor, items, ref)
    limit = _read_limit(cursor)
    cursor.expect_end()
    if items is not None and any(
        qualifier is not None and not _same(qualifier, ref.qualifier) for qualifier, _, _ in items
    ):
        raise _NotSimple
    if count is not None and (order or limit is not None):
        raise _NotSimple
    columns = None if items is None else tuple((column, shown) for _, column, shown in items)
    return SimpleSelect(ref, columns, count=count, where=where, order=order, limit=limit)


def _same(left: str, right: str) -> bool:
    return left.lower() == right.lower()


_Item = tuple[str | None, str, str]  # qualifier, column, name in the result


def _read_items(cursor: TokenCursor) -> tuple[list[_Item] | None, str | None]:
    if cursor.accept("*"):
        return None, None
    if (
        cursor.sees("COUNT", "(")
        and cursor.peek(3).key == ")"
        and (cursor.peek(2).key == "*" or cursor.peek(2).text == "1")
    ):
        cursor.at += 4
        return [], _read_alias(cursor) or COUNT_NAME
    items: list[_Item] = []
    while True:
        qualifier, column = _read_column(cursor)
        items.append((qualifier, column, _read_alias(cursor) or column))
        if not cursor.accept(","):
            return items, None


def _read_column(cursor: TokenCursor) -> tuple[str | None, str]:
    qualifier, column = None, _read_name(cursor)
    if cursor.accept("."):
        qualifier, column = column, _read_name(cursor)
    if cursor.peek().key in (".", "("):
        raise _NotSimple
    return qualifier, column


def _read_name(cursor: TokenCursor) -> str:
    if cursor.peek().kind == WORD and cursor.peek().key in NOT_COLUMNS:
        raise _NotSimple
    return cursor.name("a column")


def _read_alias(cursor: TokenCursor) -> str | None:
    if cursor.accept("AS"):
        return _read_name(cursor)
    if cursor.sees_name() and cursor.peek().key not in NOT_COLUMNS:
        return _read_name(cursor)
    return None


def _with_alias(cursor: TokenCursor, ref: TableRef) -> TableRef:
    if cursor.accept("AS") or (cursor.sees_name() and cursor.peek().key not in CLAUSES):
        ref = replace(ref, alias=_read_name(cursor))
    return ref


def _read_where(cursor: TokenCursor) -> Expression | None:
    if not cursor.accept("WHERE"):
        return None
    ahead = 0
    while cursor.peek(ahead).key not in ("ORDER", "LIMIT") and cursor.at + ahead < len(cursor.tokens):
        if cursor.peek(ahead).key in NOT_IN_SIMPLE_WHERE:
            raise _NotSimple
        ahead += 1
    return cursor.expression("ORDER", "LIMIT")


def _read_order(cursor: TokenCursor, items: list[_Item] | None, ref: TableRef) -> tuple[OrderBy, ...]:
    if not cursor.accept("ORDER", "BY"):
        return ()
    order: list[OrderBy] = []
    while True:
        column = _read_order_column(cursor, items, ref)
        descending = cursor.accept("DESC")
        if not descending:
            cursor.accept("ASC")
        nulls_first = not descending
        if cursor.accept("NULLS"):
            nulls_first = cursor.accept("FIRST")
            if not nulls_first:
                cursor.expect("LAST")
        order.append(OrderBy(column, descending, nulls_first))
        if not cursor.accept(","):
            return tuple(order)


def _read_order_column(cursor: TokenCursor, items: list[_Item] | None, ref: TableRef) -> str:
    """Read a column of ORDER BY.

    As in Spark, a number is a position in the result. A name is first looked up in the result, then in the
    table.
    """
    token = cursor.peek()
    if token.kind == NUMBER:
        ordinal = value(token)
        if (
            items is None
            or not isinstance(ordinal, int)
            or not token.text.isdigit()
            or not 1 <= ordinal <= len(items)
        ):
            raise _NotSimple
        cursor.take()
        return items[ordinal - 1][1]
    if token.kind == WORD and token.key == "ALL":
        raise _NotSimple
    qualifier, column = _read_column(cursor)
    if qualifier is not None:
        if not _same(qualifier, ref.qualifier):
            raise _NotSimple
        return column
    shown = {source.lower(): source for _, source, name in items or () if _same(name, column)}
    if len(shown) > 1:
        raise _NotSimple
    return next(iter(shown.values()), column)


def _read_limit(cursor: TokenCursor) -> int | None:
    if not cursor.accept("LIMIT"):
        return None
    token = cursor.take()
    number = value(token) if token.kind == NUMBER and (token.is_bound or token.text.isdigit()) else None
    if not isinstance(number, int) or not 0 <= number < 10**9:
        raise _NotSimple
    return number


# --- ordering as Spark does -------------------------------------------------------------------------------


def _rank(value_: Any) -> Any:
    """Return a sort key in which NaN equals itself and is greater than everything else."""
    if isinstance(value_, float):
        return (1, 0.0) if math.isnan(value_) else (0, value_)
    return value_


def sort_rows(rows: Iterable[Mapping[str, Any]], order: Sequence[OrderBy]) -> list[Mapping[str, Any]]:
    """Return the rows in Spark's order; the columns of ``order`` are exact names in the rows."""
    result = list(rows)
    for by in reversed(order):
        nulls = [row for row in result if row[by.column] is None]
        others = [row for row in result if row[by.column] is not None]
        others.sort(key=lambda row, column=by.column: _rank(row[column]), reverse=by.descending)  # type: ignore[misc]
        result = nulls + others if by.nulls_first else others + nulls
    return result
