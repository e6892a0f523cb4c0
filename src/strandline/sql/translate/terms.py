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
    """An expression.

    Attributes:
        sql: its text for DuckDB.
        type: its type in Spark.
        name: the name that Spark gives to an unnamed column of this expression. None: it is not known.
        declared: the type of the table's column, if the expression is a column of a table. Spark does not
            have all of these types. None: it is another expression.
        literal: the value of a literal.
        is_outer: whether the expression uses a column of an outer query.
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
    """Return the term cast to a type that can hold all of its values."""
    if term.type == type_:
        return term
    return Term(f"CAST({term.sql} AS {duckdb_type(type_)})", type_, term.name, is_outer=term.is_outer)


def convert(term: Term, type_: str) -> Term:
    """Convert a term to a common type, as Spark does implicitly; refuse conversions of text."""
    if term.type != type_ and "string" in (term.type, type_) and term.type != "void":
        raise refuse("an implicit conversion of text runs on Spark only")
    return cast_term(term, type_)


def unify(terms: Sequence[Term]) -> list[Term]:
    """Convert the terms to one common type."""
    found = terms[0].type
    for term in terms[1:]:
        found = common_type(found, term.type)
    return [convert(term, found) for term in terms]


@dataclass(frozen=True)
class OutColumn:
    """A column of a relation. In DuckDB it is named ``c0``, ``c1`` and so on, by its place in the relation.

    Attributes:
        name: its name in Spark. None: it is not known.
        type: its type in Spark.
        declared: if it is a column of a table, the type of this column.
    """

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
    """A column that expressions may name.

    Attributes:
        note: called when an expression uses the column.
        is_hidden: whether the column is only found by its qualified name, because USING has merged it with
            another column.
    """

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
    """The columns of ``*``. None: they are ``columns`` in their order."""
    ctes: Mapping[str, tuple[str, Relation]] = field(default_factory=dict)
    """Common table expressions by their name in lower case: their name in DuckDB, and their relation."""

    def find(self, name: str, qualifier: str | None) -> Term | None:
        """Return the column of a name, in this scope or an outer one; refuse an ambiguous name.

        None: no scope has the column.
        """
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
