"""Derives constraints on single columns from a condition, so that rows can be looked up by key.

The result is conservative: every row that meets the condition meets the constraints, but not vice versa.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.model import Key, KeyRange
from strandline.sql.evaluate.literals import Constant, NotConstant, constant
from strandline.sql.evaluate.predicates import Beyond, align_constant, column_of, comparison, flatten
from strandline.sql.syntax import Expression
from strandline.types import Type

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = [
    "Allowed",
    "Constraints",
    "Range",
    "both",
    "constraints_of",
    "key_ranges",
    "lookup_keys",
    "range_of_comparison",
]

MAX_LOOKUP_KEYS = 10_000


@dataclass(frozen=True)
class Range:
    """The values between two bounds; None means unbounded. NULL is never in a range."""

    low: Any = None
    low_inclusive: bool = False
    high: Any = None
    high_inclusive: bool = False

    def __contains__(self, value: object) -> bool:
        if value is None:
            return False
        low, high = self.low, self.high
        if low is not None and not (value > low or (self.low_inclusive and value == low)):
            return False
        return high is None or value < high or (self.high_inclusive and value == high)


Allowed: TypeAlias = frozenset[Any] | Range


@dataclass(frozen=True)
class Constraints:
    """The values that columns may have: for each column a set (with None for NULL), or a range.

    The values are canonical values of the column's type. A column that is missing here is not constrained.
    """

    columns: Mapping[str, Allowed] = field(default_factory=dict)

    @property
    def impossible(self) -> bool:
        """Whether no row can meet the condition."""
        return any(allowed == frozenset() for allowed in self.columns.values())

    def values(self, column: str) -> frozenset[Any] | None:
        """Return the allowed values of a column if they are a finite set, else None."""
        allowed = self.columns.get(column)
        return allowed if isinstance(allowed, frozenset) else None

    def key_range(self, key: Sequence[str]) -> KeyRange:
        """Return a range that contains all keys that meet the constraints."""
        prefix: list[Any] = []
        for name in key:
            allowed = self.columns.get(name)
            if isinstance(allowed, frozenset) and len(allowed) == 1:
                prefix.extend(allowed)
                continue
            lower, upper = list(prefix), list(prefix)
            if isinstance(allowed, frozenset) and None not in allowed:
                lower.append(min(allowed))
                upper.append(max(allowed))
            elif isinstance(allowed, Range):
                lower += [] if allowed.low is None else [allowed.low]
                upper += [] if allowed.high is None else [allowed.high]
            return KeyRange(tuple(lower) or None, tuple(upper) or None, closed=True)
        return KeyRange(tuple(prefix), tuple(prefix), closed=True)


def key_ranges(
    expression: Expression | None,
    columns: Mapping[str, Type],
    names: Collection[str],
    qualifier: str | None = None,
) -> Constraints:
    """Return the constraints that a condition puts on some columns.

    Args:
        expression: the condition. None: there is no condition, and no constraint.
        columns: all columns of the table.
        names: the columns to constrain.
        qualifier: the name that may qualify columns in the condition.
    """
    return Constraints() if expression is None else constraints_of(expression.ast, columns, names, qualifier)


def constraints_of(
    node: exp.Expr, columns: Mapping[str, Type], names: Collection[str], qualifier: str | None = None
) -> Constraints:
    """Return the constraints of a condition, given as a node of sqlglot's tree. See ``key_ranges``."""
    try:
        found = _Reader(columns, qualifier).read(node)
    except RecursionError:
        return Constraints()
    return Constraints({name: allowed for name, allowed in found.items() if name in names})


def lookup_keys(key: Sequence[str], constraints: Constraints) -> list[Key] | None:
    """Return the keys that may satisfy the constraints; None if there are too many to look up."""
    sets = [constraints.values(name) for name in key]
    finite = [s for s in sets if s is not None]
    if len(finite) < len(key) or math.prod(len(s) for s in finite) > MAX_LOOKUP_KEYS:
        return None
    return list(itertools.product(*finite))


