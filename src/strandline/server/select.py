"""Queries of clients: which are allowed, and their results within limits.

A query runs on the machine of the service, with its rights. So only what is understood completely is allowed:

1. The text is one SELECT of Strandline's own parser: no other statement, also not EXPLAIN or SHOW.
2. All of its tables, in joins, subqueries and common table expressions, are tables of the warehouse that the
   client may use. Files and Spark's own tables, such as parquet.`/etc/x`, are refused.
3. ``sql/translate`` knows all of its parts. So functions of Spark that read files, run programs or call Java
   are refused, whether Spark or DuckDB runs the query.
4. It has no ``${``, which Spark replaces by variables of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.api.conversions import Tabular
from strandline.api.select import select
from strandline.errors import PermissionDenied, Unsupported
from strandline.json_values import plain
from strandline.server.auth import Principal
from strandline.server.scopes import require_collection
from strandline.sql import statements as st
from strandline.sql.parser import parse
from strandline.sql.tokens import NAME, WORD, Token, tokenize
from strandline.sql.translate import Refused, translate
from strandline.tables.read import tables_of_query
from strandline.tables.snapshot import resolve

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.api.result import Result
    from strandline.sql.query import Query
    from strandline.tables.snapshot import Reader

NO_CALLS = frozenset(
    {"IN", "AND", "OR", "NOT", "WHERE", "BETWEEN", "LIKE", "FROM", "SELECT", "ON", "BY", "AS"}
)
"""Words that do not call a function if a parenthesis follows."""
BATCH_ROWS = 1000


@dataclass(frozen=True)
class ResultLimits:
    """Limits of a result."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Rows:
    """Rows of a result within the limits. ``truncated``: the result has more rows."""

    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]
    truncated: bool

    def to_json(self) -> dict[str, Any]:
        """Return the rows for JSON."""
        names = self.schema.names
        rows: list[list[Any]] = []
        for batch in self.batches:
            columns = [column.to_pylist() for column in batch.columns]
            rows += [[plain(value) for value in row] for row in zip(*columns, strict=True)]
        columns_ = [{"name": name, "type": str(self.schema.field(i).type)} for i, name in enumerate(names)]
        return {"columns": columns_, "rows": rows, "truncated": self.truncated}

    def to_ipc(self) -> bytes:
        """Return the rows as an Arrow stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as writer:
            for batch in self.batches:
                writer.write_batch(batch)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def run_query(db: Database, principal: Principal, text: str, params: Any) -> Result:
    """Run a query; raise an error unless the client may run it."""
    statement = _parse(db, principal, text, params)
    with db._guard():
        return select(db, statement, lambda reader: _require_known(reader, statement.query))


def check_query(db: Database, principal: Principal, text: str, params: Any) -> st.Select:
    """Parse a query without running it; raise an error unless the client may run it."""
    statement = _parse(db, principal, text, params)
    with db._guard():
        db._transactions.read(
            lambda reader: _require_known(reader, statement.query), tables_of_query(statement.query)
        )
    return statement


def _parse(db: Database, principal: Principal, text: str, params: Any) -> st.Select:
    """Parse one SELECT; raise an error unless the client may use its tables."""
    statements = parse(text, params)
    if len(statements) != 1 or not isinstance(statements[0], st.Select):
        raise PermissionDenied(
            "the service runs one SELECT at a time, and no other statement",
            "Use the routes of the API, or the Python API, for everything else.",
        )
    query = statements[0].query
    if query.files or query.dotted is not None:
        raise PermissionDenied(
            "the service reads no files and no tables of Spark", "Name tables of the warehouse."
        )
    refuse_variables(text)
    principal.require_paths([ref.path for ref in query.tables])
    for ref in query.tables:
        if ref.backup is not None:
            require_collection(db, principal, ref.backup[0])
    return statements[0]


def refuse_variables(text: str) -> None:
    """Refuse a text in which Spark might replace variables, such as ``${env:PATH}``."""
    if "${" in text:
        raise PermissionDenied("the service replaces no variables", "Bind values as parameters.")


def calls_function(text: str) -> bool:
    """Return whether a text may call a function: a name is followed by a parenthesis."""
    tokens = tokenize(text)
    return any(_is_call(token, following) for token, following in pairwise(tokens))


def _is_call(token: Token, following: Token) -> bool:
    return following.key == "(" and (token.kind == NAME or (token.kind == WORD and token.key not in NO_CALLS))


def _require_known(reader: Reader, query: Query) -> None:
    """Raise UNSUPPORTED unless all parts of a query are known."""
    views = [resolve(reader, ref)[1] for ref in query.tables]
    translated = translate(query, [[(c.name, c.type) for c in view.info.schema.columns] for view in views])
    if isinstance(translated, Refused):
        raise Unsupported(
            f"the service does not run this query: {translated.reason}",
            "Run it with the Python API, on Spark.",
        )


def read_rows(found: Tabular, limits: ResultLimits) -> Rows:
    """Read the rows of a result up to the limits."""
    reader = found.to_reader(BATCH_ROWS)
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        left = limits.rows - rows
        if batch.num_rows > left:
            batches.append(batch.slice(0, left))
            return Rows(reader.schema, batches, True)
        size += batch.get_total_buffer_size()
        if size > limits.bytes and batches:
            return Rows(reader.schema, batches, True)
        batches.append(batch)
        rows += batch.num_rows
    return Rows(reader.schema, batches, False)
