"""Run queries in this process with DuckDB, over the store's rows as Arrow data.

DuckDB can read only the tables that a query gets as input. It must not open files, load extensions or change
settings. Its memory is limited, and it writes no temporary files. The first query loads DuckDB.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.cancellation import check, share_work
from strandline.types.arrays import physical_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["DuckDBEngine", "QueryInput", "RefusedByDuckDB"]

THREADS = 4
"""Maximum number of threads of a query."""
BATCH_ROWS = 100_000
"""Number of rows that are fetched from DuckDB at a time."""


_SETTINGS = (
    f"threads = {min(THREADS, os.cpu_count() or 1)}",
    "temp_directory = ''",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "python_enable_replacements = false",
    "enable_external_access = false",
    "lock_configuration = true",
)
"""Settings in the order in which they are set: after the last two, DuckDB refuses further changes."""


class RefusedByDuckDB(Exception):
    """Error: DuckDB cannot run the query, or the query met a value that only Spark handles correctly.

    The library catches this error: users never see it.
    """


@dataclass
class QueryInput:
    """An input table of a query.

    Attributes:
        columns: the name in DuckDB and the Spark type of each column.
        tables: starts reading, and returns the rows as tables with physical types and the same order of
            columns. DuckDB may call it more than once.
        errors: errors that reading the rows raised.
    """

    columns: Sequence[tuple[str, str]]
    tables: Callable[[], Iterator[pa.Table]]
    errors: list[BaseException] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, _given_type(type_)) for name, type_ in self.columns])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow C stream, the protocol by which DuckDB reads them."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for table in self.tables():
                arrays = [
                    column.cast(field.type) if column.type != field.type else column
                    for column, field in zip(table.columns, self.schema, strict=True)
                ]
                yield from pa.Table.from_arrays(arrays, schema=self.schema).to_batches()
        except GeneratorExit:  # DuckDB needs no more rows.
            raise
        except BaseException as error:
            self.errors.append(error)
            raise


def _given_type(type_: str) -> pa.DataType:
    """Return the Arrow type for DuckDB. Timestamps are in UTC, but their type has no time zone."""
    return pa.timestamp("us") if type_ == "timestamp" else physical_type(type_)


class DuckDBEngine:
    """DuckDB in this process, for one store. Thread-safe."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._roots: dict[int, DuckDBPyConnection] = {}
        """Connections by process id: a forked child lacks the threads that its parent's connection needs."""
        # At the end of the process, DuckDB complains about connections that are still open.
        weakref.finalize(self, self._roots.clear)

    def run(
        self, sql: str, inputs: Mapping[str, QueryInput], types: Sequence[str], most_bytes: int
    ) -> pa.Table:
        """Return the rows of a query, with the columns ``c0``, ``c1`` and so on.

        Raises RefusedByDuckDB if the query fails, or if its rows take more than ``most_bytes``.

        Args:
            inputs: the input tables, by the name that the query uses.
            types: the Spark types of the result's columns.
            most_bytes: maximum size of the result.
        """
        query = _RunningQuery(self._cursor(), sql, inputs, most_bytes)
        try:
            query.wait()
        finally:
            query.close()
        if query.failed is not None:
            raise next((e for each in inputs.values() for e in each.errors), query.failed)
        return _in_types(pa.Table.from_batches(query.batches, query.schema), types)

    def _cursor(self) -> DuckDBPyConnection:
        import duckdb

        with self._lock:
            if os.getpid() not in self._roots:
                root = duckdb.connect(":memory:", config={"memory_limit": f"{self._memory}B"})
                for setting in _SETTINGS:
                    root.execute(f"SET {setting}")
                self._roots[os.getpid()] = root
            return self._roots[os.getpid()].cursor()


class _RunningQuery:
    """A query on a thread of its own, so that the caller's thread can interrupt it."""

    def __init__(
        self, cursor: DuckDBPyConnection, sql: str, inputs: Mapping[str, QueryInput], most_bytes: int
    ) -> None:
        self._cursor: DuckDBPyConnection | None = cursor
        self._sql, self._inputs, self._most_bytes = sql, inputs, most_bytes
        self.batches: list[pa.RecordBatch] = []
        self.schema = pa.schema([])
        self.failed: BaseException | None = None

    def wait(self) -> None:
        """Run the query; interrupt it if the work of this thread is cancelled."""
        thread = threading.Thread(target=share_work(self._run), name="strandline-duckdb", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.05)
                check()
        except BaseException:
            while thread.is_alive():
                if self._cursor is not None:
                    self._cursor.interrupt()
                thread.join(0.05)
            raise

    def _run(self) -> None:
        import duckdb

        try:
            self._collect()
        except duckdb.Error as error:
            # The error itself is not kept: its traceback would keep the connection.
            self.failed = RefusedByDuckDB(_reason(error))
        except BaseException as error:
            self.failed = error

    def _collect(self) -> None:
        assert self._cursor is not None
        for name, each in self._inputs.items():
            self._cursor.register(name, each)
        reader = self._cursor.sql(self._sql).to_arrow_reader(BATCH_ROWS)
        self.schema = reader.schema
        size = 0
        for batch in reader:
            size += batch.nbytes
            if size > self._most_bytes:
                raise RefusedByDuckDB("its result is too large for the process")
            self.batches.append(batch)

    def close(self) -> None:
        import duckdb

        cursor, self._cursor = self._cursor, None
        with suppress(duckdb.Error):
            if cursor is not None:
                cursor.close()


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"DuckDB says: {lines[0]}"


def _in_types(table: pa.Table, types: Sequence[str]) -> pa.Table:
    arrays = [
        pa.chunked_array([pa.nulls(table.num_rows)]) if type_ == "void" else column.cast(physical_type(type_))
        for column, type_ in zip(table.columns, types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(types))])
