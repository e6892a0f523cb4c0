"""Queries on the page of a SELECT: the same that ``POST /v1/sql`` allows, with their plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from strandline.api.execute import run_statement
from strandline.server.console.client import PageClient
from strandline.server.select import ResultLimits, check_query, read_rows, run_query
from strandline.sql import statements as st

ROWS = 200
"""Maximum number of rows that a page shows."""
BYTES = 4 * 1024 * 1024
"""Maximum size of these rows in memory."""
DEEPEST = 4
"""Deepest level of a plan that is indented."""


class QueryStep(NamedTuple):
    """A line of a query's plan."""

    level: int
    what: str
    name: str
    details: str


@dataclass(frozen=True, kw_only=True)
class QueryAnswer:
    """Rows of a query.

    Attributes:
        numeric: for each column, whether its values are numbers.
        is_cut: the query has more rows.
    """

    columns: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[Any]]
    is_cut: bool
    seconds: float


def explain(client: PageClient, sql: str) -> list[QueryStep]:
    """Return which engine answers a query, why, and how."""
    query = check_query(client.db, client.principal, sql, None).query
    steps = run_statement(client.db, st.Explain(query)).rows()
    return [QueryStep(min(level, DEEPEST), what, name, details) for level, what, name, details in steps]


def run(client: PageClient, sql: str) -> QueryAnswer:
    """Return the first rows of a query."""
    began = time.perf_counter()
    found = read_rows(run_query(client.db, client.principal, sql, None), ResultLimits(ROWS, BYTES))
    rows = [
        row for batch in found.batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
    ]
    return QueryAnswer(
        columns=found.schema.names,
        numeric=[_is_number(field.type) for field in found.schema],
        rows=rows,
        is_cut=found.truncated,
        seconds=time.perf_counter() - began,
    )


def _is_number(type_: pa.DataType) -> bool:
    is_number: bool = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    return is_number
