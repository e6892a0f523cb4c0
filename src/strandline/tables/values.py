"""The values that a statement assigns: computed in the process or as SQL for Spark, with the same result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strandline.model import TableSchema
from strandline.sql.constants import cast_constant
from strandline.sql.evaluate.assignments import assign
from strandline.sql.evaluate.literals import NotConstant, literal
from strandline.sql.syntax import Expression
from strandline.types import Type, coerce

__all__ = ["constant_of", "text_of", "value_function"]


def constant_of(table: TableSchema, name: str, expression: Expression) -> Any:
    """Return the value that a constant has in column ``name``; raise NotConstant for other expressions."""
    return coerce(table[name].type, literal(expression), name)


def value_function(
    table: TableSchema, name: str, value: Expression, types: Mapping[str, Type], alias: str | None
) -> Callable[[Mapping[str, Any]], Any] | None:
    """Return a function that computes a column's new value from a row; None if this needs Spark."""
    type_ = table[name].type
    try:
        constant = constant_of(table, name, value)
    except NotConstant:
        compute = assign(value, types, alias)
        return None if compute is None else lambda fields: coerce(type_, compute(fields), name)
    return lambda fields: constant


def text_of(table: TableSchema, name: str, value: Expression, text: str | None = None) -> str:
    """Return the value of a column as SQL for Spark. A constant gets the same value as in the process.

    Args:
        name: name of the column.
        value: the expression that is assigned.
        text: SQL to use for an expression that is no constant. None: the text of ``value``.
    """
    try:
        constant = constant_of(table, name, value)
    except NotConstant:
        return f"({value.named if text is None else text})"
    if value.params:
        return f"CAST({value.named} AS {table[name].type.spark})"
    return cast_constant(table[name].type, constant)
