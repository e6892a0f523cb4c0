"""Text -> statements: what a text asks for, without looking anything up, running anything or starting Spark."""

from strandline.sql.parser import parse
from strandline.sql.query import Query, parse_query, simple_select
from strandline.sql.references import TableRef
from strandline.sql.simple import OrderBy, SimpleSelect, sort_rows
from strandline.sql.tokens import quote

__all__ = ["OrderBy", "Query", "SimpleSelect", "TableRef", "parse", "parse_query", "quote", "simple_select", "sort_rows"]
