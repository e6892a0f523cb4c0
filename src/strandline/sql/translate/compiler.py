"""Compiles expressions: finds the rule for each node of sqlglot's tree, and refuses nodes that have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from strandline.sql.translate.terms import Scope, Term
from strandline.sql.translate.types import refuse

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["LONGEST", "Expressions", "Rule", "Subqueries", "made", "name_of", "only"]

LONGEST = 100_000
"""Maximum length of the text of an expression: some operands are repeated in it."""


class Subqueries(Protocol):
    """Compiles queries inside expressions.

    ``rules``: a function for each class of sqlglot's nodes that is allowed.
    """

    rules: Mapping[str, Rule]

    def scalar(self, node: exp.Expr, scope: Scope) -> Term: ...
    def exists(self, node: exp.Expr, scope: Scope) -> Term: ...
    def member(self, left: Term, node: exp.Expr, scope: Scope) -> Term: ...


class Expressions:
    """Compiles expressions over the columns of a scope.

    ``intercept`` may return the term of a node before the compiler looks at it.
    """

    def __init__(
        self,
        scope: Scope,
        subqueries: Subqueries,
        intercept: Callable[[exp.Expr], Term | None] | None = None,
    ) -> None:
        self.scope = scope
        self.subqueries = subqueries
        self._intercept = intercept

    def term(self, node: exp.Expr) -> Term:
        """Return the term of a node; raise NotTranslated if only Spark evaluates it."""
        if self._intercept is not None and (found := self._intercept(node)) is not None:
            return found
        kind = type(node).__name__
        if (rule := self.subqueries.rules.get(kind)) is None:
            raise refuse(f"{_shown(node)} runs on Spark only")
        found = rule(self, node)
        if len(found.sql) > LONGEST:
            raise refuse("an expression of this size runs on Spark only")
        return found

    def boolean(self, node: exp.Expr) -> Term:
        """Return the term of a condition."""
        found = self.term(node)
        if found.type == "void":
            return Term("CAST(NULL AS BOOLEAN)", "boolean", found.name)
        if found.type != "boolean":
            raise refuse("a condition that is not boolean runs on Spark only")
        return found


def only(node: exp.Expr, *names: str) -> None:
    """Refuse a node with arguments other than ``names``."""
    for name, value in node.args.items():
        if value and name not in names and name != "_type":
            what = name.strip("_").replace("_", " ").upper()
            raise refuse(f"{what} of {type(node).__name__.upper()} runs on Spark only")


def name_of(form: str, *terms: Term) -> str | None:
    """Return a name made of the names of its parts; None if one of them is not known."""
    names = [term.name for term in terms]
    return None if any(name is None for name in names) else form.format(*names)


def made(sql: str, type_: str, name: str | None, *parts: Term) -> Term:
    """Return a term that is made of others."""
    return Term(sql, type_, name, is_outer=any(part.is_outer for part in parts))


def _shown(node: exp.Expr) -> str:
    written = node.meta.get("written")
    return f"the function {written.lower()}" if written else f"the form {type(node).__name__.upper()}"


Rule: TypeAlias = Callable[[Expressions, Any], Term]
"""A function that compiles nodes of one class."""
