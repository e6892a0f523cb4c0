"""Compiles expressions: finds the rule for each node of sqlglot's tree, and refuses nodes that have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from strandline.sql.translate.terms import Scope, Term
from strandline.sql.translate.types import refuse

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = [
    "FUNCTIONS",
    "LONGEST",
    "Expressions",
    "Rule",
    "Subqueries",
    "check_name",
    "made",
    "name_of",
    "only",
]

LONGEST = 100_000
"""Maximum length of an expression's text. Some rules repeat an operand, so nested texts can grow fast."""

_FUNCTIONS = """abs avg bool_and bool_or boolean ceil ceiling char_length character_length coalesce concat
contains count count_if date day dayofmonth dense_rank double endswith floor greatest hour if ifnull int isnan
lcase least left len length lower ltrim max min minute mod month nullif nvl quarter rank replace row_number
rtrim second startswith string substr substring sum timestamp trim ucase upper year"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""Names of Spark's functions that have a rule. sqlglot takes more names for the same nodes, such as
``logical_or``, which Spark does not have. ``docs/reference/process-queries.md`` has an example of each."""


class Subqueries(Protocol):
    """Compiles queries inside expressions.

    Attributes:
        rules: the function that compiles each supported class of sqlglot's nodes, by the name of the class.
    """

    rules: Mapping[str, Rule]

    def scalar(self, node: exp.Expr, scope: Scope) -> Term: ...
    def exists(self, node: exp.Expr, scope: Scope) -> Term: ...
    def member(self, left: Term, node: exp.Expr, scope: Scope) -> Term: ...


class Expressions:
    """Compiles expressions over the columns of a scope.

    Args:
        intercept: called first for each node. If it returns a term, the compiler uses this term. None: every
            node is compiled by its rule.
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

    def term(self, node: exp.Expr | None) -> Term:
        """Return the term of a node; raise NotTranslated if only Spark evaluates it.

        Args:
            node: the node. None: a function is called without this argument, and Spark reports the error.
        """
        if node is None:
            raise refuse("a function with too few arguments runs on Spark only")
        if self._intercept is not None and (found := self._intercept(node)) is not None:
            return found
        check_name(node)
        if (rule := self.subqueries.rules.get(type(node).__name__)) is None:
            raise refuse(f"{_shown(node)} runs on Spark only")
        found = rule(self, node)
        if len(found.sql) > LONGEST:
            raise refuse("an expression of this size runs on Spark only")
        return found

    def boolean(self, node: exp.Expr | None) -> Term:
        """Return the term of a condition; refuse an expression that is not boolean."""
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
    """Return Spark's name of an expression, or None if the name of one of its parts is not known.

    Args:
        form: a format string with one ``{}`` for the name of each part.
        terms: the parts.
    """
    names = [term.name for term in terms]
    return None if any(name is None for name in names) else form.format(*names)


def made(sql: str, type_: str, name: str | None, *parts: Term) -> Term:
    """Return a term that is built from ``parts``.

    Its ``is_outer`` is True if one of the parts uses a column of an outer query.
    """
    return Term(sql, type_, name, is_outer=any(part.is_outer for part in parts))


def check_name(node: exp.Expr) -> None:
    """Refuse a function whose name, as written, is not in ``FUNCTIONS``."""
    if (written := node.meta.get("written")) and written.lower() not in FUNCTIONS:
        raise refuse(f"the function {written.lower()} runs on Spark only")


def _shown(node: exp.Expr) -> str:
    written = node.meta.get("written")
    return f"the function {written.lower()}" if written else f"the form {type(node).__name__.upper()}"


Rule: TypeAlias = Callable[[Expressions, Any], Term]
"""A function that compiles nodes of one class."""
