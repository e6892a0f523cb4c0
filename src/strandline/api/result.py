"""What ``sql()`` answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from strandline.errors import PreconditionFailed
from strandline.storage.frames import Collector, as_rows, collector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The outcome of the last statement of a text: rows of a query, or the step of a commit.

    Rows that were found in this process are here already (``is_here``); those of a query on Spark are
    computed by ``collect()``, or by whatever is done with ``df``. To iterate over them holds only a part of
    them in memory at a time. Times in them are aware datetimes in UTC, whichever zone the machine or the
    Spark session is in; a TIMESTAMP_NTZ of a query stays naive. ``step`` is the commit's step (None if
    nothing was changed), ``rows_changed`` how many rows it changed, ``operation_id`` that of a BACKUP or
    RESTORE. ``names``, ``here`` and ``frame`` are what it is made of; ask for ``columns``, ``rows()`` and
    ``df`` instead."""

    names: Sequence[str] = ()
    here: Sequence[tuple[Any, ...]] | None = None
    frame: Callable[[], DataFrame] | None = None
    step: int | None = field(default=None, kw_only=True)
    rows_changed: int | None = field(default=None, kw_only=True)
    operation_id: str | None = field(default=None, kw_only=True)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns; none for a statement without rows."""
        return tuple(self.names if self.is_here else self.df.columns)

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
        if self.is_here:
            return list((self.here or ())[:limit])
        return [tuple(row) for row in self._collector.rows(limit)]

    def collect(self) -> list[Row]:
        """Return the rows as Spark's ``Row``."""
        return as_rows(self.names, self.here or ()) if self.is_here else self._collector.rows()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self.is_here:
            yield from self.here or ()
        else:
            yield from map(tuple, self._collector)

    @cached_property
    def _collector(self) -> Collector:
        return collector(self.df)

    def __repr__(self) -> str:
        parts = [
            f"{name}={value!r}"
            for name, value in (("step", self.step), ("operation_id", self.operation_id))
            if value is not None
        ]
        if self.here is not None and self.names:
            parts.append(f"rows={len(self.here)}")
        return f"Result({', '.join(parts)})"
