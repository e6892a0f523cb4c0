"""Compiles simple conditions to functions of whole columns.

Masks are computed by Arrow's kernels. For each row, a mask gives the same result as ``predicate``. If the
kernels might give a different result for a condition, ``predicate`` evaluates this condition row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from strandline.sql.evaluate.literals import Constant, NotConstant, constant
from strandline.sql.evaluate.predicates import (
    Beyond,
    align_constant,
    column_of,
    comparison,
    flatten,
    predicate,
)
from strandline.sql.syntax import Expression
from strandline.types import Type
from strandline.types.arrays import column_to_python

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Mask", "mask"]

Mask: TypeAlias = "Callable[[pa.Table], pa.ChunkedArray]"

_KERNELS: dict[str, Callable[..., pa.ChunkedArray]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def mask(expression: Expression, columns: Mapping[str, Type], qualifier: str | None = None) -> Mask | None:
    """Return the condition as a function of an Arrow table, or None if only Spark can evaluate it.

    The table must have all columns that the condition names, in their physical form.
    """
    try:
        return _condition(expression.ast, columns, qualifier)
    except (Beyond, NotConstant, RecursionError):
        return _one_by_one(expression, columns, qualifier)


def _one_by_one(expression: Expression, columns: Mapping[str, Type], qualifier: str | None) -> Mask | None:
    holds = predicate(expression, columns, qualifier)
    if holds is None:
        return None

    def decide(table: pa.Table) -> pa.ChunkedArray:
        names = table.column_names
        values = [column_to_python(columns[name], table.column(name)) for name in names]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
        return pa.chunked_array([pa.array(map(holds, rows), pa.bool_())])

    return decide


def _condition(node: exp.Expr, columns: Mapping[str, Type], qualifier: str | None) -> Mask:
    from sqlglot import exp

    def inner(part: exp.Expr) -> Mask:
        return _condition(part, columns, qualifier)

    if isinstance(node, exp.Paren):
        return inner(node.this)
    if isinstance(node, (exp.And, exp.Or)):
        return _junction([inner(p) for p in flatten(node)], isinstance(node, exp.Or))
    if isinstance(node, exp.Not):
        return _negation(inner(node.this))
    if (sign := comparison(node)) is not None:
        return _compare(sign, node.this, node.expression, columns, qualifier=qualifier)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        bounds = ((">=", node.args["low"]), ("<=", node.args["high"]))
        return _junction(
            [_compare(sign, node.this, bound, columns, qualifier=qualifier) for sign, bound in bounds], False
        )
    if isinstance(node, exp.In):
        return _member(node, columns, qualifier)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        tested = _column(node.this, columns, qualifier)
        return lambda table: pc.is_null(table.column(tested))
    name = _column(node, columns, qualifier)
    if columns[name].kind != "bool":
        raise Beyond
    return lambda table: table.column(name)


def _junction(parts: list[Mask], either: bool) -> Mask:
    join = pc.or_kleene if either else pc.and_kleene

    def decide(table: pa.Table) -> pa.ChunkedArray:
        found = parts[0](table)
        for part in parts[1:]:
            found = join(found, part(table))
        return found

    return decide


def _negation(part: Mask) -> Mask:
    return lambda table: pc.invert(part(table))


def _column(node: exp.Expr, columns: Mapping[str, Type], qualifier: str | None) -> str:
    from sqlglot import exp

    while isinstance(node, exp.Paren):
        node = node.this
    name = column_of(node, columns, qualifier)
    if name is None:
        raise Beyond
    return name


def _compare(
    sign: str, left: exp.Expr, right: exp.Expr, columns: Mapping[str, Type], *, qualifier: str | None
) -> Mask:
    from sqlglot import exp

    if not isinstance(left, (exp.Column, exp.Paren)):
        left, right, sign = right, left, _MIRRORED.get(sign, sign)
    name = _column(left, columns, qualifier)
    type_ = columns[name]
    kernel = _KERNELS.get(sign)
    if kernel is None or (type_.kind == "bool" and sign not in ("=", "!=")):
        raise Beyond
    other = _scalar(type_, align_constant(type_, constant(right)))
    if type_.kind == "float" and sign in (">", ">="):
        # In Spark, NaN is greater than any other number.
        return lambda table: pc.or_(kernel(table.column(name), other), pc.is_nan(table.column(name)))
    return lambda table: kernel(table.column(name), other)


def _member(node: exp.In, columns: Mapping[str, Type], qualifier: str | None) -> Mask:
    options = node.args.get("expressions")
    if not options or any(arg for key, arg in node.args.items() if key not in ("this", "expressions")):
        raise Beyond
    name = _column(node.this, columns, qualifier)
    type_ = columns[name]
    if type_.kind == "float":
        raise Beyond
    values = [align_constant(type_, constant(option)) for option in options]
    allowed = pa.array([_scalar(type_, v).as_py() for v in values if v is not None], type_.arrow)
    missed = pa.scalar(None if None in values else False, pa.bool_())
    null = pa.scalar(None, pa.bool_())

    def decide(table: pa.Table) -> pa.ChunkedArray:
        column = table.column(name)
        found = pc.if_else(pc.is_in(column, value_set=allowed), True, missed)
        return pc.if_else(pc.is_valid(column), found, null)

    return decide


def _scalar(type_: Type, value: Constant) -> pa.Scalar:
    """Return a constant as a scalar of a column's type; raise Beyond if it is not a value of that type."""
    if type_.kind == "float":
        if isinstance(value, float) and math.isnan(value):
            raise Beyond
        return pa.scalar(value, pa.float64())
    if value is not None and type_.kind == "int" and not isinstance(value, int):
        raise Beyond
    if value is not None and pa.types.is_decimal(type_.arrow):
        value = Decimal(value)  # type: ignore[arg-type]
    try:
        return pa.scalar(value, type_.arrow)
    except (pa.ArrowException, OverflowError, ValueError):
        raise Beyond from None
