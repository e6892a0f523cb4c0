"""FROM: tables, subqueries, common table expressions, and joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from strandline.sql.references import TableRef
from strandline.sql.translate.compiler import Expressions, Subqueries, only
from strandline.sql.translate.terms import Relation, Scope, ScopeColumn, Term
from strandline.sql.translate.types import refuse
from strandline.types import Type

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Ctes", "FromCompiler", "QuerySource", "TableColumns", "compile_from", "from_of"]

TableColumns = Sequence[tuple[str, Type]]
"""Names and types of a table's columns."""
Ctes = Mapping[str, tuple[str, Relation]]
"""Common table expressions by their name in lower case: their name in DuckDB, and their relation."""


@dataclass
class QuerySource:
    """A table that a query reads.

    Attributes:
        place: the index of its reference in the query.
        used: the indexes of the columns that are read.
        where: conditions that all rows used by the query satisfy, as nodes of sqlglot's tree.
    """

    place: int
    used: set[int] = field(default_factory=set)
    where: list[exp.Expr] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the table in DuckDB. Its columns are ``c0``, ``c1`` and so on, in the table's order."""
        return f"t{self.place}"


class FromCompiler(Subqueries, Protocol):
    """The parts of a query's compiler that FROM needs."""

    refs: Mapping[int, tuple[int, TableRef, TableColumns]]
    sources: dict[int, QuerySource]

    def fresh(self) -> str: ...
    def query(self, node: exp.Expr, ctes: Ctes, outer: Scope | None) -> Relation: ...


def from_of(node: exp.Expr) -> exp.Expr | None:
    found: exp.Expr | None = node.args.get("from_") or node.args.get("from")
    return found


def compile_from(
    compiler: FromCompiler, node: exp.Expr, ctes: Ctes, outer: Scope | None
) -> tuple[str, Scope, list[QuerySource]]:
    """Return the text of FROM, the scope of its columns, and the tables that WHERE can restrict.

    WHERE can restrict a table if rows that do not meet a condition can be left out before the joins.
    """
    from_ = from_of(node)
    if from_ is None:
        return "", Scope((), outer, ctes=ctes), []
    only(from_, "this")
    text, columns, sources = _item(compiler, from_.this, ctes)
    star: list[ScopeColumn] | None = None
    crossed = False
    for join in node.args.get("joins") or ():
        side, kind, method = (str(join.args.get(name) or "").upper() for name in ("side", "kind", "method"))
        only(join, "this", "side", "kind", "on", "using")
        if method or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
            raise refuse(f"a {method or kind} JOIN runs on Spark only")
        if crossed and side in ("RIGHT", "FULL"):
            raise refuse("an outer join after a comma runs on Spark only")
        crossed = crossed or kind == "CROSS"
        right, more, behind = _item(compiler, join.this, ctes)
        both = Scope([*columns, *more], outer, ctes=ctes)
        words = f"{kind} JOIN" if kind in ("CROSS", "SEMI", "ANTI") else f"{side} JOIN".strip()
        on = ""
        if join.args.get("using"):
            on, more, star = _using(join, words, columns, more, star)
        elif join.args.get("on") is not None:
            on = f" ON {Expressions(both, compiler).boolean(join.args['on']).sql}"
        elif kind != "CROSS":
            if side or kind in ("SEMI", "ANTI"):
                raise refuse("an outer join without a condition runs on Spark only")
            words = "CROSS JOIN"
        text += f" {words} {right}{on}"
        if kind in ("SEMI", "ANTI"):
            star = star and [c for c in star if c in columns]
        else:
            star = star if star is None or join.args.get("using") else [*star, *more]
            columns = [*columns, *more]
        sources = _restricted(sources, behind, side, kind)
    return f" FROM {text}", Scope(columns, outer, star, ctes), sources


def _restricted(left: list[QuerySource], right: list[QuerySource], side: str, kind: str) -> list[QuerySource]:
    """Return the tables of both sides of a join that a condition of WHERE can restrict before the join."""
    if kind in ("SEMI", "ANTI") or side == "LEFT":
        return left
    if side == "RIGHT":
        return right
    return [] if side == "FULL" else [*left, *right]


