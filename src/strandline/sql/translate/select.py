"""SELECT: the rows of FROM and WHERE, groups, and the result with its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.sql.translate.aggregates import aggregate, is_aggregate, window
from strandline.sql.translate.compiler import Expressions, only
from strandline.sql.translate.order import limit_text, order_text, ordinal
from strandline.sql.translate.relations import Ctes, FromCompiler, compile_from
from strandline.sql.translate.terms import OutColumn, Relation, Scope, Term
from strandline.sql.translate.types import duckdb_type, is_float, refuse

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["SelectCompiler", "by_output"]

_SELECT = (
    *("expressions", "from_", "from", "joins", "where", "group", "having", "distinct", "order", "limit"),
    *("offset", "with_", "with", "kind"),
)


def by_output(columns: Sequence[OutColumn], label: str) -> Callable[[exp.Expr], Term]:
    """Return a function that finds the term of an item in ORDER BY among the columns of a result."""

    def find(node: exp.Expr) -> Term:
        from sqlglot import exp

        number = ordinal(node)
        if number is not None:
            if not 1 <= number <= len(columns):
                raise refuse("a position in ORDER BY is not in the result")
            return Term(f"{label}.c{number - 1}", columns[number - 1].type)
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.table:
            found = [i for i, c in enumerate(columns) if c.name and c.name.lower() == node.name.lower()]
            if len(found) == 1:
                return Term(f"{label}.c{found[0]}", columns[found[0]].type)
        raise refuse("ORDER BY of an expression here runs on Spark only")

    return find


class SelectCompiler:
    """Compiles one SELECT, in three steps: the rows of FROM and WHERE, groups, and the result."""

    def __init__(self, queries: FromCompiler, node: exp.Expr, ctes: Ctes, outer: Scope | None) -> None:
        only(node, *_SELECT)
        if node.args.get("kind"):
            raise refuse("SELECT of this kind runs on Spark only")
        self._queries, self._node, self._outer = queries, node, outer
        self._from, self._scope, self._sources = compile_from(queries, node, ctes, outer)
        self._base = Expressions(self._scope, queries, self._refuse_window)
        self._where = self._compile_where()
        self._label = ""
        self._groups: dict[str, tuple[str, Term]] = {}
        self._aggregates: dict[str, tuple[str, Term]] = {}

    def _compile_where(self) -> str:
        where = self._node.args.get("where")
        if where is None:
            return ""
        text = self._base.boolean(where.this).sql
        for source in self._sources:
            source.where.append(where.this)
        return f" WHERE {text}"

    def _refuse_window(self, node: exp.Expr) -> Term | None:
        from sqlglot import exp

        if isinstance(node, exp.Window):
            raise refuse("a window function here runs on Spark only")
        if is_aggregate(node):
            raise refuse("an aggregate function here runs on Spark only")
        return None

    def rows(self) -> str:
        """Return a query whose result is the constant 1 for each row before grouping."""
        from sqlglot import exp

        for item in self._node.expressions:
            if not isinstance(item, exp.Star):
                self._base.term(item.this if isinstance(item, exp.Alias) else item)
        return f"SELECT 1{self._from}{self._where}"

    def relation(self) -> Relation:
        """Compile the whole SELECT."""
        node = self._node
        parts = [*node.expressions, *(node.args[n] for n in ("having", "order") if node.args.get(n))]
        grouped = node.args.get("group") is not None or any(map(_has_aggregate, parts))
        if grouped:
            compiler, text = self._grouped()
        else:
            if node.args.get("having") is not None:
                raise refuse("HAVING without groups runs on Spark only")
            compiler = Expressions(self._scope, self._queries, self._window)
            text = lambda: f"{self._from}{self._where}"  # noqa: E731
        items = self._items(compiler)
        return self._finish(compiler, items, text)

    def _window(self, node: exp.Expr) -> Term | None:
        from sqlglot import exp

        if isinstance(node, exp.Window):
            return window(self._base, node)
        return None

    def _items(self, compiler: Expressions) -> list[tuple[str | None, Term]]:
        from sqlglot import exp

        found: list[tuple[str | None, Term]] = []
        for item in self._node.expressions:
            if isinstance(item, exp.Alias):
                only(item, "this", "alias")
                found.append((item.alias, compiler.term(item.this)))
            elif isinstance(item, exp.Star) or (
                isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            ):
                only(item, "this", "table")
                if isinstance(item, exp.Column):
                    only(item.this)
                if compiler.scope is not self._scope or self._label:
                    raise refuse("* with groups runs on Spark only")
                columns = self._scope.expand(item.table or None if isinstance(item, exp.Column) else None)
                found += [(column.name, column.term) for column in columns]
            else:
                term = compiler.term(item)
                inner = item.unnest() if isinstance(item, exp.Paren) else item
                # Spark gives a plain cast of a column the name of the column.
                is_cast = isinstance(inner, (exp.Cast, exp.TryCast)) and isinstance(inner.this, exp.Column)
                found.append((inner.this.name if is_cast else term.name, term))
        if any(term.is_outer for _, term in found):
            raise refuse("a column of an outer query runs on Spark only")
        return found

    # --- groups -------------------------------------------------------------------------------------------

    def _grouped(self) -> tuple[Expressions, Callable[[], str]]:
        self._label = self._queries.fresh()
        group = self._node.args.get("group")
        if group is not None:
            only(group, "expressions")
            for node in group.expressions:
                self._add_group(node)
        compiler = Expressions(Scope((), self._outer), self._queries, self._of_group)
        having = self._node.args.get("having")
        condition = "" if having is None else f" WHERE {self._having(compiler, having.this)}"

        def text() -> str:
            made = [*self._groups.values(), *self._aggregates.values()]
            items = ", ".join(f"{term.sql} AS {name}" for name, term in made) or "count(*) AS a0"
            by = (
                f" GROUP BY {', '.join(str(i + 1) for i in range(len(self._groups)))}" if self._groups else ""
            )
            return f" FROM (SELECT {items}{self._from}{self._where}{by}) AS {self._label}{condition}"

        return compiler, text

    def _having(self, compiler: Expressions, node: exp.Expr) -> str:
        """Return the condition of HAVING. Its names may be aliases of the result."""
        names = self._aliases()
        for column in _columns_of(node):
            if not column.table and column.name.lower() in names and self._scope.matches(column.name, None):
                raise refuse(f"the name {column.name} in HAVING is ambiguous")
        compiler = Expressions(compiler.scope, self._queries, lambda n: self._alias_or_group(n, names))
        return compiler.boolean(node).sql

    def _aliases(self) -> dict[str, exp.Expr]:
        from sqlglot import exp

        return {
            item.alias.lower(): item.this for item in self._node.expressions if isinstance(item, exp.Alias)
        }

    def _alias_or_group(self, node: exp.Expr, names: Mapping[str, exp.Expr]) -> Term | None:
        from sqlglot import exp

        if isinstance(node, exp.Column) and not node.table and node.name.lower() in names:
            return Expressions(Scope((), self._outer), self._queries, self._of_group).term(
                names[node.name.lower()]
            )
        return self._of_group(node)

    def _add_group(self, node: exp.Expr) -> None:
        from sqlglot import exp

        number = ordinal(node)
        if number is not None:
            if not 1 <= number <= len(self._node.expressions):
                raise refuse("a position in GROUP BY is not in the result")
            item = self._node.expressions[number - 1]
            node = item.this if isinstance(item, exp.Alias) else item
        elif isinstance(node, exp.Column) and not node.table:
            aliased = self._aliases().get(node.name.lower())
            if aliased is not None and not self._scope.matches(node.name, None):
                node = aliased
        term = self._base.term(node)
        if term.is_literal or term.is_outer or term.type == "void":
            raise refuse("GROUP BY of a constant runs on Spark only")
        if term.sql not in self._groups:
            shown = term
            if is_float(term.type):
                shown = replace(term, sql=f"({term.sql} + CAST(0 AS {duckdb_type(term.type)}))")
            self._groups[term.sql] = f"g{len(self._groups)}", shown

    def _of_group(self, node: exp.Expr) -> Term | None:
        """Return the term of a node that is an aggregate or a grouping expression; None for another node."""
        from sqlglot import exp

        if isinstance(node, (exp.Query, exp.Subquery, exp.Exists)):
            raise refuse("a subquery with groups runs on Spark only")
        if isinstance(node, exp.Window):
            raise refuse("a window function with groups runs on Spark only")
        if is_aggregate(node):
            term = aggregate(self._base, node)
            if term.is_outer:
                raise refuse("a column of an outer query runs on Spark only")
            name, _ = self._aggregates.setdefault(term.sql, (f"a{len(self._aggregates)}", term))
            return replace(term, sql=f"{self._label}.{name}")
        if _has_aggregate(node) or isinstance(node, (exp.Literal, exp.Null, exp.Boolean)):
            return None
        term = self._base.term(node)
        if (found := self._groups.get(term.sql)) is not None:
            return replace(term, sql=f"{self._label}.{found[0]}")
        if isinstance(node, exp.Column):
            raise refuse(f"{node.name} is neither grouped nor aggregated")
        return None

    # --- the result ---------------------------------------------------------------------------------------

    def _finish(
        self, compiler: Expressions, items: list[tuple[str | None, Term]], text: Callable[[], str]
    ) -> Relation:
        node = self._node
        columns = [OutColumn(name, term.type, term.declared) for name, term in items]
        order, distinct = node.args.get("order"), node.args.get("distinct")
        if distinct is not None:
            only(distinct)
        shown = ", ".join(
            f"{_normal(term) if distinct is not None else term.sql} AS c{i}"
            for i, (_, term) in enumerate(items)
        )
        limit = limit_text(node)
        if distinct is not None:
            sql = f"SELECT DISTINCT {shown}{text()}"
            if order is None and not limit:
                return Relation(sql, columns)
            label = self._queries.fresh()
            ordered = "" if order is None else " " + order_text(order, by_output(columns, label))
            return Relation(f"SELECT * FROM ({sql}) AS {label}{ordered} {limit}", columns)
        ordered = "" if order is None else " " + order_text(order, lambda n: self._order(compiler, items, n))
        return Relation(f"SELECT {shown}{text()}{ordered} {limit}".rstrip(), columns)

    def _order(self, compiler: Expressions, items: list[tuple[str | None, Term]], node: exp.Expr) -> Term:
        """Return the term of an item in ORDER BY: a position, a name of the result, or an expression."""
        from sqlglot import exp

        number = ordinal(node)
        if number is not None:
            if not 1 <= number <= len(items):
                raise refuse("a position in ORDER BY is not in the result")
            return items[number - 1][1]
        names: dict[str, set[str]] = {}
        for name, term in items:
            if name is not None:
                names.setdefault(name.lower(), set()).add(term.sql)
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.table:
            found = [term for name, term in items if name and name.lower() == node.name.lower()]
            if len({term.sql for term in found}) > 1:
                raise refuse(f"the name {node.name} in ORDER BY is ambiguous")
            if found:
                return found[0]
        else:
            for column in _columns_of(node):
                meant = self._scope.matches(column.name, column.table or None)
                if column.name.lower() in names and names[column.name.lower()] != {m.term.sql for m in meant}:
                    raise refuse(f"the name {column.name} in ORDER BY is ambiguous")
        term = compiler.term(node)
        if term.is_literal or term.type == "void":
            raise refuse("ORDER BY of a constant runs on Spark only")
        return term


def _normal(term: Term) -> str:
    return f"({term.sql} + CAST(0 AS {duckdb_type(term.type)}))" if is_float(term.type) else term.sql


def _has_aggregate(node: exp.Expr) -> bool:
    """Return whether an expression has an aggregate function outside of subqueries and windows."""
    from sqlglot import exp

    if isinstance(node, (exp.Query, exp.Window)):
        return False
    return is_aggregate(node) or any(_has_aggregate(child) for child in node.iter_expressions())


def _columns_of(node: exp.Expr) -> list[exp.Column]:
    from sqlglot import exp

    return [c for c in node.find_all(exp.Column) if isinstance(c.this, exp.Identifier)]
