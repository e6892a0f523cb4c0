"""Conditions: comparisons, AND and OR, IN, LIKE and EXISTS, and subqueries with one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from strandline.sql.translate.compiler import Expressions, Rule, made, name_of, only
from strandline.sql.translate.literals import parse_text
from strandline.sql.translate.terms import Term, unify
from strandline.sql.translate.types import (
    decimal_of,
    decimal_type,
    duckdb_type,
    is_float,
    is_integer,
    literal_decimal,
    refuse,
)

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["RULES", "pair", "with_literal"]


def with_literal(left: Term, right: Term) -> tuple[Term, Term]:
    """Return both terms; convert a decimal literal to floating point if the other term is floating point."""

    def adapt(term: Term, other: Term) -> Term:
        if is_float(other.type) and decimal_of(term.type) and isinstance(term.literal, Decimal):
            number = float(term.literal)
            return Term(f"CAST('{number!r}' AS DOUBLE)", "double", term.name, literal=number)
        return term

    return adapt(left, right), adapt(right, left)


def pair(left: Term, right: Term) -> tuple[Term, Term]:
    """Convert two terms to a common type, for a comparison."""
    left, right = with_literal(left, right)

    def parsed(term: Term, other: Term) -> Term:
        if other.type in ("date", "timestamp") and isinstance(term.literal, str):
            found = parse_text(term.literal, other.type)
            return Term(found.sql, found.type, term.name, literal=found.literal)
        return term

    left, right = parsed(left, right), parsed(right, left)
    if decimal_of(left.type) or decimal_of(right.type):
        # A comparison is exact in any type that can hold both sides.
        left, right = _fit_literal(left), _fit_literal(right)
    one, other = unify([left, right])
    return one, other


def _fit_literal(term: Term) -> Term:
    """Convert an integer literal to a decimal that has exactly as many digits."""
    if not (is_integer(term.type) and isinstance(term.literal, int)):
        return term
    type_ = decimal_type(*literal_decimal(term.literal))
    return Term(f"CAST({term.sql} AS {duckdb_type(type_)})", type_, term.name, literal=term.literal)


def _operand(node: exp.Expr) -> exp.Expr:
    """Return an operand of a predicate; refuse another predicate without parentheses.

    sqlglot groups some of these predicates differently from Spark, and accepts some that Spark refuses. A
    negated predicate is refused even in parentheses: sqlglot may have added them.
    """
    from sqlglot import exp

    inner = node.this if isinstance(node, exp.Paren) else None
    if isinstance(inner, exp.Not) or (inner is not None and inner.args.get("negate")):
        node = inner
    if isinstance(node, (exp.Predicate, exp.Connector, exp.Not, exp.Escape)):
        raise refuse("a condition inside a condition runs on Spark only without parentheses")
    return node


def _comparison(sign: str, form: str) -> Callable[[Expressions, exp.Expr], Term]:
    def rule(compiler: Expressions, node: exp.Expr) -> Term:
        only(node, "this", "expression")
        left, right = (compiler.term(_operand(each)) for each in (node.this, node.expression))
        one, other = pair(left, right)
        return made(f"({one.sql} {sign} {other.sql})", "boolean", name_of(form, left, right), left, right)

    return rule


def _junction(word: str) -> Callable[[Expressions, exp.Expr], Term]:
    def rule(compiler: Expressions, node: exp.Expr) -> Term:
        only(node, "this", "expression")
        left, right = compiler.boolean(node.this), compiler.boolean(node.expression)
        name = name_of(f"({{}} {word} {{}})", left, right)
        if type(node.this) is type(node) and type(node.this.this) is type(node):
            name = None  # Spark regroups long chains, so their name is not known.
        if type(node.expression) is type(node):
            name = None
        return made(f"({left.sql} {word} {right.sql})", "boolean", name, left, right)

    return rule


def _not(compiler: Expressions, node: exp.Expr) -> Term:
    from sqlglot import exp

    only(node, "this")
    inner = compiler.boolean(node.this)
    name = None if isinstance(node.this, exp.Is) else name_of("(NOT {})", inner)
    return made(f"(NOT {inner.sql})", "boolean", name, inner)


def _is(compiler: Expressions, node: exp.Expr) -> Term:
    from sqlglot import exp

    only(node, "this", "expression")
    if isinstance(node.expression, exp.Null):
        inner = compiler.term(_operand(node.this))
        return made(f"({inner.sql} IS NULL)", "boolean", name_of("({} IS NULL)", inner), inner)
    if isinstance(node.expression, exp.Boolean):
        inner, text = compiler.boolean(_operand(node.this)), "true" if node.expression.this else "false"
        return made(f"({inner.sql} IS NOT DISTINCT FROM {text})", "boolean", None, inner)
    raise refuse("IS with this operand runs on Spark only")


def _between(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "low", "high")
    value, low, high = (compiler.term(_operand(node.args[name])) for name in ("this", "low", "high"))
    one, least = pair(value, low)
    two, most = pair(value, high)
    sql = f"({one.sql} >= {least.sql} AND {two.sql} <= {most.sql})"
    return made(sql, "boolean", None, value, low, high)


def _in(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expressions", "query")
    value = compiler.term(_operand(node.this))
    if node.args.get("query") is not None:
        if node.args.get("expressions"):
            raise refuse("IN with values and a query runs on Spark only")
        _check_in_where(node)
        return compiler.subqueries.member(value, node.args["query"], compiler.scope)
    members = [compiler.term(each) for each in node.expressions]
    if not members:
        raise refuse("IN without values runs on Spark only")
    if any(t.type == "string" for t in members) and value.type in ("date", "timestamp"):
        members = [pair(value, t)[1] if t.type == "string" else t for t in members]
    one, *others = unify([value, *members])
    sql = f"({one.sql} IN ({', '.join(t.sql for t in others)}))"
    name = name_of("({} IN (" + ", ".join("{}" for _ in members) + "))", value, *members)
    return made(sql, "boolean", name, value, *members)


def _check_in_where(node: exp.Expr) -> None:
    """Refuse IN or EXISTS with a query outside of WHERE.

    As a value, Spark has false instead of NULL, or fails.
    """
    from sqlglot import exp

    above = node.parent
    while isinstance(above, (exp.Paren, exp.And, exp.Or, exp.Not)):
        above = above.parent
    if not isinstance(above, exp.Where):
        raise refuse("IN or EXISTS with a query runs on Spark only outside of WHERE")


def _exists(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this")
    _check_in_where(node)
    return compiler.subqueries.exists(node.this, compiler.scope)


def _subquery(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this")
    return compiler.subqueries.scalar(node.this, compiler.scope)


def _like(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expression", "negate")
    return _like_with(compiler, node, "\\")


def _escape(compiler: Expressions, node: exp.Expr) -> Term:
    from sqlglot import exp

    only(node, "this", "expression")
    mark = compiler.term(node.expression)
    if not isinstance(node.this, exp.Like) or not isinstance(mark.literal, str) or len(mark.literal) != 1:
        raise refuse("LIKE with this ESCAPE runs on Spark only")
    only(node.this, "this", "expression", "negate")
    found = _like_with(compiler, node.this, mark.literal)
    return Term(found.sql, found.type, None, is_outer=found.is_outer)


def _like_with(compiler: Expressions, node: exp.Expr, mark: str) -> Term:
    value, pattern = compiler.term(_operand(node.this)), compiler.term(node.expression)
    if value.type != "string" or not isinstance(pattern.literal, str):
        raise refuse("LIKE runs on Spark only unless its pattern is a text")
    at = 0
    while (at := pattern.literal.find(mark, at)) >= 0:
        if pattern.literal[at + 1 : at + 2] not in ("%", "_", mark):
            raise refuse("LIKE with an escape of another character runs on Spark only")
        at += 2
    quoted = mark.replace("'", "''")
    sql = f"({value.sql} LIKE {pattern.sql} ESCAPE '{quoted}')"
    name = name_of("{} LIKE {}", value, pattern)
    if node.args.get("negate"):
        sql, name = f"(NOT {sql})", None if name is None else f"(NOT {name})"
    return made(sql, "boolean", name, value)


RULES: Mapping[str, Rule] = {
    "EQ": _comparison("=", "({} = {})"),
    "NEQ": _comparison("<>", "(NOT ({} = {}))"),
    "LT": _comparison("<", "({} < {})"),
    "LTE": _comparison("<=", "({} <= {})"),
    "GT": _comparison(">", "({} > {})"),
    "GTE": _comparison(">=", "({} >= {})"),
    "NullSafeEQ": _comparison("IS NOT DISTINCT FROM", "({} <=> {})"),
    "NullSafeNEQ": _comparison("IS DISTINCT FROM", "(NOT ({} <=> {}))"),
    "And": _junction("AND"),
    "Or": _junction("OR"),
    "Not": _not,
    "Is": _is,
    "Between": _between,
    "In": _in,
    "Exists": _exists,
    "Subquery": _subquery,
    "Like": _like,
    "Escape": _escape,
}
