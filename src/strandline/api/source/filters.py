"""Translate Spark's filters to constraints on the key of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from strandline.sql.evaluate.ranges import Allowed, Constraints, Range, both, range_of_comparison
from strandline.types import Type

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_SIGNS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
"""Operators by the class names of filters, because PySpark has the classes only since 4.1."""


def constraints(filters: Iterable[Filter], types: Mapping[str, Type]) -> Constraints:
    """Return constraints that all rows matching the filters satisfy; other rows may satisfy them too."""
    found: dict[str, Allowed] = {}
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        if len(path) != 1 or path[0] not in types:
            continue
        (name,) = path
        left = _remaining_values(each, types[name])
        if left is not None:
            found[name] = both(found[name], left) if name in found else left
    return Constraints(found)


def _remaining_values(each: Any, type_: Type) -> Allowed | None:
    """Return the values of a column that a filter allows. None: they are not known."""
    kind = type(each).__name__
    if kind == "IsNull":
        return frozenset({None})
    if kind == "IsNotNull":
        return Range()
    if kind == "In":
        parts = [_compare("=", type_, value) for value in each.value]
        sets = [part for part in parts if isinstance(part, frozenset)]
        return frozenset().union(*sets) if len(sets) == len(parts) else None
    return _compare(_SIGNS[kind], type_, each.value) if kind in _SIGNS else None


def _compare(sign: str, type_: Type, value: Any) -> Allowed | None:
    if isinstance(value, datetime) and value.tzinfo is None:
        return None
    return range_of_comparison(sign, type_, value)
