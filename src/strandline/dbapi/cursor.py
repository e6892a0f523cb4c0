"""Cursors (PEP 249): run statements and fetch rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.api.result import Result
from strandline.dbapi.exceptions import InterfaceError, ProgrammingError, translate_errors
from strandline.sql import statements as st
from strandline.sql.parser import parse

if TYPE_CHECKING:
    from strandline.dbapi.connection import Connection
    from strandline.sql.binding import Params

__all__ = ["BINARY", "DATETIME", "NUMBER", "ROWID", "STRING", "Cursor"]


class _Kind(frozenset[str]):
    """A set of column types that compares equal to each of them, as PEP 249 requires."""

    def __eq__(self, other: object) -> bool:
        return other in self if isinstance(other, str) else frozenset.__eq__(self, other)

    def __hash__(self) -> int:
        return frozenset.__hash__(self)


STRING = _Kind({"string"})
BINARY = _Kind({"binary"})
DATETIME = _Kind({"date", "timestamp"})
NUMBER = _Kind({"bool", "int", "uint", "float", "decimal"})
ROWID = _Kind()

_NAMES = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_unsigned_integer, "uint"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_decimal, "decimal"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_binary, "binary"),
)


def _type_code(type_: pa.DataType) -> str:
    return next((name for test, name in _NAMES if test(type_)), "string")


class Cursor:
    """A cursor from ``connection.cursor()``. Rows are streamed while they are fetched."""

    arraysize = 1
    lastrowid = None

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._result: Result | None = None
        self._rows: Iterator[tuple[Any, ...]] | None = None
        self._is_closed = False

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """For each column, its name, its type and five times None. None: the statement returns no rows."""
        if self._rows is None or self._result is None:
            return None
        with translate_errors():
            return [(f.name, _type_code(f.type), *[None] * 5) for f in self._result.schema]

    @property
    def rowcount(self) -> int:
        """Number of rows that the last statement changed or returned; -1 if not known yet."""
        result = self._result
        if result is None:
            return -1
        if result.rows_changed is not None:
            return result.rows_changed
        return len(result.values) if result.is_here and result.names else -1

    def execute(self, operation: str, parameters: Params = None) -> Cursor:
        """Run one or more statements, separated by ``;``, with values for ``?`` or ``:name``."""
        self._check()
        with translate_errors():
            self._run(parse(operation, parameters or None))
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Params]) -> Cursor:
        """Run a statement with each set of values. Rows of the same table are written together."""
        self._check()
        with translate_errors():
            statements = [s for values in seq_of_parameters for s in parse(operation, values)]
            if any(not isinstance(statement, st.Change) for statement in statements):
                raise ProgrammingError("executemany() accepts only statements that change rows")
            self._run(list(_together(statements)))
        return self

    def _run(self, statements: Sequence[st.Statement]) -> None:
        self._result, self._rows = None, None
        result = self.connection.run(statements)
        self._result = result
        self._rows = iter(result) if result.columns else None

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None after the last one."""
        return next(iter(self.fetchmany(1)), None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next ``size`` rows (default: ``arraysize``)."""
        rows, most = self._open_rows(), self.arraysize if size is None else size
        if not isinstance(most, int) or most < 0:
            raise ProgrammingError(f"{most!r} is not a number of rows")
        with translate_errors():
            return list(islice(rows, most))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all remaining rows."""
        with translate_errors():
            return list(self._open_rows())

    def fetch_arrow_table(self) -> pa.Table:
        """Return all rows of the last statement as an Arrow table, including fetched ones."""
        self._open_rows()
        assert self._result is not None
        with translate_errors():
            return self._result.to_arrow()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        with translate_errors():
            yield from self._open_rows()

    def _open_rows(self) -> Iterator[tuple[Any, ...]]:
        self._check()
        if self._rows is None:
            raise ProgrammingError("the last statement has no rows")
        return self._rows

    def close(self) -> None:
        """Close the cursor and free its rows."""
        self._is_closed, self._result, self._rows = True, None, None

    def setinputsizes(self, sizes: Any) -> None:
        """Do nothing: the types of values are known without it."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: values are never truncated."""

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._is_closed:
            raise InterfaceError("the cursor is closed")


def _together(statements: Sequence[st.Statement]) -> Iterator[st.Statement]:
    """Yield the statements, with consecutive writes to the same columns combined into one."""
    last: st.Write | None = None
    rows: list[Any] = []
    for statement in statements:
        values = statement.source if isinstance(statement, st.Write) else None
        if isinstance(statement, st.Write) and isinstance(values, st.Values):
            if last is not None and _is_alike(last, statement):
                rows += values.rows
                continue
            if last is not None:
                yield replace(last, source=st.Values(tuple(rows)))
            last, rows = statement, list(values.rows)
            continue
        if last is not None:
            yield replace(last, source=st.Values(tuple(rows)))
            last = None
        yield statement
    if last is not None:
        yield replace(last, source=st.Values(tuple(rows)))


def _is_alike(one: st.Write, two: st.Write) -> bool:
    return (one.mode, one.path, one.columns) == (two.mode, two.path, two.columns)
