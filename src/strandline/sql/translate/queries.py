"""Queries: set operations, common table expressions and subqueries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.sql.references import TableRef
from strandline.sql.translate import conditions, expressions, functions
from strandline.sql.translate.compiler import Rule, only
from strandline.sql.translate.order import limit_text, order_text
from strandline.sql.translate.relations import Ctes, QuerySource, TableColumns
from strandline.sql.translate.select import SelectCompiler, by_output
from strandline.sql.translate.terms import OutColumn, Relation, Scope, Term, convert
from strandline.sql.translate.types import common_type, duckdb_type, is_float, refuse

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["QueryCompiler"]


_RULES: Mapping[str, Rule] = {**expressions.RULES, **conditions.RULES, **functions.RULES}


class QueryCompiler:
    """Compiles the queries of one statement."""

    rules: Mapping[str, Rule] = _RULES

    def __init__(self, refs: Mapping[int, tuple[int, TableRef, TableColumns]]) -> None:
        self.refs = refs
        """Index, reference and columns of each table, by the offset of its name in the text.

        The index is the table's place in ``Query.tables``.
        """
        self.sources: dict[int, QuerySource] = {}
        self.ctes: list[str] = []
        """The text of each common table expression, for the WITH clause of the statement."""
        self._count = 0

    def fresh(self) -> str:
        """Return a name that is not used yet."""
        self._count += 1
        return f"r{self._count}"

    def statement(self, node: exp.Expr) -> Relation:
        """Compile the whole statement."""
        found = self.query(node, {}, None)
        head = f"WITH {', '.join(self.ctes)} " if self.ctes else ""
        return Relation(head + found.sql, found.columns)

    def query(self, node: exp.Expr, ctes: Ctes, outer: Scope | None) -> Relation:
        """Compile a query: a SELECT, a set operation, or one of them in parentheses."""
        from sqlglot import exp

        if isinstance(node, exp.Subquery):
            only(node, "this")
            return self.query(node.this, ctes, outer)
        ctes = self._with(node, ctes)
        if isinstance(node, exp.Select):
            return SelectCompiler(self, node, ctes, outer).relation()
        if isinstance(node, (exp.Union, exp.Intersect, exp.Except)):
            return self._set_operation(node, ctes)
        raise refuse(f"{type(node).__name__.upper()} runs on Spark only")

    def _with(self, node: exp.Expr, ctes: Ctes) -> Ctes:
        with_ = node.args.get("with_") or node.args.get("with")
        if with_ is None:
            return ctes
        only(with_, "expressions")
        found = dict(ctes)
        for cte in with_.expressions:
            only(cte, "this", "alias")
            only(cte.args["alias"], "this", "columns")
            relation, name = self.query(cte.this, found, None), self.fresh()
            renamed = [column.name for column in cte.args["alias"].args.get("columns") or ()]
            if renamed:
                if len(renamed) != len(relation.columns):
                    raise refuse("an alias has a wrong number of columns")
                named = [replace(c, name=n) for c, n in zip(relation.columns, renamed, strict=True)]
                relation = Relation(relation.sql, named)
            # DuckDB can read the rows of a table only once, so it must keep the result.
            self.ctes.append(f"{name} AS MATERIALIZED ({relation.sql})")
            found[cte.alias.lower()] = name, relation
        return found

    # --- set operations -----------------------------------------------------------------------------------

    def _set_operation(self, node: exp.Expr, ctes: Ctes) -> Relation:
        only(
            node, "this", "expression", "distinct", "order", "limit", "offset", "with_", "with"
        )  # BY NAME and other forms are refused.
        left, right = self.query(node.this, ctes, None), self.query(node.args["expression"], ctes, None)
        if len(left.columns) != len(right.columns):
            raise refuse("the queries have different numbers of columns")
        columns = []
        for one, other in zip(left.columns, right.columns, strict=True):
            if one.declared != other.declared and any(
                c.declared is not None and c.declared.name.startswith("Uint") for c in (one, other)
            ):
                raise refuse("a set operation of unsigned and other numbers runs on Spark only")
            type_ = common_type(one.type, other.type)
            if "string" in (one.type, other.type) and one.type != other.type:
                raise refuse("a set operation of text and other types runs on Spark only")
            columns.append(OutColumn(one.name, type_, one.declared if one.type == type_ else None))
        distinct = bool(node.args.get("distinct"))
        word = type(node).__name__.upper() + ("" if distinct else " ALL")
        sides = [self._converted(side, columns, normal=word != "UNION ALL") for side in (left, right)]
        sql = f"({sides[0]}) {word} ({sides[1]})"
        if node.args.get("order") is None and node.args.get("limit") is None and not node.args.get("offset"):
            return Relation(sql, columns)
        label = self.fresh()
        by_name = by_output(columns, label)
        order = node.args.get("order")
        ordered = "" if order is None else " " + order_text(order, by_name)
        return Relation(f"SELECT * FROM ({sql}) AS {label}{ordered} {limit_text(node)}", columns)

    def _converted(self, side: Relation, columns: Sequence[OutColumn], *, normal: bool) -> str:
        label = self.fresh()
        items = []
        for i, (given, wanted) in enumerate(zip(side.columns, columns, strict=True)):
            sql = convert(Term(f"{label}.c{i}", given.type), wanted.type).sql
            if normal and is_float(wanted.type):
                sql = f"({sql} + CAST(0 AS {duckdb_type(wanted.type)}))"
            items.append(f"{sql} AS c{i}")
        return f"SELECT {', '.join(items)} FROM ({side.sql}) AS {label}"

    # --- subqueries inside expressions --------------------------------------------------------------------

    def scalar(self, node: exp.Expr, scope: Scope) -> Term:
        """Return the term of a subquery that gives a single value."""
        found = self.query(node, scope.ctes, None)
        if len(found.columns) != 1:
            raise refuse("a subquery of several columns runs on Spark only")
        return Term(f"({found.sql})", found.columns[0].type, None)

    def exists(self, node: exp.Expr, scope: Scope) -> Term:
        """Return the term of EXISTS. The query may name columns of the outer query."""
        from sqlglot import exp

        select = node.this if isinstance(node, exp.Subquery) else node
        if not isinstance(select, exp.Select) or any(
            select.args.get(name) for name in ("group", "having", "limit", "offset", "distinct")
        ):
            raise refuse("EXISTS of this query runs on Spark only")
        inner = SelectCompiler(self, select, scope.ctes, scope)
        return Term(f"EXISTS ({inner.rows()})", "boolean", None)

    def member(self, left: Term, node: exp.Expr, scope: Scope) -> Term:
        """Return the term of ``left IN (query)``."""
        found = self.query(node, scope.ctes, None)
        if len(found.columns) != 1:
            raise refuse("IN with several columns runs on Spark only")
        type_ = common_type(left.type, found.columns[0].type)
        label = self.fresh()
        inner = convert(Term(f"{label}.c0", found.columns[0].type), type_).sql
        sql = f"({convert(left, type_).sql} IN (SELECT {inner} FROM ({found.sql}) AS {label}))"
        return Term(sql, "boolean", None, is_outer=left.is_outer)
