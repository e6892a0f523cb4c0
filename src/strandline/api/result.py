"""The result of ``Database.sql``."""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from strandline.api.conversions import BATCH_ROWS, Tabular, check_limit
from strandline.errors import PreconditionFailed
from strandline.storage.frames import Batches, Collector, as_rows, batches, collector

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

    from strandline.api.result_tables import Tables
    from strandline.storage.rows import RowCounts
    from strandline.tables.process_query import QueryRows
    from strandline.tables.streaming_select import PlainScan
    from strandline.types import Type


LAST = datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp()


def moment(epoch: float | None) -> datetime | None:
    """Return a time of the catalog as a datetime. Times after the year 9999 become the end of that year."""
    if epoch is None:
        return None
    return datetime.fromtimestamp(min(epoch, LAST), timezone.utc)


@dataclass(frozen=True, eq=False, repr=False)
class Result(Tabular):
    """The result of the last statement: rows of a query, or the step of a commit.

    Rows that were found in this process are in memory (``is_here``). Rows of a query on Spark are computed by
    ``collect()`` or by uses of ``df``. Iteration keeps only a part of the rows in memory. A query
    of columns of one table, with an optional condition and limit, is streamed without Spark.

    Times are aware datetimes in UTC, independent of the time zones of the machine and of the Spark session. A
    TIMESTAMP_NTZ of a query stays naive.

    Attributes:
        step: Step of the commit. None: nothing was changed.
        rows_changed: Number of changed rows.
        rows_inserted: Number of rows with new keys, summed over the statements of the commit.
        rows_updated: Number of rows whose keys were there before.
        rows_deleted: Number of erased rows. DELETE ON counts only keys that were there.
        operation_id: Id of the operation of a statement such as BACKUP or RESTORE.
        warnings: Descriptions of likely mistakes.
        names: Internal: use ``columns``.
        values: Internal: use ``rows()``, ``df`` and the Arrow methods.
        types: Internal: use ``schema``.
    """

    names: Sequence[str] = ()
    values: Sequence[tuple[Any, ...]] = ()
    step: int | None = field(default=None, kw_only=True)
    rows_changed: int | None = field(default=None, kw_only=True)
    rows_inserted: int | None = field(default=None, kw_only=True)
    rows_updated: int | None = field(default=None, kw_only=True)
    rows_deleted: int | None = field(default=None, kw_only=True)
    operation_id: str | None = field(default=None, kw_only=True)
    warnings: Sequence[str] = field(default=(), kw_only=True)
    types: Sequence[Type] | None = field(default=None, kw_only=True)
    _frame: Callable[[], DataFrame] | None = field(default=None, kw_only=True)
    _guard: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, kw_only=True)

    @staticmethod
    def of_change(step: int | None, changed: RowCounts) -> Result:
        """Return the result of a commit."""
        return Result(
            step=step,
            rows_changed=changed.changed,
            rows_inserted=changed.inserted,
            rows_updated=changed.updated,
            rows_deleted=changed.deleted,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns; empty for a statement without rows."""
        return tuple(self.names)

    @property
    def is_here(self) -> bool:
        """Whether the rows are in memory already."""
        return True

    @property
    def schema(self) -> pa.Schema:
        """The columns with their Arrow types."""
        return self._tables.schema

    def to_reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches for one thread, with bounded memory."""
        from strandline.api.result_tables import reader_of

        return reader_of(self._tables, batch_rows, self._guard)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. The types do not depend on the rows."""
        from strandline.api.result_tables import table_of

        if not self.names:
            raise PreconditionFailed("this statement has no rows", "Use the result of a SELECT or a SHOW.")
        return table_of(self.names, self.values, self.types)

    @property
    def _tables(self) -> Tables:
        from strandline.api.result_tables import WholeTable

        return WholeTable(self.to_arrow())

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a Spark DataFrame. Its own ``collect()`` returns naive datetimes in local time."""
        if self._frame is None:
            raise PreconditionFailed("this statement has no rows for a DataFrame", "Use .df of a SELECT.")
        return self._frame()

    def rows(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows as plain tuples. With ``limit``, compute and return only the first ones."""
        if limit is not None:
            check_limit(limit)
        return self._rows(limit)

    def _rows(self, limit: int | None) -> list[tuple[Any, ...]]:
        return list(self.values[:limit])

    def collect(self) -> list[Row]:
        """Return the rows as Spark ``Row`` objects."""
        return as_rows(self.names, self.values)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from self.values

    def __repr__(self) -> str:
        told = ("step", self.step), ("rows_changed", self.rows_changed), ("operation_id", self.operation_id)
        parts = [f"{name}={value!r}" for name, value in told if value is not None]
        if self.columns:
            parts.append(f"columns={', '.join(self.columns)}")
            if self.is_here:
                parts.append(f"rows={len(self.rows())}")
        return f"<Result {' '.join(parts) or 'done'}>"

    def _repr_html_(self) -> str:
        return self._to_html() if self.columns else html.escape(repr(self))


@dataclass(frozen=True, eq=False, repr=False)
class QueryResult(Result):
    """A result whose rows DuckDB has computed in this process."""

    found: QueryRows = field(kw_only=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.found.names)

    def to_arrow(self) -> pa.Table:
        return self.found.table

    @cached_property
    def _values(self) -> list[tuple[Any, ...]]:
        return self.found.values()

    def _rows(self, limit: int | None) -> list[tuple[Any, ...]]:
        return self._values[:limit]

    def collect(self) -> list[Row]:
        return as_rows(self.columns, self._values)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from self._values


class SparkResult(Result):
    """A result whose rows Spark computes."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.df.columns)

    @property
    def is_here(self) -> bool:
        return False

    def to_arrow(self) -> pa.Table:
        with self._guard():
            return self._batches.whole()

    @property
    def _tables(self) -> Tables:
        return self._batches

    @cached_property
    def _batches(self) -> Batches:
        return batches(self.df)

    @cached_property
    def _collector(self) -> Collector:
        return collector(self.df)

    def _rows(self, limit: int | None) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._collector.rows(limit)]

    def collect(self) -> list[Row]:
        return self._collector.rows()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from map(tuple, self._collector)


@dataclass(frozen=True, eq=False, repr=False)
class StreamedResult(SparkResult):
    """A result whose rows are streamed through the process. Spark is used for ``collect()`` and ``df``."""

    scan: PlainScan = field(kw_only=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def _tables(self) -> Tables:
        return self.scan

    def to_arrow(self) -> pa.Table:
        with self._guard():
            return self.to_reader().read_all()

    def _rows(self, limit: int | None) -> list[tuple[Any, ...]]:
        return list(itertools.islice(self, limit))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        from strandline.api.result_tables import guard_each, rows_of

        yield from rows_of(guard_each(self.scan, self._guard))
