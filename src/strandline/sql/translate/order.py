"""ORDER BY, LIMIT and OFFSET."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.sql.syntax import token_of
from strandline.sql.tokens import value
from strandline.sql.translate.compiler import only
from strandline.sql.translate.terms import Term
from strandline.sql.translate.types import refuse

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["limit_text", "order_text", "ordinal"]


def order_text(order: exp.Expr, term: Callable[[exp.Expr], Term]) -> str:
    """Return the ORDER BY clause. The clause always says whether NULL is first or last."""
    only(order, "expressions")
    parts = []
    for item in order.expressions:
        only(item, "this", "desc", "nulls_first")
        way = "DESC" if item.args.get("desc") else "ASC"
        nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
        parts.append(f"{term(item.this).sql} {way} NULLS {nulls}")
    return f"ORDER BY {', '.join(parts)}"


def ordinal(node: exp.Expr) -> int | None:
    """Return the position that a literal gives in ORDER BY or GROUP BY; None if the node is not a literal.

    Literals that are not plain integers are refused.
    """
    from sqlglot import exp

    if not isinstance(node, exp.Literal):
        return None
    token = token_of(node)
    found = None if token is None else value(token)
    if token is None or token.is_bound or not isinstance(found, int) or not token.text.isdigit():
        raise refuse("a literal in ORDER BY or GROUP BY runs on Spark only")
    return found


def limit_text(node: exp.Expr) -> str:
    """Return the LIMIT and OFFSET of a query."""
    parts = []
    for word in ("limit", "offset"):
        given = node.args.get(word)
        if given is None:
            continue
        only(given, "expression")
        token = token_of(given.expression)
        number = None if token is None else value(token)
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
            raise refuse(f"{word.upper()} runs on Spark only unless it is a number")
        parts.append(f"{word.upper()} {number}")
    return " ".join(parts)