def _using(
    join: exp.Expr,
    words: str,
    left: Sequence[ScopeColumn],
    right: Sequence[ScopeColumn],
    star: list[ScopeColumn] | None,
) -> tuple[str, list[ScopeColumn], list[ScopeColumn]]:
    """Return the condition of USING, the columns of the right side, and the columns of ``*``.

    Args:
        words: the kind of the join, such as ``LEFT JOIN``.
        star: the columns of ``*`` on the left side. None: all columns of ``left`` that are not hidden.
    """
    if words not in ("JOIN", "LEFT JOIN"):
        raise refuse(f"{words} with USING runs on Spark only")
    conditions, first, hidden = [], [], set()
    scopes = Scope(left), Scope(right)
    for name in join.args["using"]:
        pair = [scope.matches(name.name, None) for scope in scopes]
        if any(len(found) != 1 for found in pair):
            raise refuse(f"the name {name.name} of USING is not one column of each side")
        one, other = pair[0][0], pair[1][0]
        if one.term.type != other.term.type:
            raise refuse("USING with different types runs on Spark only")
        one.note()
        other.note()
        conditions.append(f"{one.term.sql} = {other.term.sql}")
        first.append(one)
        hidden.add(id(other))
    shown = [replace(column, is_hidden=True) if id(column) in hidden else column for column in right]
    before = star if star is not None else [c for c in left if not c.is_hidden]
    rest = [c for c in before if c not in first] + [c for c in shown if not c.is_hidden]
    return f" ON {' AND '.join(conditions)}", shown, [*first, *rest]


def _item(
    compiler: FromCompiler, node: exp.Expr, ctes: Ctes
) -> tuple[str, list[ScopeColumn], list[QuerySource]]:
    """Compile a table or a subquery in FROM.

    Returns its text, its columns, and a list with the table of the warehouse. The list is empty for a
    subquery and for a common table expression.
    """
    from sqlglot import exp

    if isinstance(node, exp.Table):
        return _table(compiler, node, ctes)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
        only(node, "this", "alias")
        relation = compiler.query(node.this, ctes, None)
        label, shown, renamed = compiler.fresh(), *_alias(node)
        return f"({relation.sql}) AS {label}", _columns(relation, label, shown, renamed), []
    raise refuse("this form in FROM runs on Spark only")


def _table(
    compiler: FromCompiler, node: exp.Table, ctes: Ctes
) -> tuple[str, list[ScopeColumn], list[QuerySource]]:
    from sqlglot import exp

    only(node, "this", "alias")
    shown, renamed = _alias(node)
    if not isinstance(node.this, exp.Identifier):
        raise refuse("a table function runs on Spark only")
    found = compiler.refs.get(node.meta.get("at", -1))
    if found is None:
        cte = ctes.get(node.this.name.lower())
        if cte is None:
            raise refuse(f"{node.this.name} is not a table of the warehouse")
        label = compiler.fresh()
        return f"{cte[0]} AS {label}", _columns(cte[1], label, shown or node.this.name, renamed), []
    place, ref, columns = found
    if renamed:
        raise refuse("names of columns after a table run on Spark only")
    source = compiler.sources.setdefault(place, QuerySource(place))
    label = compiler.fresh()

    def note(index: int) -> None:
        source.used.add(index)

    made = [
        ScopeColumn(
            ref.qualifier,
            name,
            Term(f"{label}.c{i}", type_.spark, name, declared=type_),
            note=lambda i=i: note(i),  # type: ignore[misc]
        )
        for i, (name, type_) in enumerate(columns)
    ]
    return f"{source.name} AS {label}", made, [source]


def _alias(node: exp.Expr) -> tuple[str | None, list[str]]:
    alias = node.args.get("alias")
    if alias is None:
        return None, []
    only(alias, "this", "columns")
    renamed = [column.name for column in alias.args.get("columns") or ()]
    return (alias.this.name if alias.args.get("this") is not None else None), renamed


def _columns(
    relation: Relation, label: str, qualifier: str | None, renamed: Sequence[str]
) -> list[ScopeColumn]:
    if renamed and len(renamed) != len(relation.columns):
        raise refuse("an alias has a wrong number of columns")
    names: Sequence[str | None] = renamed or [column.name for column in relation.columns]
    found = []
    for i, (name, column) in enumerate(zip(names, relation.columns, strict=True)):
        if name is None:
            raise refuse("a column without a name in a subquery runs on Spark only")
        term = Term(f"{label}.c{i}", column.type, name, declared=column.declared)
        found.append(ScopeColumn(qualifier, name, term))
    return found
