"""Compiled parts of a query: expressions, columns and relations as text for DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from strandline.sql.translate.types import common_type, duckdb_type, refuse
from strandline.types import Type

__all__ = [
    "NO_LITERAL",
    "OutColumn",
    "Relation",
    "Scope",
    "ScopeColumn",
    "Term",
    "cast_term",
    "convert",
    "unify",
]

NO_LITERAL: Any = object()


@dataclass(frozen=True)
class Term:
    """An expression: its text for DuckDB, and its type in Spark.

    Args:
        name: the name that Spark gives to an unnamed column of this expression; None if it is not known.
        declared: the type of the table's column that the expression is, for types that Spark does not have.
        literal: the value of a literal.
        is_outer: it uses a column of an outer query.
    """

    sql: str
    type: str
    name: str | None = None
    _: KW_ONLY
    declared: Type | None = None
    literal: Any = NO_LITERAL
    is_outer: bool = False

    @property
    def is_literal(self) -> bool:
        return self.literal is not NO_LITERAL


def cast_term(term: Term, type_: str) -> Term:
    """Return the term converted to a type that loses nothing."""
    if term.type == type_:
        return term
    return Term(f"CAST({term.sql} AS {duckdb_type(type_)})", type_, term.name, is_outer=term.is_outer)


def convert(term: Term, type_: str) -> Term:
    """Return the term as a value of a common type, as Spark converts it implicitly."""
    if term.type != type_ and "string" in (term.type, type_) and term.type != "void":
        raise refuse("an implicit conversion of text runs on Spark only")
    return cast_term(term, type_)


def unify(terms: Sequence[Term]) -> list[Term]:
    """Return the terms with one common type."""
    found = terms[0].type
    for term in terms[1:]:
        found = common_type(found, term.type)
    return [convert(term, found) for term in terms]


@dataclass(frozen=True)
class OutColumn:
    """A column of a relation: its name in Spark, and its type. Its name in DuckDB is ``c`` and its place."""

    name: str | None
    type: str
    declared: Type | None = None


@dataclass(frozen=True)
class Relation:
    """A query as text for DuckDB, with its columns ``c0``, ``c1`` and so on."""

    sql: str
    columns: Sequence[OutColumn]


@dataclass(frozen=True)
class ScopeColumn:
    """A column that expressions may name. ``is_hidden``: only with its qualifier (after USING)."""

    qualifier: str | None
    name: str
    term: Term
    note: Callable[[], None] = field(default=lambda: None, compare=False)
    is_hidden: bool = False


@dataclass(frozen=True)
class Scope:
    """The columns that an expression may name, and those of the outer query."""

    columns: Sequence[ScopeColumn] = ()
    outer: Scope | None = None
    star: Sequence[ScopeColumn] | None = None
    """The columns of ``*``, if they are not ``columns`` in their order."""
    ctes: Mapping[str, tuple[str, Relation]] = field(default_factory=dict)
    """Common table expressions by their name in lower case: their name in DuckDB, and their columns."""

    def find(self, name: str, qualifier: str | None) -> Term | None:
        """Return the column of a name, in this scope or an outer one; refuse an ambiguous name."""
        found = self.matches(name, qualifier)
        if len(found) > 1:
            raise refuse(f"the name {name} is ambiguous")
        if found:
            found[0].note()
            return replace(found[0].term, name=name)
        above = None if self.outer is None else self.outer.find(name, qualifier)
        return None if above is None else replace(above, is_outer=True)

    def matches(self, name: str, qualifier: str | None) -> list[ScopeColumn]:
        low = name.lower()
        return [
            column
            for column in self.columns
            if column.name.lower() == low
            and (
                not column.is_hidden
                if qualifier is None
                else column.qualifier is not None and column.qualifier.lower() == qualifier.lower()
            )
        ]

    def expand(self, qualifier: str | None) -> list[ScopeColumn]:
        """Return the columns of ``*`` or ``qualifier.*``."""
        found: Iterable[ScopeColumn]
        if qualifier is None:
            found = self.columns if self.star is None else self.star
            found = [column for column in found if not column.is_hidden]
        else:
            found = [c for c in self.columns if c.qualifier and c.qualifier.lower() == qualifier.lower()]
        result = list(found)
        if not result:
            raise refuse("* has no columns here")
        for column in result:
            column.note()
        return result
