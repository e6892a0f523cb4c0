"""Evaluates constant expressions without Spark.

Results are exactly those of Spark with the session's time zone at UTC. For any other expression, NotConstant
is raised, and the caller lets Spark evaluate it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.errors import InvalidArgument
from strandline.sql.syntax import Expression, token_of
from strandline.sql.tokens import Token, value
from strandline.types import Type, coerce, parse_type

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Constant", "NotConstant", "constant", "literal"]

Constant: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime | None


class NotConstant(Exception):
    """Raised if an expression is not a simple constant. It never reaches users of the library."""


def literal(expression: Expression) -> Constant:
    """Return the value of a constant expression.

    The value is None for NULL, else bool, int, float, Decimal, str, bytes, date, or datetime in UTC. As in
    Spark, an integer beyond 64 bits is a decimal.
    """
    found = _value(expression)
    return Decimal(found) if isinstance(found, int) and not -(2**63) <= found < 2**63 else found


def _value(expression: Expression) -> Constant:
    tokens = expression.tokens
    if len(tokens) == 1:
        return _WORDS[tokens[0].key] if tokens[0].key in _WORDS else _of_token(tokens[0])
    if len(tokens) == 2 and tokens[0].key in ("-", "+"):
        number = _of_token(tokens[1])
        return _negative(number) if tokens[0].key == "-" else _number(number)
    try:
        return constant(expression.ast)
    except RecursionError:
        raise NotConstant from None


_WORDS: dict[str, Constant] = {"NULL": None, "TRUE": True, "FALSE": False}


def _of_token(token: Token) -> Constant:
    if token.is_bound:
        return token.bound  # type: ignore[no-any-return]
    if token.key or token.kind == "name":
        raise NotConstant
    found = value(token)
    if found is None:
        raise NotConstant
    return found


def _number(found: Constant) -> int | float | Decimal:
    if isinstance(found, bool) or not isinstance(found, (int, float, Decimal)):
        raise NotConstant
    return found


def _negative(found: Constant) -> int | float | Decimal:
    return -_number(found)


def constant(node: exp.Expr) -> Constant:
    """Return the value of a node in sqlglot's tree of an expression."""
    from sqlglot import exp

    if isinstance(node, exp.Literal):
        token = token_of(node)
        if token is None:
            raise NotConstant
        return _of_token(token)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        return _negative(constant(node.this))
    if isinstance(node, exp.Paren):
        return constant(node.this)
    if isinstance(node, (exp.Cast, exp.TryCast)) and not any(
        node.args.get(name) for name in ("safe", "format", "action", "default")
    ):
        return _cast(constant(node.this), _type_of(node.args["to"]))
    raise NotConstant


_TYPE_NAMES = {
    "BOOLEAN": "Bool",
    "TINYINT": "Int8",
    "SMALLINT": "Int16",
    "INT": "Int32",
    "BIGINT": "Int64",
    "DOUBLE": "Double",
    "TEXT": "Utf8",
    "BINARY": "String",
    "DATE": "Date",
    "TIMESTAMP": "Timestamp",
    "TIMESTAMPTZ": "Timestamp",
    "TIMESTAMPLTZ": "Timestamp",
}


def _type_of(node: exp.Expr) -> Type:
    name = getattr(node.this, "name", "")
    sizes = node.args.get("expressions") or []
    if name == "DECIMAL" and len(sizes) == 2:
        try:
            return parse_type(f"Decimal({constant(sizes[0].this)!r},{constant(sizes[1].this)!r})")
        except InvalidArgument:
            raise NotConstant from None
    if name not in _TYPE_NAMES or sizes:
        raise NotConstant
    return parse_type(_TYPE_NAMES[name])


_INTEGER = re.compile(r"[+-]?[0-9]{1,38}")


def _cast(found: Constant, type_: Type) -> Constant:
    """Return the result of a cast; raise NotConstant if Spark's result might differ.

    Casts that keep the value, and casts of plain text, give Spark's result. A cast of NULL might differ: its
    result has a type, and Spark refuses it in places where this type does not fit.
    """
    if found is None:
        raise NotConstant
    try:
        result: Constant = _CASTS[type_.kind](found, type_)
    except InvalidArgument:
        raise NotConstant from None
    return result


def _to_number(found: Constant, type_: Type) -> Any:
    if isinstance(found, str) and _INTEGER.fullmatch(found):
        found = int(found)
    if isinstance(found, (bool, float)) or (isinstance(found, Decimal) and type_.kind == "int"):
        raise NotConstant
    return coerce(type_, found, "CAST")


def _to_float(found: Constant, type_: Type) -> Any:
    return float(_number(found))


def _to_text(found: Constant, type_: Type) -> Any:
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise NotConstant
    return str(found)


def _to_bytes(found: Constant, type_: Type) -> Any:
    if not isinstance(found, (str, bytes)):
        raise NotConstant
    return coerce(type_, found, "CAST")


def _to_bool(found: Constant, type_: Type) -> Any:
    if isinstance(found, str) and found.lower() in ("true", "false"):
        return found.lower() == "true"
    return coerce(type_, found, "CAST")


def _to_date(found: Constant, type_: Type) -> Any:
    return coerce(type_, found, "CAST")


def _to_time(found: Constant, type_: Type) -> Any:
    if isinstance(found, date) and not isinstance(found, datetime):
        return datetime(found.year, found.month, found.day, tzinfo=timezone.utc)
    return _to_date(found, type_)


_CASTS: dict[str, Callable[[Constant, Type], Any]] = {
    "bool": _to_bool,
    "int": _to_number,
    "decimal": _to_number,
    "float": _to_float,
    "text": _to_text,
    "bytes": _to_bytes,
    "date": _to_date,
    "time": _to_time,
}
