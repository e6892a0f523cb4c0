"""SQL functions that give the same result in Spark and DuckDB. ``RULES`` has the rule of each function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from strandline.sql.translate.compiler import Expressions, Rule, name_of, only
from strandline.sql.translate.terms import Term, unify
from strandline.sql.translate.types import is_float, is_integer, refuse

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["RULES"]


def _called(node: exp.Expr, *terms: Term) -> str | None:
    """Return Spark's name of a function call: its name as written, in lower case, and its arguments.

    Returns None if the name as written, or the name of an argument, is not known.
    """
    written = node.meta.get("written")
    if not written:
        return None
    return name_of(f"{written.lower()}({', '.join('{}' for _ in terms)})", *terms)


def _call(node: exp.Expr, sql: str, type_: str, *terms: Term) -> Term:
    return Term(sql, type_, _called(node, *terms), is_outer=any(term.is_outer for term in terms))


def _text(compiler: Expressions, node: exp.Expr) -> Term:
    found = compiler.term(node)
    if found.type != "string":
        raise refuse(f"a text function of a {found.type} runs on Spark only")
    return found


def _constant(compiler: Expressions, node: exp.Expr | None, least: int) -> tuple[int, Term]:
    found = None if node is None else compiler.term(node)
    if (
        found is None
        or not is_integer(found.type)
        or not found.is_literal
        or not least <= found.literal < 2**31
    ):
        raise refuse(f"a position that is no number of at least {least} runs on Spark only")
    return found.literal, found


def _of_plain_text(name: str) -> Callable[[Expressions, exp.Expr], Term]:
    """Return the rule of ``upper`` or ``lower``.

    The engines agree on ASCII only. A row with other text makes the query fail on DuckDB. The query then
    runs on Spark.
    """

    def rule(compiler: Expressions, node: exp.Expr) -> Term:
        only(node, "this")
        text = _text(compiler, node.this)
        guard = f"strlen({text.sql}) <> length({text.sql})"
        sql = f"(CASE WHEN {guard} THEN error('NOT_ASCII') ELSE {name}({text.sql}) END)"
        return _call(node, sql, "string", text)

    return rule


def _length(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this")
    value = compiler.term(node.this)
    if value.type not in ("string", "binary"):
        raise refuse(f"length of a {value.type} runs on Spark only")
    counted = "length" if value.type == "string" else "octet_length"
    return _call(node, f"CAST({counted}({value.sql}) AS INTEGER)", "int", value)


def _substring(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "start", "length")
    text = _text(compiler, node.this)
    start, _ = _constant(compiler, node.args.get("start"), 1)
    size = ""
    if node.args.get("length") is not None:
        size = f", {_constant(compiler, node.args['length'], 0)[0]}"
    return Term(f"substring({text.sql}, {start}{size})", "string", None, is_outer=text.is_outer)


def _left(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expression")
    text = _text(compiler, node.this)
    size, shown = _constant(compiler, node.expression, 0)
    return _call(node, f"substring({text.sql}, 1, {size})", "string", text, shown)


def _trim(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "position")
    text = _text(compiler, node.this)
    name = {"LEADING": "ltrim", "TRAILING": "rtrim", "": "trim"}.get(str(node.args.get("position") or ""))
    if name is None:
        raise refuse("TRIM of this form runs on Spark only")
    shown = name_of(f"{name}({{}})", text)
    # By default, DuckDB's trim removes every kind of space character; Spark's removes only ' '.
    return Term(f"{name}({text.sql}, ' ')", "string", shown, is_outer=text.is_outer)


def _concat(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "expressions", "safe", "coalesce")
    texts = [_text(compiler, each) for each in node.expressions]
    if not texts:
        raise refuse("concat of nothing runs on Spark only")
    return _call(node, f"({' || '.join(text.sql for text in texts)})", "string", *texts)


def _pipes(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expression", "safe")
    left, right = _text(compiler, node.this), _text(compiler, node.expression)
    outer = left.is_outer or right.is_outer
    return Term(
        f"({left.sql} || {right.sql})", "string", name_of("concat({}, {})", left, right), is_outer=outer
    )


def _affix(name: str) -> Callable[[Expressions, exp.Expr], Term]:
    def rule(compiler: Expressions, node: exp.Expr) -> Term:
        only(node, "this", "expression")
        left, right = _text(compiler, node.this), _text(compiler, node.expression)
        return _call(node, f"{name}({left.sql}, {right.sql})", "boolean", left, right)

    return rule


def _replace(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expression", "replacement")
    text, old = _text(compiler, node.this), compiler.term(node.expression)
    if not isinstance(old.literal, str) or not old.literal or node.args.get("replacement") is None:
        raise refuse("replace runs on Spark only unless it searches for a text")
    new = _text(compiler, node.args["replacement"])
    return _call(node, f"replace({text.sql}, {old.sql}, {new.sql})", "string", text, old, new)


def _coalesce(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expressions", "is_nvl", "is_null")
    given = [compiler.term(each) for each in (node.this, *node.expressions)]
    terms = unify(given)
    if terms[0].type == "void":
        raise refuse("an expression that is always NULL runs on Spark only")
    return _call(node, f"coalesce({', '.join(t.sql for t in terms)})", terms[0].type, *given)


def _nullif(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this", "expression")
    left, right = compiler.term(node.this), compiler.term(node.expression)
    if left.type != right.type:
        raise refuse("nullif of different types runs on Spark only")
    sql = f"(CASE WHEN {left.sql} = {right.sql} THEN NULL ELSE {left.sql} END)"
    return _call(node, sql, left.type, left, right)


def _extreme(name: str) -> Callable[[Expressions, exp.Expr], Term]:
    def rule(compiler: Expressions, node: exp.Expr) -> Term:
        only(node, "this", "expressions", "ignore_nulls")
        given = [compiler.term(each) for each in (node.this, *node.expressions)]
        terms = unify(given)
        if terms[0].type == "void" or len(terms) < 2:
            raise refuse(f"{name} of this form runs on Spark only")
        texts = [term.sql for term in terms]
        if is_float(terms[0].type):
            # Of 0.0 and -0.0, which are equal, Spark returns the first one.
            return _call(
                node, reduce(lambda one, other: _better(name, one, other), texts), terms[0].type, *given
            )
        return _call(node, f"{name}({', '.join(texts)})", terms[0].type, *given)

    return rule


def _better(name: str, one: str, other: str) -> str:
    sign = ">" if name == "greatest" else "<"
    return f"(CASE WHEN {one} IS NULL OR {other} {sign} {one} THEN {other} ELSE {one} END)"


def _abs(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this")
    value = compiler.term(node.this)
    if not (is_integer(value.type) or is_float(value.type)):
        raise refuse(f"abs of a {value.type} runs on Spark only")
    return _call(node, f"abs({value.sql})", value.type, value)


def _rounded(name: str) -> Callable[[Expressions, exp.Expr], Term]:
    def rule(compiler: Expressions, node: exp.Expr) -> Term:
        only(node, "this")
        value = compiler.term(node.this)
        if value.type != "double":
            raise refuse(f"{name} of a {value.type} runs on Spark only")
        shown = name_of(f"{name.upper()}({{}})", value)
        return Term(f"CAST({name}({value.sql}) AS BIGINT)", "bigint", shown, is_outer=value.is_outer)

    return rule


def _isnan(compiler: Expressions, node: exp.Expr) -> Term:
    only(node, "this")
    value = compiler.term(node.this)
    if not is_float(value.type):
        raise refuse(f"isnan of a {value.type} runs on Spark only")
    return _call(node, f"coalesce(isnan({value.sql}), false)", "boolean", value)


def _part_of_time(name: str, *types: str) -> Callable[[Expressions, exp.Expr], Term]:
    def rule(compiler: Expressions, node: exp.Expr) -> Term:
        from sqlglot import exp

        only(node, "this")
        inner = node.this
        if isinstance(inner, exp.TsOrDsToDate) and not inner.meta.get("written"):
            only(inner, "this")
            inner = inner.this
        value = compiler.term(inner)
        if value.type not in types:
            raise refuse(f"{name} of a {value.type} runs on Spark only")
        return _call(node, f"CAST({name}({value.sql}) AS INTEGER)", "int", value)

    return rule


RULES: Mapping[str, Rule] = {
    "Upper": _of_plain_text("upper"),
    "Lower": _of_plain_text("lower"),
    "Length": _length,
    "Substring": _substring,
    "Left": _left,
    "Trim": _trim,
    "Concat": _concat,
    "DPipe": _pipes,
    "StartsWith": _affix("starts_with"),
    "EndsWith": _affix("ends_with"),
    "Contains": _affix("contains"),
    "Replace": _replace,
    "Coalesce": _coalesce,
    "Nullif": _nullif,
    "Greatest": _extreme("greatest"),
    "Least": _extreme("least"),
    "Abs": _abs,
    "Ceil": _rounded("ceil"),
    "Floor": _rounded("floor"),
    "IsNan": _isnan,
    "Year": _part_of_time("year", "date", "timestamp"),
    "Month": _part_of_time("month", "date", "timestamp"),
    "Quarter": _part_of_time("quarter", "date", "timestamp"),
    "Day": _part_of_time("day", "date", "timestamp"),
    "DayOfMonth": _part_of_time("day", "date", "timestamp"),
    "Hour": _part_of_time("hour", "timestamp"),
    "Minute": _part_of_time("minute", "timestamp"),
    "Second": _part_of_time("second", "timestamp"),
}
