"""Rows as data of Arrow, pandas and polars: what a query and a scan have in common."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strandline.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["BATCH_ROWS", "Tabular", "check_limit"]

BATCH_ROWS = 65_536
"""So many rows a batch has at most, unless the caller says otherwise."""
SHOWN_ROWS = 10
"""So many rows a notebook shows."""


class Tabular(ABC):
    """Rows that others can take as Arrow data. Unsigned types are unsigned in it, times are in UTC. Whatever
    knows Arrow's PyCapsule interface (``__arrow_c_stream__``: pyarrow, polars, DuckDB, pandas) takes it as it
    is."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns with their types."""

    @abstractmethod
    def to_reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches, of which only some are in memory at a time. One thread
        reads it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.schema.names)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. It has the same types when it is empty."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame. Whole numbers stay such where a column has NULLs: it has one
        of pandas' nullable types then."""
        pandas = _needed("pandas")
        table = self.to_arrow()
        nullable = {
            field.type: getattr(pandas, _NULLABLE[str(field.type)])()
            for field, column in zip(table.schema, table.columns, strict=True)
            if str(field.type) in _NULLABLE and column.null_count
        }
        frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars DataFrame."""
        frame: pl.DataFrame = _needed("polars").from_arrow(self.to_arrow())
        return frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as plain tuples, of which only some are in memory at a time."""

    @abstractmethod
    def rows(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows as plain tuples, or the first ``limit`` of them."""

    def _shown(self) -> str:
        """Return the first rows as a table of HTML."""
        rows = self.rows(SHOWN_ROWS + 1)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_text(value))}</td>' for value in row)}</tr>"
            for row in rows[:SHOWN_ROWS]
        )
        more = "<p>and more rows</p>" if len(rows) > SHOWN_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


_NULLABLE = {
    f"{sign.lower()}int{bits}": f"{sign}Int{bits}Dtype" for sign in ("", "U") for bits in (8, 16, 32, 64)
}


def check_limit(limit: int) -> None:
    """Refuse what is no number of rows to be given at most."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise InvalidArgument(f"{limit!r} is no number of rows", "Give a number from 0 on, or None for all.")


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)


def _needed(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise Unavailable(
            f"the package {package} is not installed, which this answer is made with",
            f"Install it: pip install {package}.",
        ) from None
