"""Expressions: columns, literals, arithmetic and CASE. A node of sqlglot's tree without a rule is refused.

Every conversion is written out in DuckDB's text, so that no rule of DuckDB decides about types. An operation
that fails in Spark fails in DuckDB as well; the query then runs on Spark, which reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.sql.syntax import token_of
from strandline.sql.translate.casts import cast
from strandline.sql.translate.compiler import Expressions, Rule, made, name_of, only
from strandline.sql.translate.conditions import pair, with_literal
from strandline.sql.translate.literals import NULL, literal_term
from strandline.sql.translate.terms import Term, convert, unify
from strandline.sql.translate.types import (
    DECIMAL_OF,
    common_type,
    decimal_of,
    decimal_type,
    duckdb_type,
    is_float,
    is_integer,
    is_numeric,
    literal_decimal,
    refuse,
)

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["RULES"]


# --- leaves -----------------------------------------------------------------------------------------------


def _column(compiler: Expressions, node: exp.Expr) -> Term:
    from sqlglot import exp

    only(node, "this", "table")
    if not isinstance(node.this, exp.Identifier):
        raise refuse("* inside an expression runs on Spark only")
    table = node.args.get("table")
    found = compiler.scope.find(node.this.name, None if table is None else table.name)
    if found is None:
        raise refuse(f"{node.this.name} is no column of its tables")
    return found


def _literal(compiler: Expressions, node: exp.Expr) -> Term:
    token = token_of(node)
    if token is None:
        raise refuse("a literal of this kind runs on Spark only")
    return literal_term(token)


def _null(compiler: Expressions, node: exp.Expr) -> Term:
    return NULL


def _boolean(compiler: Expressions, node: exp.Expr) -> Term:
    text = "true" if node.this else "false"
    return Term(text, "boolean", text, literal=bool(node.this))


def _paren(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this")
    return compiler.term(node.this)


def _neg(compiler: Expressions, node: exp.Expr) -> Term:
    from sqlglot import exp

    only(node, "this")
    if isinstance(node.this, exp.Literal) and (token := token_of(node.this)) and not token.is_bound:
        return literal_term(token, negative=True)
    inner = compiler.term(node.this)
    if not is_numeric(inner.type) or decimal_of(inner.type):
        raise refuse(f"a minus sign before a {inner.type} runs on Spark only")
    # DuckDB widens the type of a constant that overflows. A difference from 0 would change the sign of 0.0.
    sql = (
        f"(- {inner.sql})"
        if is_float(inner.type)
        else f"(CAST(0 AS {duckdb_type(inner.type)}) - {inner.sql})"
    )
    return made(sql, inner.type, name_of("(- {})", inner), inner)


# --- arithmetic -------------------------------------------------------------------------------------------


def _as_decimal(term: Term) -> tuple[int, int]:
    """Return precision and scale of an operand. As in Spark, a literal has no more digits than it needs.

    This does not hold for literals of type tinyint.
    """
    if term.is_literal and isinstance(term.literal, int) and term.type != "tinyint":
        return literal_decimal(term.literal)
    return decimal_of(term.type) or DECIMAL_OF[term.type]


def _arithmetic(sign: str) -> Callable[[Expressions, exp.Expr], Term]:
    def rule(compiler: Expressions, node: exp.Expr) -> Term:
        only(node, "this", "expression")
        left, right = with_literal(compiler.term(node.this), compiler.term(node.expression))
        name = name_of(f"({{}} {sign} {{}})", left, right)
        for term in (left, right):
            if not is_numeric(term.type):
                raise refuse(f"{sign} of a {term.type} runs on Spark only")
        if decimal_of(left.type) or decimal_of(right.type):
            return _decimal_arithmetic(sign, left, right, name)
        type_ = common_type(left.type, right.type)
        one, other = convert(left, type_), convert(right, type_)
        return made(f"({one.sql} {sign} {other.sql})", type_, name, left, right)

    return rule


def _decimal_arithmetic(sign: str, left: Term, right: Term, name: str | None) -> Term:
    if is_float(left.type) or is_float(right.type):
        raise refuse(f"{sign} of a decimal and a floating point number runs on Spark only")
    (p1, s1), (p2, s2) = _as_decimal(left), _as_decimal(right)
    if sign == "*":
        type_ = decimal_type(p1 + p2 + 1, s1 + s2)
        parts = [f"CAST({t.sql} AS DECIMAL({p},{s}))" for t, p, s in ((left, p1, s1), (right, p2, s2))]
    else:
        scale = max(s1, s2)
        type_ = decimal_type(max(p1 - s1, p2 - s2) + scale + 1, scale)
        parts = [f"CAST({t.sql} AS {duckdb_type(type_)})" for t in (left, right)]
    return made(f"CAST({parts[0]} {sign} {parts[1]} AS {duckdb_type(type_)})", type_, name, left, right)


def _guard_zero(left: Term, right: Term, sql: str) -> str:
    """Return a division that fails if the divisor is zero, unless the dividend is NULL."""
    if right.is_literal and right.literal not in (0, None):
        return sql
    return (
        f"(CASE WHEN {right.sql} = 0 AND {left.sql} IS NOT NULL THEN error('DIVIDE_BY_ZERO') ELSE {sql} END)"
    )


def _divide(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expression", "typed", "safe")
    left, right = with_literal(compiler.term(node.this), compiler.term(node.expression))
    for term in (left, right):
        if not (is_integer(term.type) or is_float(term.type)):
            raise refuse(f"/ of a {term.type} runs on Spark only")
    one, other = convert(left, "double"), convert(right, "double")
    sql = _guard_zero(one, other if not right.is_literal else right, f"({one.sql} / {other.sql})")
    return made(sql, "double", name_of("({} / {})", left, right), left, right)


def _modulo(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expression")
    left, right = compiler.term(node.this), compiler.term(node.expression)
    if not (is_integer(left.type) and is_integer(right.type)):
        raise refuse(f"% of {left.type} and {right.type} runs on Spark only")
    type_ = common_type(left.type, right.type)
    one, other = convert(left, type_), convert(right, type_)
    sql = _guard_zero(one, other if not right.is_literal else right, f"({one.sql} % {other.sql})")
    name = None if node.meta.get("written") else name_of("({} % {})", left, right)
    return made(sql, type_, name, left, right)


def _int_divide(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expression")
    left, right = compiler.term(node.this), compiler.term(node.expression)
    if not (is_integer(left.type) and is_integer(right.type)):
        raise refuse(f"div of {left.type} and {right.type} runs on Spark only")
    one, other = convert(left, "bigint"), convert(right, "bigint")
    sql = _guard_zero(one, other if not right.is_literal else right, f"({one.sql} // {other.sql})")
    return made(sql, "bigint", name_of("({} div {})", left, right), left, right)


# --- choices ----------------------------------------------------------------------------------------------


def _case(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "ifs", "default")
    subject = None if node.args.get("this") is None else compiler.term(node.this)
    conditions, values = [], []
    for branch in node.args["ifs"]:
        only(branch, "this", "true")
        if subject is None:
            conditions.append(compiler.boolean(branch.this))
        else:
            one, other = pair(subject, when := compiler.term(branch.this))
            name = name_of("({} = {})", subject, when)
            conditions.append(Term(f"({one.sql} = {other.sql})", "boolean", name))
        values.append(compiler.term(branch.args["true"]))
    default = node.args.get("default")
    last = NULL if default is None else compiler.term(default)
    converted = unify([*values, last])
    _refuse_void(converted[0])
    text = " ".join(f"WHEN {c.sql} THEN {v.sql}" for c, v in zip(conditions, converted, strict=False))
    form = "CASE " + "WHEN {} THEN {} " * len(conditions) + ("" if default is None else "ELSE {} ") + "END"
    shown = [part for pair in zip(conditions, values, strict=True) for part in pair]
    name = name_of(form, *shown, *([] if default is None else [last]))
    return made(
        f"(CASE {text} ELSE {converted[-1].sql} END)", converted[0].type, name, *conditions, *values, last
    )


def _if(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "true", "false")
    if node.args.get("false") is None:
        raise refuse("IF without a third operand runs on Spark only")
    condition = compiler.boolean(node.this)
    yes, no = compiler.term(node.args["true"]), compiler.term(node.args["false"])
    one, other = unify([yes, no])
    _refuse_void(one)
    name = name_of("(IF({}, {}, {}))", condition, yes, no)
    return made(
        f"(CASE WHEN {condition.sql} THEN {one.sql} ELSE {other.sql} END)", one.type, name, condition, yes, no
    )


def _refuse_void(term: Term) -> None:
    if term.type == "void":
        raise refuse("an expression that is always NULL runs on Spark only")


def _cast(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "to")
    found = cast(compiler.term(node.this), node.args["to"])
    return replace(found, name=None) if node.meta.get("written") else found


RULES: Mapping[str, Rule] = {
    "Column": _column,
    "Literal": _literal,
    "Null": _null,
    "Boolean": _boolean,
    "Paren": _paren,
    "Neg": _neg,
    "Add": _arithmetic("+"),
    "Sub": _arithmetic("-"),
    "Mul": _arithmetic("*"),
    "Div": _divide,
    "Mod": _modulo,
    "IntDiv": _int_divide,
    "Case": _case,
    "If": _if,
    "Cast": _cast,
    "TryCast": _cast,
}
