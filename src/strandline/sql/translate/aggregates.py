"""Aggregate functions, also over windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from strandline.sql.translate.compiler import Expressions, check_name, name_of, only
from strandline.sql.translate.order import order_text
from strandline.sql.translate.terms import Term
from strandline.sql.translate.types import (
    MOST_DIGITS,
    decimal_of,
    duckdb_type,
    is_float,
    is_integer,
    refuse,
)

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["aggregate", "is_aggregate", "window"]


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is an aggregate function, with or without FILTER."""
    from sqlglot import exp

    return isinstance(node, exp.AggFunc) or (
        isinstance(node, exp.Filter) and isinstance(node.this, exp.AggFunc)
    )


def aggregate(compiler: Expressions, node: exp.Expr) -> Term:
    """Return the term of an aggregate function over rows. ``compiler`` compiles its arguments."""
    from sqlglot import exp

    if isinstance(node, exp.Filter):
        only(node, "this", "expression")
        condition = compiler.boolean(node.expression.this)
        return _call(compiler, node.this, condition)
    return _call(compiler, node, None)


def _call(compiler: Expressions, node: exp.Expr, condition: Term | None) -> Term:
    from sqlglot import exp

    check_name(node)
    rule = _RULES.get(type(node).__name__)
    if rule is None:
        raise refuse(
            f"the function {str(node.meta.get('written') or type(node).__name__).lower()} runs on Spark only"
        )
    only(node, "this", "big_int")
    inner, distinct = node.this, ""
    if isinstance(inner, exp.Distinct):
        only(inner, "expressions")
        if len(inner.expressions) != 1:
            raise refuse("DISTINCT of several expressions runs on Spark only")
        inner, distinct = inner.expressions[0], "DISTINCT "
    if isinstance(inner, exp.Star):
        only(inner)
        if not isinstance(node, exp.Count) or distinct:
            raise refuse("* in an aggregate runs on Spark only")
        value = Term("*", "void", "1")
    else:
        value = compiler.term(inner)
        if isinstance(node, exp.Count) and value.is_literal and value.literal is not None and not distinct:
            value = Term("*", "void", value.name)
    behind = "" if condition is None else f" FILTER (WHERE {condition.sql})"
    sql, type_ = rule(value, distinct, behind)
    written = node.meta.get("written")
    name = name_of(f"{written.lower()}({distinct}{{}})", value) if written else None
    return Term(sql, type_, None if condition is not None else name)


def _count(value: Term, distinct: str, behind: str) -> tuple[str, str]:
    return f"count({distinct}{value.sql}){behind}", "bigint"


def _sum(value: Term, distinct: str, behind: str) -> tuple[str, str]:
    if is_integer(value.type):
        return f"CAST(sum({distinct}{value.sql}){behind} AS BIGINT)", "bigint"
    if is_float(value.type):
        return f"sum({distinct}CAST({value.sql} AS DOUBLE)){behind}", "double"
    if (size := decimal_of(value.type)) is not None and size[0] + 10 <= MOST_DIGITS:
        type_ = f"decimal({size[0] + 10},{size[1]})"
        return f"CAST(sum({distinct}{value.sql}){behind} AS {duckdb_type(type_)})", type_
    raise refuse(f"sum of a {value.type} runs on Spark only")


def _avg(value: Term, distinct: str, behind: str) -> tuple[str, str]:
    if not (is_integer(value.type) or is_float(value.type)):
        raise refuse(f"avg of a {value.type} runs on Spark only")
    # For avg, Spark converts integers to doubles before it adds them.
    total = f"sum({distinct}CAST({value.sql} AS DOUBLE)){behind}"
    return f"({total} / count({distinct}{value.sql}){behind})", "double"


def _extreme(name: str) -> Callable[[Term, str, str], tuple[str, str]]:
    def rule(value: Term, distinct: str, behind: str) -> tuple[str, str]:
        if value.type == "void":
            raise refuse(f"{name} of NULL runs on Spark only")
        return f"{name}({value.sql}){behind}", value.type

    return rule


def _of_booleans(name: str) -> Callable[[Term, str, str], tuple[str, str]]:
    def rule(value: Term, distinct: str, behind: str) -> tuple[str, str]:
        if value.type != "boolean":
            raise refuse(f"{name} of a {value.type} runs on Spark only")
        return f"{name}({value.sql}){behind}", "boolean"

    return rule


def _count_if(value: Term, distinct: str, behind: str) -> tuple[str, str]:
    if value.type != "boolean" or distinct or behind:
        raise refuse("count_if of this form runs on Spark only")
    return f"count(*) FILTER (WHERE {value.sql})", "bigint"


_RULES: Mapping[str, Callable[[Term, str, str], tuple[str, str]]] = {
    "Count": _count,
    "Sum": _sum,
    "Avg": _avg,
    "Min": _extreme("min"),
    "Max": _extreme("max"),
    "LogicalAnd": _of_booleans("bool_and"),
    "LogicalOr": _of_booleans("bool_or"),
    "CountIf": _count_if,
}

_RANKS = {"RowNumber": "row_number", "Rank": "rank", "DenseRank": "dense_rank"}
_OVER_WINDOWS = ("Count", "Sum", "Min", "Max")


def window(compiler: Expressions, node: exp.Expr) -> Term:
    """Return the term of a function over a window; refuse a window with an explicit frame."""
    only(node, "this", "partition_by", "order", "over")
    inner = node.this
    kind = type(inner).__name__
    parts = [_normal(compiler.term(each)) for each in node.args.get("partition_by") or ()]
    order = node.args.get("order")
    ordered = "" if order is None else order_text(order, compiler.term)
    over = " ".join(part for part in (f"PARTITION BY {', '.join(parts)}" if parts else "", ordered) if part)
    if kind in _RANKS:
        check_name(inner)
        only(inner)
        if not ordered:
            raise refuse("a rank without an order runs on Spark only")
        return Term(f"CAST({_RANKS[kind]}() OVER ({over}) AS INTEGER)", "int", None)
    if kind not in _OVER_WINDOWS:
        raise refuse("this function over a window runs on Spark only")
    value_sql = _call(compiler, inner, None)
    if "DISTINCT" in value_sql.sql[:20]:
        raise refuse("DISTINCT over a window runs on Spark only")
    if kind == "Sum" and value_sql.type == "double":
        raise refuse("a sum of floating point numbers over a window runs on Spark only")
    sql = value_sql.sql
    if sql.startswith("CAST("):
        inside, _, to = sql.removeprefix("CAST(").rpartition(" AS ")
        return Term(f"CAST({inside} OVER ({over}) AS {to}", value_sql.type, None)
    return Term(f"{sql} OVER ({over})", value_sql.type, None)


def _normal(term: Term) -> str:
    """Return the text of a value to group by. The text turns -0.0 into 0.0, so that both are in one group."""
    return f"({term.sql} + CAST(0 AS {duckdb_type(term.type)}))" if is_float(term.type) else term.sql
