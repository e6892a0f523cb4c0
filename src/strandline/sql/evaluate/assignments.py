"""Compiles simple right sides of SET to functions of a row."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.errors import InvalidArgument
from strandline.sql.evaluate.literals import NotConstant, constant, literal
from strandline.sql.evaluate.predicates import Beyond, Row, column_of
from strandline.sql.syntax import Expression, token_of
from strandline.types import Type, row_value

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Assignment", "assign"]

Assignment: TypeAlias = Callable[[Row], Any]

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
}


def assign(
    expression: Expression, columns: Mapping[str, Type], qualifier: str | None = None
) -> Assignment | None:
    """Return the new value as a function of the old row, or None if only Spark can compute it.

    Supported are a constant, a column, and a sum, difference or product of an integer column and an integer.
    The value is not converted to the type of the assigned column yet. As in Spark, an overflow is an error:
    the function raises InvalidArgument.
    """
    try:
        fixed = literal(expression)
    except NotConstant:
        pass
    else:
        return lambda row: fixed
    try:
        name = column_of(expression.ast, columns, qualifier)
        if name is not None:
            type_ = columns[name]
            return lambda row: row_value(type_, row[name])
        return _arithmetic(expression, columns, qualifier)
    except (Beyond, NotConstant, RecursionError):
        return None


def _arithmetic(expression: Expression, columns: Mapping[str, Type], qualifier: str | None) -> Assignment:
    node = expression.ast
    function = _ARITHMETIC.get(type(node).__name__)
    if function is None:
        raise Beyond
    left, right = node.this, node.expression
    name = column_of(left, columns, qualifier)
    mirrored = name is None
    if name is None:
        name = column_of(right, columns, qualifier)
    if name is None or columns[name].kind != "int":
        raise Beyond
    number, wide = _integer(left if mirrored else right)
    type_ = columns[name]
    # Spark computes in int or bigint. Uint64 is a decimal in Spark, which can hold every such result.
    limit = None if type_.name == "Uint64" else 63 if wide or type_.spark == "bigint" else 31
    if limit is None and wide:
        raise Beyond

    def compute(row: Row) -> int | None:
        old = row[name]
        if old is None:
            return None
        new = function(number, old) if mirrored else function(old, number)
        if limit is not None and not -(2**limit) <= new < 2**limit:
            raise InvalidArgument(
                f"{expression.text} is {new}, which overflows {'bigint' if limit == 63 else 'int'}",
                "Cast the column to a wider type first, for example CAST(column AS decimal(38,0)).",
            )
        return new

    return compute


def _integer(node: exp.Expr) -> tuple[int, bool]:
    """Return the value of an integer literal, and whether it is a bigint in Spark."""
    from sqlglot import exp

    inner = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(inner, exp.Literal):
        raise Beyond
    token = token_of(inner)
    found = constant(node)
    if (
        token is None
        or not isinstance(found, int)
        or isinstance(found, bool)
        or not (token.is_bound or token.text.rstrip("lL").isdigit())
        or not -(2**63) <= found < 2**63
    ):
        raise Beyond
    return found, (not token.is_bound and token.text[-1] in "lL") or not -(2**31) <= found < 2**31