def range_of_comparison(sign: str, type_: Type, value: Constant) -> Allowed | None:
    """Return the values of a column that a comparison with a constant allows; None if they are not known."""
    if type_.kind == "float":
        return None
    try:
        return _allowed_values(sign, type_, align_constant(type_, value))
    except Beyond:
        return None


_Found: TypeAlias = dict[str, Allowed]


class _Reader:
    def __init__(self, columns: Mapping[str, Type], qualifier: str | None) -> None:
        self.columns = columns
        self.qualifier = qualifier

    def read(self, node: exp.Expr) -> _Found:
        from sqlglot import exp

        if isinstance(node, exp.Paren):
            return self.read(node.this)
        if isinstance(node, exp.And):
            return _all_of(map(self.read, flatten(node)))
        if isinstance(node, exp.Or):
            return self._either(flatten(node))
        try:
            return self._single(node)
        except (Beyond, NotConstant):
            return {}

    def _either(self, parts: list[exp.Expr]) -> _Found:
        found = self.read(parts[0])
        for part in parts[1:]:
            if not found:
                break
            other = self.read(part)
            joined = {name: _any(found[name], other[name]) for name in found if name in other}
            found = {name: allowed for name, allowed in joined.items() if allowed is not None}
        return found

    def _single(self, node: exp.Expr) -> _Found:
        from sqlglot import exp

        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            ends = ((">=", node.args["low"]), ("<=", node.args["high"]))
            return _all_of(self._compare(sign, node.this, end) for sign, end in ends)
        if isinstance(node, exp.In) and not any(
            arg for key, arg in node.args.items() if key not in ("this", "expressions")
        ):
            name = self._column(node.this)
            options = node.args.get("expressions") or []
            if name is None or not options:
                return {}
            type_ = self.columns[name]
            values = [align_constant(type_, constant(option)) for option in options]
            return {name: frozenset(_exact(type_, value) for value in values if value is not None) - {None}}
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            name = self._column(node.this)
            return {} if name is None else {name: frozenset({None})}
        sign = comparison(node)
        return {} if sign is None else self._compare(sign, node.this, node.expression)

    def _column(self, node: exp.Expr) -> str | None:
        from sqlglot import exp

        while isinstance(node, exp.Paren):
            node = node.this
        return column_of(node, self.columns, self.qualifier)

    def _compare(self, sign: str, left: exp.Expr, right: exp.Expr) -> _Found:
        name = self._column(left)
        if name is None:
            name, right = self._column(right), left
            sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        if name is None:
            return {}
        type_ = self.columns[name]
        if type_.kind == "float":
            return {}  # Floats are never in a key, so NaN and the rounding of literals are not handled.
        return (
            {name: allowed}
            if (allowed := _allowed_values(sign, type_, align_constant(type_, constant(right)))) is not None
            else {}
        )


def _all_of(parts: Iterable[_Found]) -> _Found:
    """Return what all conditions together allow."""
    found: _Found = {}
    for part in parts:
        for name, allowed in part.items():
            found[name] = both(found[name], allowed) if name in found else allowed
    return found


def _allowed_values(sign: str, type_: Type, value: Constant) -> Allowed | None:
    if sign == "<=>":
        exact = _exact(type_, value)
        return frozenset({exact}) if exact is not None or value is None else frozenset()
    if sign == "<!>":
        return None
    if value is None:
        return frozenset()
    if sign == "=":
        return frozenset({_exact(type_, value)}) - {None}
    if sign == "!=":
        return Range()
    floor, whole = _floor(type_, value)
    if sign in (">", ">="):
        # For integers, ``> 1.5`` and ``>= 1.5`` both mean ``> 1``.
        return _above(type_, floor, inclusive=whole and sign == ">=")
    return _below(type_, floor, inclusive=not whole or sign == "<=")


