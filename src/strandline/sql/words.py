"""Words that cannot be names in some places of a query."""

from __future__ import annotations

__all__ = ["CLAUSES", "NOT_COLUMNS", "NOT_IN_SIMPLE_WHERE"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CLAUSES = _words(
    """ANTI AS CLUSTER CROSS DISTRIBUTE EXCEPT FETCH FOR FROM FULL GROUP HAVING INNER INTERSECT JOIN LATERAL LEFT LIMIT MINUS NATURAL
    OFFSET ON ORDER OUTER PIVOT QUALIFY RIGHT SELECT SEMI SET SORT TABLESAMPLE UNION UNPIVOT USING WATERMARK WHERE WINDOW WITH"""
)
"""Words that go on with a query behind a table, and so are neither an alias nor the name of an index there."""

NOT_COLUMNS = CLAUSES | _words(
    """ALL AND ANY ARRAY BETWEEN CASE CAST CURRENT_CATALOG CURRENT_DATABASE CURRENT_DATE CURRENT_SCHEMA CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DISTINCT ELSE END EXISTS EXTRACT FALSE IN INTERVAL IS LIKE LOCALTIMESTAMP MAP NOT NULL OR RLIKE SESSION_USER SOME STRUCT
    THEN TRUE USER VALUES WHEN"""
)
"""Words that, without backticks, are or may be something else than a column at the start of an expression."""

NOT_IN_SIMPLE_WHERE = _words(
    "CLUSTER DISTRIBUTE EXCEPT FETCH GROUP HAVING INTERSECT LATERAL MINUS OFFSET QUALIFY SELECT SORT UNION VALUES WINDOW WITH |>"
)
"""Words that end a WHERE or start a subquery in it."""
