"""Compiles simple conditions to functions of a row.

A compiled condition gives exactly the result of Spark (in ANSI mode, at UTC) for the same row: True, False,
or None for NULL. A condition whose result might differ is not compiled, and the caller uses Spark. As in
Spark, the names of columns are matched regardless of case. Values of rows are canonical.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.errors import InvalidArgument
from strandline.sql.evaluate.literals import Constant, NotConstant, constant
from strandline.sql.syntax import Expression
from strandline.types import Type, coerce

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Beyond", "Predicate", "Row", "align_constant", "column_of", "comparison", "flatten", "predicate"]

Row: TypeAlias = Mapping[str, Any]
Predicate: TypeAlias = Callable[[Row], bool | None]


class Beyond(Exception):
    """Raised if an expression is not one of the supported simple ones.

    It never reaches users of the library.
    """


def predicate(
    expression: Expression, columns: Mapping[str, Type], qualifier: str | None = None
) -> Predicate | None:
    """Return the condition as a function of a row, or None if only Spark can evaluate it.

    The condition may write columns with or without ``qualifier``.
    """
    try:
        return _condition(expression.ast, _Scope(columns, qualifier))
    except (Beyond, NotConstant, RecursionError):
        return None


class _Scope:
    def __init__(self, columns: Mapping[str, Type], qualifier: str | None) -> None:
        self.columns = columns
        self.qualifier = qualifier


def column_of(node: exp.Expr, columns: Iterable[str], qualifier: str | None = None) -> str | None:
    """Return the column that a node names, or None if the node is something else.

    Raises Beyond if the name matches no column, or several.
    """
    from sqlglot import exp

    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    others = {name: arg for name, arg in node.args.items() if name != "this" and arg}
    table = others.pop("table", None)
    if others or (table is not None and (qualifier is None or table.name.lower() != qualifier.lower())):
        raise Beyond
    name = node.this.name
    matches = [column for column in columns if column.lower() == name.lower()]
    if len(matches) != 1:
        raise Beyond
    return matches[0]


def comparison(node: exp.Expr) -> str | None:
    """Return the operator of a comparison, or None for another node."""
    return _OPERATORS.get(type(node).__name__)


_OPERATORS = {
    "EQ": "=",
    "NEQ": "!=",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "NullSafeEQ": "<=>",
    "NullSafeNEQ": "<!>",
}
_FUNCTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _condition(node: exp.Expr, scope: _Scope) -> Predicate:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _condition(node.this, scope)
    if isinstance(node, (exp.And, exp.Or)):
        return _junction([_condition(part, scope) for part in flatten(node)], isinstance(node, exp.Or))
    if isinstance(node, exp.Not):
        return _negation(_condition(node.this, scope))
    if comparison(node) is not None:
        return _comparison(str(comparison(node)), node.this, node.expression, scope)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low = _comparison(">=", node.this, node.args["low"], scope)
        return _junction([low, _comparison("<=", node.this, node.args["high"], scope)], False)
    if isinstance(node, exp.In):
        return _membership(node, scope)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return _null_test(column_of(node.this, scope.columns, scope.qualifier))
    if isinstance(node, (exp.Boolean, exp.Null)):
        fixed = constant(node)
        return lambda row: fixed  # type: ignore[return-value]
    name = column_of(node, scope.columns, scope.qualifier)
    if name is not None and scope.columns[name].kind == "bool":
        return lambda row: row[name]
    raise Beyond


def _null_test(name: str | None) -> Predicate:
    if name is None:
        raise Beyond
    return lambda row: row[name] is None


def flatten(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of one connective, such as ``a AND b AND c``.

    The left operand of each node is the rest of the chain. A chain may have thousands of operands, so this
    function does not recurse.
    """
    parts: list[exp.Expr] = []
    kind = type(node)
    while isinstance(node, kind):
        parts.append(node.expression)
        node = node.this
    return [node, *reversed(parts)]


def _junction(parts: list[Predicate], stop: bool) -> Predicate:
    """Combine conditions with AND or OR.

    If a part has the value ``stop``, this value is the result. Otherwise the result is NULL if any part is
    NULL, else the opposite of ``stop``.

    Args:
        stop: False for AND, True for OR.
    """

    def decide(row: Row) -> bool | None:
        result: bool | None = not stop
        for part in parts:
            found = part(row)
            if found is stop:
                return stop
            if found is None:
                result = None
        return result

    return decide


