"""``db.table(path).scan(...)``: rows of a table as Arrow data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from strandline.api.conversions import BATCH_ROWS, Tabular, check_limit
from strandline.api.result_tables import Tables, guard_each, reader_of, rows_of
from strandline.catalog.snapshots import Named
from strandline.errors import InvalidArgument
from strandline.sql.references import TableRef
from strandline.sql.syntax import Expression, parse_expression
from strandline.storage.frames import batches
from strandline.tables.read import scan_frame
from strandline.tables.snapshot import Reader
from strandline.tables.streaming_select import plain_scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.api.database import Database

__all__ = ["Scan", "scan"]

T = TypeVar("T")


class Scan(Tabular):
    """Selected columns and rows of a table. Thread-safe.

    A scan holds no rows: each call reads the table at that moment, from one snapshot. Rows are streamed
    through this process without Spark, in no particular order. Spark is used only if the process cannot
    evaluate the condition, or if it would have to filter too many rows.
    """

    def __init__(
        self, database: Database, table: TableRef, columns: Sequence[str] | None, where: Expression | None
    ) -> None:
        self._database = database
        self._table = table
        self._columns = columns
        self._where = where

    @property
    def schema(self) -> pa.Schema:
        """The columns with their Arrow types."""
        return self._plan().schema

    def to_reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the rows at this moment as a stream of batches for one thread, with bounded memory."""
        return reader_of(self._plan(), batch_rows, self._database._guard)

    @property
    def df(self) -> DataFrame:
        """The rows as a Spark DataFrame."""
        return self._look(lambda reader: scan_frame(reader, self._table, self._columns, self._where))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as plain tuples, with bounded memory."""
        yield from rows_of(guard_each(self._plan(), self._database._guard))

    def rows(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows as plain tuples; with ``limit``, at most this number of rows."""
        if limit is not None:
            check_limit(limit)
        return list(itertools.islice(self, limit))

    def __repr__(self) -> str:
        columns = "*" if self._columns is None else ", ".join(self._columns)
        where = "" if self._where is None else f" where {self._where.text}"
        return f"<Scan {columns} of {self._table.path}{where}>"

    def _repr_html_(self) -> str:
        return self._to_html()

    def _plan(self) -> Tables:
        def plan(reader: Reader) -> Tables:
            found = plain_scan(reader, self._table, self._columns, self._where)
            if found is not None:
                return found
            return batches(scan_frame(reader, self._table, self._columns, self._where))

        return self._look(plan)

    def _look(self, run: Callable[[Reader], T]) -> T:
        ref = self._table
        with self._database._guard():
            return self._database._transactions.read(run, [Named(ref.path, ref.index)] if ref.is_now else [])


def scan(
    database: Database, ref: TableRef, columns: Sequence[str] | None, where: str | None, params: Any
) -> Scan:
    """Return a scan of ``columns`` (None: all) of the rows that satisfy the condition ``where``."""
    with database._guard():
        if isinstance(columns, str) or not all(isinstance(name, str) for name in columns or ()):
            raise InvalidArgument("columns are a list of names", "Write columns=['k', 'v'].")
        condition = None if where is None else parse_expression(where, params)
        return Scan(database, ref, None if columns is None else tuple(columns), condition)
