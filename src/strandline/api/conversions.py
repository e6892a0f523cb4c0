"""The base class of results and scans: rows as Arrow, pandas and polars data."""

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
"""Default maximum number of rows in a batch."""
SHOWN_ROWS = 10
"""Number of rows shown in a notebook."""


class Tabular(ABC):
    """Rows that can be read as Arrow data.

    Unsigned types stay unsigned, times are in UTC. Libraries with Arrow's PyCapsule interface
    (``__arrow_c_stream__``: pyarrow, polars, DuckDB, pandas) accept the object itself.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns with their Arrow types."""

    @abstractmethod
    def to_reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches for one thread, with bounded memory."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.schema.names)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. The types do not depend on the rows."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame. Integer columns with NULLs get a nullable integer type."""
        pandas = _import_package("pandas")
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
        frame: pl.DataFrame = _import_package("polars").from_arrow(self.to_arrow())
        return frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as plain tuples, with bounded memory."""

    @abstractmethod
    def rows(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows as plain tuples; with ``limit``, the first ones."""

    def _to_html(self) -> str:
        """Return the first rows as an HTML table."""
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
    """Refuse an invalid maximum number of rows."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise InvalidArgument(
            f"{limit!r} is not a number of rows", "Give a number of at least 0, or None for all."
        )


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)


def _import_package(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise Unavailable(
            f"the package {package} is needed for this and not installed",
            f"Install it: pip install {package}.",
        ) from None
