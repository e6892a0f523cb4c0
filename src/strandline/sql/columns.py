"""Finds columns in a query that do not exist, without waiting for Spark to start.

Only columns that certainly do not exist are reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.sql.query import Query

__all__ = ["missing_column"]

_OF_SPARK = frozenset(
    {"all", "current_catalog", "current_database", "current_date", "current_schema", "current_time"}
    | {"current_timestamp", "current_timezone", "current_user", "grouping__id", "localtimestamp", "now"}
    | {"session_user", "user", "_metadata"}
)
"""Words that look like columns but have another meaning in Spark."""


def missing_column(query: Query, columns: Sequence[Sequence[str]]) -> str | None:
    """Return the name of a column in a query that none of its tables has, or None.

    None is also returned if only Spark can decide: for nested queries, and for rows from other sources.

    Args:
        columns: the columns of each table in ``query.tables``, in this order.
    """
    from sqlglot import exp

    if query.tree is None:
        return None
    tree = query.tree()
    tables = list(tree.find_all(exp.Table))
    if (
        not isinstance(tree, exp.Select)
        or len(tables) != len(query.tables)
        or any(node is not tree for node in tree.find_all(exp.Query, exp.Subquery))
        or tree.find(exp.Lateral, exp.Lambda, exp.Kwarg, exp.Pivot, exp.Unnest, exp.Values, exp.With)
    ):
        return None
    known = [frozenset(name.lower() for name in each) for each in columns]
    anywhere = frozenset[str]().union(*known, _OF_SPARK, (e.alias.lower() for e in tree.find_all(exp.Alias)))
    for column in tree.find_all(exp.Column):
        name, qualifier = column.name.lower(), column.table.lower()
        if isinstance(column.this, exp.Star) or column.args.get("db") or isinstance(column.parent, exp.Dot):
            continue
        if not qualifier and name not in anywhere:
            return str(column.name)
        meant = [
            each
            for ref, each in zip(query.tables, known, strict=True)
            if qualifier and ref.qualifier.lower() == qualifier
        ]
        if len(meant) == 1 and qualifier not in anywhere and name not in meant[0] | _OF_SPARK:
            return f"{column.table}.{column.name}"
    return None