def _exact(type_: Type, value: Constant) -> Any:
    """Return the value of the type that equals a constant; None if there is no such value."""
    if value is None or type_.kind not in ("int", "decimal"):
        if isinstance(value, datetime) and type_.name == "Datetime" and value.microsecond:
            return None
        return value
    floor, whole = _floor(type_, value)
    return floor if whole and _lowest(type_) <= floor <= _highest(type_) else None


_WIDE = Context(prec=120)


def _floor(type_: Type, value: Any) -> tuple[Any, bool]:
    """Round a value down to the scale of the type; return the result, and whether it equals the value."""
    if type_.kind == "int":
        floor: Any = value if isinstance(value, int) else int(value.to_integral_value(ROUND_FLOOR))
    elif type_.kind == "decimal":
        try:
            floor = Decimal(value).quantize(Decimal(1).scaleb(-type_.scale), ROUND_FLOOR, _WIDE)
        except InvalidOperation:
            raise Beyond from None
    else:
        floor = value
    return floor, floor == value


def _lowest(type_: Type) -> Any:
    return type_.min if type_.kind == "int" else -_highest(type_)


def _highest(type_: Type) -> Any:
    return type_.max if type_.kind == "int" else (Decimal(10) ** type_.precision - 1).scaleb(-type_.scale)


def _above(type_: Type, low: Any, inclusive: bool) -> Allowed:
    if type_.kind in ("int", "decimal"):
        if low < _lowest(type_):
            return Range()
        if low > _highest(type_):
            return frozenset()
    return Range(low=low, low_inclusive=inclusive)


def _below(type_: Type, high: Any, inclusive: bool) -> Allowed:
    if type_.kind in ("int", "decimal"):
        if high > _highest(type_):
            return Range()
        if high < _lowest(type_):
            return frozenset()
    return Range(high=high, high_inclusive=inclusive)


def both(left: Allowed, right: Allowed) -> Allowed:
    """Return the values that both constraints allow."""
    if isinstance(left, frozenset):
        return frozenset(value for value in left if value in right)
    if isinstance(right, frozenset):
        return frozenset(value for value in right if value in left)
    low, low_inclusive = left.low, left.low_inclusive
    if low is None or (
        right.low is not None and (right.low > low or (right.low == low and not right.low_inclusive))
    ):
        low, low_inclusive = right.low, right.low_inclusive
    high, high_inclusive = left.high, left.high_inclusive
    if high is None or (
        right.high is not None and (right.high < high or (right.high == high and not right.high_inclusive))
    ):
        high, high_inclusive = right.high, right.high_inclusive
    if (
        low is not None
        and high is not None
        and (low > high or (low == high and not (low_inclusive and high_inclusive)))
    ):
        return frozenset()
    return Range(low, low_inclusive, high, high_inclusive)


def _any(left: Allowed, right: Allowed) -> Allowed | None:
    """Return a constraint that allows the values of both sides.

    The result is None (no constraint) if it would be a range and one side allows NULL: a range has no NULL.
    """
    if isinstance(left, frozenset) and isinstance(right, frozenset):
        return left | right
    if not left or not right:
        return left or right
    one, two = _hull(left), _hull(right)
    if one is None or two is None:
        return None
    lower = (
        one
        if two.low is not None
        and (one.low is None or (one.low, not one.low_inclusive) < (two.low, not two.low_inclusive))
        else two
    )
    upper = (
        one
        if two.high is not None
        and (one.high is None or (one.high, one.high_inclusive) > (two.high, two.high_inclusive))
        else two
    )
    return Range(lower.low, lower.low_inclusive, upper.high, upper.high_inclusive)


def _hull(allowed: Allowed) -> Range | None:
    if isinstance(allowed, Range):
        return allowed
    return None if None in allowed else Range(min(allowed), True, max(allowed), True)
