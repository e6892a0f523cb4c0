"""Convert rows and streams of Arrow tables to streams of Arrow batches and to tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from strandline.errors import InvalidArgument
from strandline.types import Type, parse_type
from strandline.types.arrays import column_to_python, outgoing_type

__all__ = ["Tables", "WholeTable", "guard_each", "reader_of", "rows_of", "table_of"]

Guard = Callable[[], AbstractContextManager[None]]

_TIME = parse_type("Timestamp")


class Tables(Protocol):
    """A stream of Arrow tables with a schema."""

    @property
    def schema(self) -> pa.Schema: ...

    def tables(self) -> Iterable[pa.Table]: ...


@dataclass(frozen=True)
class WholeTable:
    """A stream of one Arrow table in memory."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def tables(self) -> Iterable[pa.Table]:
        return [self.table]


def guard_each(source: Tables, guard: Guard) -> Iterator[pa.Table]:
    """Yield the tables. Each table is read inside ``guard``.

    The caller's code that runs between two tables is outside of the guard, and so is Ctrl-C in this code.
    Each table may be read by a different thread.
    """
    with guard():
        tables = iter(source.tables())
    while True:
        with guard():
            table = next(tables, None)
        if table is None:
            return
        yield table


def reader_of(source: Tables, batch_rows: int, guard: Guard) -> pa.RecordBatchReader:
    """Return a stream of batches of at most ``batch_rows`` rows. ``guard`` translates errors of reading."""
    if not isinstance(batch_rows, int) or isinstance(batch_rows, bool) or batch_rows < 1:
        raise InvalidArgument(f"a batch cannot have {batch_rows!r} rows", "Give a number of at least 1.")

    def batches() -> Iterator[pa.RecordBatch]:
        for table in guard_each(source, guard):
            # A table may consist of many small chunks, some of them empty.
            yield from table.combine_chunks().to_batches(max_chunksize=batch_rows)

    return pa.RecordBatchReader.from_batches(source.schema, batches())


def rows_of(tables: Iterable[pa.Table]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as plain tuples."""
    for table in tables:
        columns = [_values(column) for column in table.columns]
        yield from zip(*columns, strict=True) if columns else [()] * table.num_rows


def _values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    if column.type == _TIME.arrow:
        return column_to_python(_TIME, column)
    return column.to_pylist()  # type: ignore[no-any-return]


def table_of(names: Sequence[str], rows: Sequence[tuple[Any, ...]], types: Sequence[Type] | None) -> pa.Table:
    """Return rows in memory as an Arrow table. ``types`` None: infer the types from the values."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [
        _infer_type(column) if types is None else pa.array(column, outgoing_type(types[place]))
        for place, column in enumerate(columns)
    ]
    return pa.Table.from_arrays(arrays, names=list(names))


def _infer_type(column: Sequence[Any]) -> pa.Array:
    """Return a column with an inferred type: text if the values have no common type or are all None."""
    try:
        found = pa.array(column)
    except (pa.ArrowException, OverflowError):
        found = pa.array([None if value is None else str(value) for value in column], pa.string())
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found
