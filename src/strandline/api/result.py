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

    from strandline.tables.streaming_select import PlainScan
    from strandline.types import Type


LAST = datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp()


def moment(epoch: float | None) -> datetime | None:
    """Return a time of the catalog as a datetime; later times than year 9999 become that."""
    if epoch is None:
        return None
    return datetime.fromtimestamp(min(epoch, LAST), timezone.utc)


@dataclass(frozen=True, eq=False, repr=False)
class Result(Tabular):
    """The result of the last statement: rows of a query, or the step of a commit.

    Rows that were found in this process are in memory (``is_here``). Rows of a query on Spark are computed by
    ``collect()`` or by uses of ``df``. Iteration keeps only a part of the rows in memory. Columns of one
    table, with an optional condition and limit, are streamed without Spark.

    Times are aware datetimes in UTC, independent of the time zones of the machine and of the Spark session. A
    TIMESTAMP_NTZ of a query stays naive.

    ``step`` is the step of the commit (None if nothing was changed), ``rows_changed`` the number of changed
    rows, and ``operation_id`` the id of a BACKUP or RESTORE. ``warnings`` describe likely mistakes.
    ``names``, ``here``, ``frame``, ``types``, ``plain`` and ``guard`` are internal: use ``columns``,
    ``rows()``, ``df`` and the Arrow methods.
    """

    names: Sequence[str] = ()
    here: Sequence[tuple[Any, ...]] | None = None
    frame: Callable[[], DataFrame] | None = None
    step: int | None = field(default=None, kw_only=True)
    rows_changed: int | None = field(default=None, kw_only=True)
    operation_id: str | None = field(default=None, kw_only=True)
    warnings: Sequence[str] = field(default=(), kw_only=True)
    types: Sequence[Type] | None = field(default=None, kw_only=True)
    plain: PlainScan | None = field(default=None, kw_only=True)
    guard: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, kw_only=True)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns; empty for a statement without rows."""
        return tuple(self.names if self.is_here or self.plain is not None else self.df.columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns with their Arrow types."""
        if self.plain is not None:
            return self.plain.schema
        return self._table.schema if self.is_here else self._batches.schema

    def to_reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches for one thread, with bounded memory."""
        from strandline.api.result_tables import WholeTable, reader_of

        source = WholeTable(self._table) if self.is_here else self.plain or self._batches
        return reader_of(source, batch_rows, self.guard)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. The types do not depend on the rows."""
        if self.is_here:
            return self._table
        with self.guard():
            return super().to_arrow() if self.plain is not None else self._batches.whole()

    @property
    def _table(self) -> pa.Table:
        from strandline.api.result_tables import table_of

        if not self.names:
            raise PreconditionFailed("this statement has no rows", "Use the result of a SELECT or a SHOW.")
        return table_of(self.names, self.here or (), self.types)

    @cached_property
    def _batches(self) -> Batches:
        return batches(self.df)

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a Spark DataFrame. Its own ``collect()`` returns naive datetimes in local time."""
        if self.frame is None:
            raise PreconditionFailed("this statement has no rows for a DataFrame", "Use .df of a SELECT.")
        return self.frame()

    @property
    def is_here(self) -> bool:
        """Whether the rows are in memory already."""
        return self.frame is None or self.here is not None

    def rows(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows as plain tuples. With ``limit``, compute and return only the first ones."""
        if limit is not None:
            check_limit(limit)
        if self.is_here:
            return list((self.here or ())[:limit])
        if self.plain is not None:
            return list(itertools.islice(self, limit))
        return [tuple(row) for row in self._collector.rows(limit)]

    def collect(self) -> list[Row]:
        """Return the rows as Spark ``Row`` objects."""
        return as_rows(self.names, self.here or ()) if self.is_here else self._collector.rows()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self.is_here:
            yield from self.here or ()
        elif self.plain is not None:
            from strandline.api.result_tables import guard_each, rows_of

            yield from rows_of(guard_each(self.plain, self.guard))
        else:
            yield from map(tuple, self._collector)

    @cached_property
    def _collector(self) -> Collector:
        return collector(self.df)

    def __repr__(self) -> str:
        told = ("step", self.step), ("rows_changed", self.rows_changed), ("operation_id", self.operation_id)
        parts = [f"{name}={value!r}" for name, value in told if value is not None]
        if self.columns:
            parts.append(f"columns={', '.join(self.columns)}")
        if self.here is not None and self.names:
            parts.append(f"rows={len(self.here)}")
        return f"<Result {' '.join(parts) or 'done'}>"

    def _repr_html_(self) -> str:
        return html.escape(repr(self)) if self.frame is None and not self.names else self._to_html()
