"""Translates queries from Spark's dialect to DuckDB's, for the part of SQL where both agree.

``translate`` is the only entry point. It walks sqlglot's tree. For each form, function and type that it
supports, a rule says how DuckDB gets the same rows, types and column names as Spark in ANSI mode at UTC.
Everything else is refused with a reason, and the query runs on Spark. ``tests/tables/test_engines_agree.py``
compares the results of both engines.

Names of the query are not used in DuckDB's text. Tables are ``t0``, ``t1`` and so on, in the order of the
query's references. Columns of tables, subqueries and the result are ``c0``, ``c1`` and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.sql.translate.queries import QueryCompiler
from strandline.sql.translate.relations import QuerySource, TableColumns
from strandline.sql.translate.terms import OutColumn
from strandline.sql.translate.types import NotTranslated

if TYPE_CHECKING:
    from strandline.sql.query import Query

__all__ = ["OutColumn", "QuerySource", "Refused", "TableColumns", "Translated", "translate"]


@dataclass(frozen=True)
class Translated:
    """A query for DuckDB. ``sources`` are the tables that it reads."""

    sql: str
    columns: Sequence[OutColumn]
    sources: Sequence[QuerySource]


@dataclass(frozen=True)
class Refused:
    """A query that only Spark can run. ``reason`` is a clause that says why."""

    reason: str


def translate(query: Query, tables: Sequence[TableColumns], *, named: bool = True) -> Translated | Refused:
    """Translate a query to DuckDB's dialect.

    Args:
        tables: the columns of each table in ``query.tables``, in this order.
        named: whether the names of the result's columns must be those that Spark gives.
    """
    if query.files:
        return Refused("a source of Spark's own runs on Spark only")
    if query.tree is None or "try_cast" in query.names:
        return Refused("this form runs on Spark only")
    refs = {
        ref.start: (place, ref, columns)
        for place, (ref, columns) in enumerate(zip(query.tables, tables, strict=True))
    }
    compiler = QueryCompiler(refs)
    try:
        found = compiler.statement(query.tree())
    except NotTranslated as refused:
        return Refused(str(refused))
    except RecursionError:
        return Refused("a query that is nested this deeply runs on Spark only")
    if named and any(column.name is None for column in found.columns):
        return Refused("an expression has no alias, and only Spark knows its name")
    return Translated(found.sql, found.columns, [compiler.sources[i] for i in sorted(compiler.sources)])
