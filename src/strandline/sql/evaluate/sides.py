"""Resolves the columns of expressions over two tables, such as the conditions of MERGE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from strandline.errors import InvalidArgument, Unsupported
from strandline.names import did_you_mean
from strandline.sql.syntax import Expression, Parsed, parse_tree
from strandline.sql.tokens import quote

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Resolved", "Side", "resolve"]


@dataclass(frozen=True)
class Side:
    """A table of the statement.

    Attributes:
        mark: a prefix that makes the names of its columns differ from those of other tables.
        alias: the name that qualifies its columns.
        names: the names of its columns.
    """

    mark: str
    alias: str
    names: Sequence[str]

    def find(self, name: str) -> str | None:
        """Return the exact name of a column, found regardless of case; None if no single column matches."""
        if name in self.names:
            return name
        found = [known for known in self.names if known.lower() == name.lower()]
        return found[0] if len(found) == 1 else None

    def marked(self, name: str) -> str:
        """Return a column's name with this table's prefix. No other table has a column of this name."""
        return f"{self.mark}.{name}"


@dataclass(frozen=True)
class Resolved:
    """An expression in which the table of each known column has been found.

    Attributes:
        text: its text for Spark, with qualified columns and with named markers for bound values.
        params: the bound values by the names of their markers.
        here: the expression with marked names for columns (``Side.marked``), for evaluation in this process.
            None: Spark has to evaluate the expression, because some of its names are not known columns.
    """

    text: str
    params: Mapping[str, Any] = field(default_factory=dict)
    here: Expression | None = None


def resolve(expression: Expression, sides: Sequence[Side], absent: Sequence[Side] = ()) -> Resolved:
    """Find the table of each column in an expression.

    A column is refused if it is ambiguous, or if it is qualified with the alias of a table that does not have
    it. Other unknown names are left to Spark.

    Args:
        sides: the tables whose columns may be used.
        absent: tables that have no row here. Their columns are refused.
    """
    from sqlglot import exp

    parsed = parse_tree(expression.source, expression.tokens)
    tree = parsed.tree
    if tree.find(exp.Query) is not None:
        raise Unsupported(
            "a subquery in a condition or a value of MERGE is not supported",
            "Join the other table in USING (SELECT ...).",
        )
    qualifiers: dict[int, str] = {}
    is_known = True
    for node in list(tree.find_all(exp.Column)):
        found = _find(node, sides, absent)
        if found is None:
            is_known = False
            continue
        side, name = found
        if not node.table:
            qualifiers[_place(node, parsed)] = f"{quote(side.alias)}."
        node.set("this", exp.to_identifier(side.marked(name), quoted=True))
        node.set("table", None)
    text = "".join(_pieces(expression, qualifiers))
    return Resolved(text, expression.params, _with_tree(expression, tree) if is_known else None)


def _find(node: exp.Column, sides: Sequence[Side], absent: Sequence[Side]) -> tuple[Side, str] | None:
    """Return the table and the exact name of a column; None if only Spark may know the name."""
    name, table = node.name, node.table
    if len(node.parts) > 2 or not name:
        return None
    if table:
        for side in (*sides, *absent):
            if side.alias.lower() == table.lower():
                return _of_side(side, name, absent)
        return None
    found = [(side, exact) for side in sides if (exact := side.find(name)) is not None]
    if len(found) > 1:
        raise InvalidArgument(
            f"the column {name} is in both {' and '.join(side.alias for side, _ in found)}",
            f"Write {found[0][0].alias}.{name} or {found[1][0].alias}.{name}.",
        )
    if not found:
        for side in absent:
            if side.find(name) is not None:
                return _of_side(side, name, absent)
        return None
    return found[0]


def _of_side(side: Side, name: str, absent: Sequence[Side]) -> tuple[Side, str]:
    if side in absent:
        raise InvalidArgument(
            f"{side.alias}.{name} has no value here, because no row of {side.alias} matches",
            "Use columns of the other table.",
        )
    exact = side.find(name)
    if exact is None:
        raise InvalidArgument(
            f"there is no column {name} in {side.alias}",
            did_you_mean(name, side.names) or f"There are {', '.join(side.names)}.",
        )
    return side, exact


def _place(node: exp.Column, parsed: Parsed) -> int:
    return parsed.token_at(node.this.meta["start"])


def _pieces(expression: Expression, qualifiers: Mapping[int, str]) -> Iterator[str]:
    """Yield the text of an expression in pieces, with named markers for bound values.

    Args:
        qualifiers: texts to insert before tokens, by the index of the token.
    """
    source, tokens = expression.source, expression.tokens
    at = tokens[0].start
    for place, token in enumerate(tokens):
        if place in qualifiers:
            yield source[at : token.start]
            yield qualifiers[place]
            at = token.start
        if token.is_bound:
            yield source[at : token.start]
            yield Expression(source, tokens[place : place + 1]).named
            at = token.end
    yield source[at : tokens[-1].end]


def _with_tree(expression: Expression, tree: exp.Expr) -> Expression:
    made = replace(expression)
    made.__dict__["ast"] = tree  # ``cached_property`` reads it from here.
    return made
