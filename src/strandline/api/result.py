"""What ``sql()`` answers."""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from strandline.api.tabular import BATCH_ROWS, Tabular, check_limit
from strandline.errors import PreconditionFailed
from strandline.storage.frames import Batches, Collector, as_rows, batches, collector

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

    from strandline.tables.plain import PlainScan
    from strandline.types import Type


LAST = datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp()


def moment(epoch: float | None) -> datetime | None:
    """Return a time of the catalog as a value of a row; the last one there is for what never comes."""
    if epoch is None:
        return None
    return datetime.fromtimestamp(min(epoch, LAST), timezone.utc)


@dataclass(frozen=True, eq=False, repr=False)
class Result(Tabular):
    """The outcome of the last statement of a text: rows of a query, or the step of a commit.

    Rows that were found in this process are here already (``is_here``); those of a query on Spark are
    computed by ``collect()``, or by whatever is done with ``df``. To iterate over them holds only a part of
    them in memory at a time. Times in them are aware datetimes in UTC, whichever zone the machine or the
    Spark session is in; a TIMESTAMP_NTZ of a query stays naive. ``step`` is the commit's step (None if
    nothing was changed), ``rows_changed`` how many rows it changed, ``operation_id`` that of a BACKUP or
    RESTORE, ``warnings`` sentences about what was done and may not be what was meant. ``names``, ``here``,
    ``frame``, ``types``, ``plain`` and ``guard`` are what it is made of; ask for ``columns``, ``rows()``,
    ``df`` and Arrow data instead, which streams through this process, without Spark, if the query is a plain
    one: columns of one table, perhaps with a condition and a limit."""

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
        """The names of the columns; none for a statement without rows."""
        return tuple(self.names if self.is_here or self.plain is not None else self.df.columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns with Arrow's types of them."""
        if self.plain is not None:
            return self.plain.schema
        return self._table.schema if self.is_here else self._batches.schema

    def to_reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches, of which only some are in memory at a time. One thread
        reads it."""
        from strandline.api.batches import WholeTable, reader_of

        source = WholeTable(self._table) if self.is_here else self.plain or self._batches
        return reader_of(source, batch_rows, self.guard)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. It has the same types when it is empty."""
        if self.is_here:
            return self._table
        with self.guard():
            return super().to_arrow() if self.plain is not None else self._batches.whole()

    @property
    def _table(self) -> pa.Table:
        from strandline.api.batches import table_of

        if not self.names:
            raise PreconditionFailed("this statement has no rows", "Ask for the rows of a SELECT or a SHOW.")
        return table_of(self.names, self.here or (), self.types)

    @cached_property
    def _batches(self) -> Batches:
        return batches(self.df)

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a Spark DataFrame. What its own ``collect()`` makes of times is PySpark's way: naive
        ones in local time."""
        if self.frame is None:
            raise PreconditionFailed(
                "this statement has no rows to make a DataFrame of", "Ask for .df of a SELECT."
            )
        return self.frame()

    @property
    def is_here(self) -> bool:
        """Whether the rows are in this process already."""
        return self.frame is None or self.here is not None

    def rows(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows as plain tuples; at most the first ``limit`` of them, and then no more than those
        are computed."""
        if limit is not None:
            check_limit(limit)
        if self.is_here:
            return list((self.here or ())[:limit])
        if self.plain is not None:
            return list(itertools.islice(self, limit))
        return [tuple(row) for row in self._collector.rows(limit)]

    def collect(self) -> list[Row]:
        """Return the rows as Spark's ``Row``."""
        return as_rows(self.names, self.here or ()) if self.is_here else self._collector.rows()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self.is_here:
            yield from self.here or ()
        elif self.plain is not None:
            from strandline.api.batches import guarded, rows_of

            yield from rows_of(guarded(self.plain, self.guard))
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
        return html.escape(repr(self)) if self.frame is None and not self.names else self._shown()
