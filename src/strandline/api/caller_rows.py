"""Rows that a caller passes: data frames, Arrow data and dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import InvalidArgument
from strandline.model import TableSchema
from strandline.storage.rows import Mode, Outcome
from strandline.tables import write
from strandline.tables.snapshot import TableView
from strandline.tables.transaction import Transaction
from strandline.types import Type
from strandline.types.inference import type_of_arrow, type_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CallerFrame", "columns_of_table", "read_caller_rows"]


class CallerFrame:
    """A DataFrame that is evaluated only once, because its source may change.

    If the commit is retried, the rows are read from the files of the first try.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._rows: DataFrame | pa.Table = frame
        self._written: tuple[TableSchema, tuple[str, ...], Outcome] | None = None

    @property
    def columns(self) -> list[tuple[str, Type | None]]:
        """The names of the columns, each with its type in a table. None: no type can hold the values."""
        if isinstance(self._rows, pa.Table):
            return columns_of_table(self._rows)
        return [(name, type_of_spark(kind)) for name, kind in self._rows.dtypes]

    def write(self, tx: Transaction, view: TableView, mode: Mode) -> None:
        if isinstance(self._rows, pa.Table):
            write.write_arrow(tx, view, mode, self._rows)
            return
        columns = write.frame_columns(view, mode, tuple(self._rows.columns))
        self._written = view.info.schema, columns, tx.write(view, mode, self._rows.toDF(*columns))

    def keep(self, tx: Transaction) -> None:
        """Keep the rows that a failed attempt has written, before the files of the attempt are removed."""
        if self._written is None:
            return
        self._rows = tx.runtime.store.read_given(*self._written)
        self._written = None


def columns_of_table(rows: pa.Table) -> list[tuple[str, Type | None]]:
    """Return the columns of Arrow data, each with its type in a table. None: no type can hold the values."""
    return [(field.name, type_of_arrow(field.type)) for field in rows.schema]


def read_caller_rows(mode: Mode, data: Any) -> CallerFrame | pa.Table | list[Any]:
    """Return the rows that a caller passed.

    An iterator is read into a list, because a retry of the commit needs the same rows.
    """
    if type(data).__module__.startswith("pyspark.sql") and hasattr(data, "sparkSession"):
        return CallerFrame(data)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data
    if type(data).__module__.startswith("pandas") and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return _read_arrow_stream(data)
    if isinstance(data, Mapping):
        return [data]
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return list(data)
    if mode == "DELETE ON":
        return [data]
    hint = (
        "Pass a DataFrame of Spark, pandas or polars, Arrow data, a relation of DuckDB, or a list of dicts."
    )
    if hasattr(data, "collect"):
        hint = f"Collect it first. {hint}"
    raise InvalidArgument(f"a {type(data).__name__} cannot be converted to rows", hint)


def _read_arrow_stream(data: Any) -> pa.Table:
    """Read the Arrow stream of a polars frame, a DuckDB relation, an Arrow reader or a ``Result``."""
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"the Arrow stream of a {type(data).__name__} has no rows: {error}",
            "Pass a frame or a table, whose columns have names.",
        ) from None