def _negation(part: Predicate) -> Predicate:
    def negate(row: Row) -> bool | None:
        found = part(row)
        return None if found is None else not found

    return negate


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _comparison(sign: str, left: exp.Expr, right: exp.Expr, scope: _Scope) -> Predicate:
    name, other = _side(left, scope), _side(right, scope)
    if name is None:
        if other is None:
            raise Beyond
        name, other, right, sign = other, None, left, _MIRRORED.get(sign, sign)
    type_ = scope.columns[name]
    rank = _rank if type_.kind == "float" else None
    if other is not None:
        if scope.columns[other] != type_ and not type_.kind == scope.columns[other].kind == "int":
            raise Beyond
        return _compare_columns(sign, name, other, rank)
    return _compare_constant(sign, name, align_constant(type_, constant(right)), rank)


def _side(node: exp.Expr, scope: _Scope) -> str | None:
    from sqlglot import exp

    while isinstance(node, exp.Paren):
        node = node.this
    return column_of(node, scope.columns, scope.qualifier)


Rank: TypeAlias = Callable[[Any], Any] | None


def _rank(value: float) -> tuple[int, float]:
    """Return a sort key with Spark's order, where NaN equals itself and is greater than any other number."""
    return (1, 0.0) if math.isnan(value) else (0, value)


def _compare_constant(sign: str, name: str, value: Constant, rank: Rank) -> Predicate:
    ranked = rank or (lambda value: value)
    wanted = None if value is None else ranked(value)
    if sign in ("<=>", "<!>"):
        same = sign == "<=>"
        if value is None:
            return lambda row: (row[name] is None) is same
        return lambda row: (row[name] is not None and ranked(row[name]) == wanted) is same
    if value is None:
        return lambda row: None
    function = _FUNCTIONS[sign]
    if rank is not None:
        return lambda row: None if row[name] is None else function(ranked(row[name]), wanted)
    return lambda row: None if row[name] is None else function(row[name], value)


def _compare_columns(sign: str, left: str, right: str, rank: Rank) -> Predicate:
    ranked = rank or (lambda value: value)
    if sign in ("<=>", "<!>"):
        same = sign == "<=>"

        def null_safe(row: Row) -> bool:
            one, two = row[left], row[right]
            return (one is two if one is None or two is None else ranked(one) == ranked(two)) is same

        return null_safe
    function = _FUNCTIONS[sign]
    return lambda row: (
        None if row[left] is None or row[right] is None else function(ranked(row[left]), ranked(row[right]))
    )


def _membership(node: exp.Expr, scope: _Scope) -> Predicate:
    options = node.args.get("expressions")
    name = _side(node.this, scope)
    if (
        name is None
        or not options
        or any(arg for key, arg in node.args.items() if key not in ("this", "expressions"))
    ):
        raise Beyond
    type_ = scope.columns[name]
    values = [align_constant(type_, constant(option)) for option in options]
    ranked: Callable[[Any], Any] = _rank if type_.kind == "float" else lambda value: value
    allowed = frozenset(ranked(value) for value in values if value is not None)
    missed = None if None in values else False

    def member(row: Row) -> bool | None:
        found = row[name]
        return None if found is None else True if ranked(found) in allowed else missed

    return member


def align_constant(type_: Type, value: Constant) -> Constant:
    """Convert a constant so that Python compares it with canonical values of the type as Spark does.

    Raises Beyond if this is not possible.
    """
    kind = type_.kind
    if value is None:
        return None
    if isinstance(value, bool):
        if kind == "bool":
            return value
    elif kind in ("int", "decimal"):
        if isinstance(value, (int, Decimal)) and _fits(type_, value):
            return value
    elif kind == "float":
        # Spark compares a Float with an integer as floats or as doubles, which differ beyond 24 bits.
        if isinstance(value, (int, float, Decimal)) and (
            type_.name == "Double" or not isinstance(value, int) or abs(value) < 2**24
        ):
            return _as_double(value)
    elif kind == "bytes":
        if isinstance(value, (bytes, str)):
            return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    elif kind in ("text", "json"):
        if isinstance(value, str):
            return value
    elif isinstance(value, str):
        try:
            return coerce(type_, value, "literal")  # type: ignore[return-value]
        except InvalidArgument:
            raise Beyond from None
    elif kind == "time" and isinstance(value, date):
        return (
            value
            if isinstance(value, datetime)
            else datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
        )
    elif kind == "date" and isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise Beyond


def _as_double(value: int | float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Beyond from None


def _fits(type_: Type, value: int | Decimal) -> bool:
    """Return whether Spark compares ``value`` with numbers of the type exactly.

    It does if a decimal of at most 38 digits can hold both sides.
    """
    before, after = (type_.precision - type_.scale, type_.scale) if type_.kind == "decimal" else (20, 0)
    digits = Decimal(value).as_tuple()
    if not isinstance(digits.exponent, int) or len(digits.digits) > 38:
        return False
    scale = max(-digits.exponent, 0)
    whole = max(len(digits.digits) + digits.exponent, 0)
    return max(before, whole) + max(after, scale) <= 38
