"""What ``sql()`` answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from strandline.errors import PreconditionFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


class Result:
    """The outcome of the last statement of a text: rows of a query, or the step of a commit.

    Rows that were found in this process are here already; those of a query on Spark are computed by ``collect()``, or by whatever is
    done with ``df``. ``step`` is the commit's step (None if nothing was changed), ``operation_id`` that of a BACKUP or RESTORE."""

    def __init__(
        self,
        columns: Sequence[str] = (),
        rows: Sequence[tuple[Any, ...]] | None = None,
        frame: Callable[[], DataFrame] | None = None,
        *,
        step: int | None = None,
        rows_changed: int | None = None,
        operation_id: str | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._rows = rows
        self._frame = frame
        self._df: DataFrame | None = None
        self.step = step
        self.rows_changed = rows_changed
        self.operation_id = operation_id

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns if self._rows is not None or self._frame is None else tuple(self.df.columns)

    @property
    def df(self) -> DataFrame:
        """The rows as a Spark DataFrame."""
        if self._df is None:
            if self._frame is None:
                raise PreconditionFailed("this statement has no rows to make a DataFrame of", "Ask for .df of a SELECT.")
            self._df = self._frame()
        return self._df

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as plain tuples."""
        if self._rows is not None:
            return list(self._rows)
        if self._frame is None:
            return []
        from strandline.storage.spark.failures import spark_errors

        with spark_errors():
            return [tuple(row) for row in self.df.collect()]

    def collect(self) -> list[Row]:
        """The rows as Spark gives them."""
        from pyspark.sql import Row

        if self._rows is None and self._frame is not None:
            from strandline.storage.spark.failures import spark_errors

            with spark_errors():
                return self.df.collect()
        make = Row(*self._columns)
        return [make(*row) for row in self._rows or ()]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in (("step", self.step), ("operation_id", self.operation_id)) if value is not None]
        if self._rows is not None and self._columns:
            parts.append(f"rows={len(self._rows)}")
        return f"Result({', '.join(parts)})"
