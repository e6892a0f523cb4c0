"""The text that Spark receives for an expression in a query."""

from __future__ import annotations

from strandline.sql.spark import edits_of, splice
from strandline.sql.syntax import Expression


def for_spark(expression: Expression) -> str:
    return splice(expression.text, edits_of(expression.tokens))
