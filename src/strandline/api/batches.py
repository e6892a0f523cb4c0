"""Rows that are here, and tables that come one by one, as streams of Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from strandline.errors import InvalidArgument
from strandline.types import Type, parse_type
from strandline.types.arrays import column_to_python, outgoing_type

__all__ = ["Tables", "WholeTable", "guarded", "reader_of", "rows_of", "table_of"]

Guard = Callable[[], AbstractContextManager[None]]

_TIME = parse_type("Timestamp")


class Tables(Protocol):
    """Rows that come some at a time."""

    @property
    def schema(self) -> pa.Schema: ...

    def tables(self) -> Iterable[pa.Table]: ...


@dataclass(frozen=True)
class WholeTable:
    """Rows that are here."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def tables(self) -> Iterable[pa.Table]:
        return [self.table]


def guarded(source: Tables, guard: Guard) -> Iterator[pa.Table]:
    """Yield the tables, each taken under ``guard``. What is done between two of them is the caller's, Ctrl-C
    included, and so is the thread that takes the next one."""
    with guard():
        tables = iter(source.tables())
    while True:
        with guard():
            table = next(tables, None)
        if table is None:
            return
        yield table


def reader_of(source: Tables, batch_rows: int, guard: Guard) -> pa.RecordBatchReader:
    """Return a stream of batches with at most so many rows. What goes wrong while it is read is said as
    ``guard`` says it."""
    if not isinstance(batch_rows, int) or isinstance(batch_rows, bool) or batch_rows < 1:
        raise InvalidArgument(f"a batch cannot have {batch_rows!r} rows", "Give a number from 1 on.")

    def batches() -> Iterator[pa.RecordBatch]:
        for table in guarded(source, guard):
            # A table may be of many small parts, some of them empty.
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
    """Return rows that are here as a table. Without ``types`` these follow from the values."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [
        _inferred(column) if types is None else pa.array(column, outgoing_type(types[place]))
        for place, column in enumerate(columns)
    ]
    return pa.Table.from_arrays(arrays, names=list(names))


def _inferred(column: Sequence[Any]) -> pa.Array:
    """What a statement tells of the catalog has no types of its own; a column without a value is one of
    texts, as most are."""
    try:
        found = pa.array(column)
    except (pa.ArrowException, OverflowError):
        found = pa.array([None if value is None else str(value) for value in column], pa.string())
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found
