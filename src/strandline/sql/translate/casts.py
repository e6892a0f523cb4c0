"""CAST: the conversions that give the same value, or fail, in both Spark and DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.sql.syntax import token_of
from strandline.sql.tokens import value
from strandline.sql.translate.literals import parse_text
from strandline.sql.translate.terms import Term
from strandline.sql.translate.types import (
    DECIMAL_OF,
    INTEGERS,
    decimal_of,
    decimal_type,
    duckdb_type,
    is_float,
    is_integer,
    refuse,
)

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["cast"]

_NAMES = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
}


def cast(term: Term, to: exp.Expr) -> Term:
    """Return the term of CAST(term AS to); refuse a conversion for which the engines differ."""
    type_ = _type_of(to)
    name = None if term.name is None else f"CAST({term.name} AS {type_.upper()})"
    if type_ in ("date", "timestamp") and isinstance(term.literal, str):
        # sqlglot makes the same tree for DATE '...' and CAST('...' AS DATE), but Spark names their columns
        # differently. So the name is not known.
        found = parse_text(term.literal, type_)
        return Term(found.sql, found.type, None, literal=found.literal)
    sql = _sql(term, type_)
    if sql is None:
        raise refuse(f"a cast from {term.type} to {type_} runs on Spark only")
    return Term(sql, type_, name, is_outer=term.is_outer)


def _type_of(node: exp.Expr) -> str:
    name = getattr(node.this, "name", "")
    sizes = node.args.get("expressions") or []
    others = [k for k, v in node.args.items() if v and k not in ("this", "expressions", "nested")]
    if name == "DECIMAL" and len(sizes) == 2 and not others:
        tokens = [token_of(size.this) for size in sizes]
        numbers = [None if token is None else value(token) for token in tokens]
        if all(isinstance(number, int) for number in numbers):
            return decimal_type(int(str(numbers[0])), int(str(numbers[1])))
    if name not in _NAMES or sizes or others:
        raise refuse(f"a cast to {name or 'this type'} runs on Spark only")
    return _NAMES[name]


def _sql(term: Term, to: str) -> str | None:
    """Return the text of a cast; None if the cast is not allowed."""
    plain, given = f"CAST({term.sql} AS {duckdb_type(to)})", term.type
    if given in (to, "void"):
        return plain
    if is_integer(given) and (to in INTEGERS or to in ("string", "double")):
        return plain
    if given == "boolean" and (is_integer(to) or to == "string"):
        return plain
    if is_integer(given) and to == "boolean":
        return f"({term.sql} <> 0)"
    if is_float(given) and is_integer(to):
        # DuckDB rounds, Spark truncates.
        return f"CAST(trunc({term.sql}) AS {duckdb_type(to)})"
    if (given, to) == ("float", "double"):
        return plain
    if (given, to) in (("date", "timestamp"), ("timestamp", "date"), ("date", "string")):
        return plain
    if (wide := decimal_of(to)) is not None:
        narrow = decimal_of(given) or DECIMAL_OF.get(given)
        if narrow is not None and wide[1] >= narrow[1]:
            return plain
    if decimal_of(given) is not None and to == "string":
        return plain
    return None
