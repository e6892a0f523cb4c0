"""Run queries in this process with DuckDB, over the store's files and Arrow data.

DuckDB can read only the tables that a query gets as input, and files in the folder with the warehouse's
segments. It must not open other files, load extensions or change settings. Its memory and its time are
limited, and it writes no temporary files. The first query loads DuckDB.

The text of a query names its tables. The engine puts the queries for their files before the text, so no text
that a user wrote decides which file is read.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.cancellation import check, share_work
from strandline.storage.duckdb_files import FileRows, InputColumn
from strandline.types.arrays import physical_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["DuckDBEngine", "FilesRefused", "QueryInput", "RefusedByDuckDB"]

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
    "TimeZone = 'UTC'",
    # It joins the constants of a sum and drops factors of zero, and so loses an overflow that Spark reports.
    "disabled_optimizers = 'expression_rewriter'",
)
_LAST_SETTINGS = ("enable_external_access = false", "lock_configuration = true")
"""Settings after which DuckDB refuses further changes."""


class RefusedByDuckDB(Exception):
    """Error: DuckDB cannot run the query, or the query met a value that only Spark handles correctly.

    The library catches this error: users never see it.
    """


class FilesRefused(RefusedByDuckDB):
    """Error: DuckDB cannot open a file. The caller reads the rows with Arrow, which reports what is wrong."""


@dataclass
class QueryInput:
    """An input table of a query.

    Attributes:
        columns: the columns.
        tables: starts reading, and returns the rows as tables with physical types and the same order of
            columns. DuckDB may call it more than once. None: all rows are in ``files``.
        files: the rows that DuckDB itself reads from files. None: all rows are in ``tables``.
        errors: errors that reading the rows raised.
    """

    columns: Sequence[InputColumn]
    tables: Callable[[], Iterator[pa.Table]] | None = None
    files: FileRows | None = None
    errors: list[BaseException] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.alias, _given_type(column.type)) for column in self.columns])

    def register(self, cursor: DuckDBPyConnection, name: str) -> str:
        """Give the rows in memory to a cursor; return the table as a common table expression.

        Args:
            name: the table's name in the text of the query.
        """
        parts = []
        if self.files is not None:
            if self.files.gone is not None:
                cursor.register(f"{name}_gone", self.files.gone)
            parts.append(self.files.sql(self.columns, f"{name}_gone"))
        if self.tables is not None:
            cursor.register(f"{name}_rows", self)
            items = ", ".join(f"{c.read(f'r.{c.alias}')} AS {c.alias}" for c in self.columns)
            parts.append(f"SELECT {items} FROM {name}_rows AS r")
        return f"{name} AS NOT MATERIALIZED ({' UNION ALL '.join(parts)})"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow C stream, the protocol by which DuckDB reads them."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            assert self.tables is not None
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

    def __init__(self, memory: int, folder: str | None = None, seconds: float = math.inf) -> None:
        """
        Args:
            memory: maximum size of DuckDB's memory in bytes.
            folder: the folder whose files DuckDB may read. None: it reads no files.
            seconds: maximum time of a query.
        """
        self._memory = memory
        self._folder = folder
        self._seconds = seconds
        self._lock = threading.Lock()
        self._roots: dict[int, DuckDBPyConnection] = {}
        """Connections by process id: a forked child lacks the threads that its parent's connection needs."""
        # At the end of the process, DuckDB complains about connections that are still open.
        weakref.finalize(self, self._roots.clear)

    def run(
        self, sql: str, inputs: Mapping[str, QueryInput], types: Sequence[str], most_bytes: int
    ) -> pa.Table:
        """Return the rows of a query, with the columns ``c0``, ``c1`` and so on.

        Raises RefusedByDuckDB if the query fails, takes too long, or if its rows take more than
        ``most_bytes``.

        Args:
            inputs: the input tables, by the name that the query uses.
            types: the Spark types of the result's columns.
            most_bytes: maximum size of the result.
        """
        query = _RunningQuery(self._cursor(), sql, inputs, most_bytes)
        try:
            query.wait(self._seconds)
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
                quoted = "" if self._folder is None else "'" + self._folder.replace("'", "''") + "'"
                allowed = f"allowed_directories = [{quoted}]"
                for setting in (*_SETTINGS, allowed, *_LAST_SETTINGS):
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

    def wait(self, seconds: float) -> None:
        """Run the query; interrupt it if the work of this thread is cancelled, or after ``seconds``."""
        end = time.monotonic() + seconds
        thread = threading.Thread(target=share_work(self._run), name="strandline-duckdb", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.05)
                check()
                if thread.is_alive() and time.monotonic() > end:
                    raise RefusedByDuckDB("it takes longer than process_seconds")
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
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            # Arrow reports what DuckDB raises after the first rows. The error itself is not kept: its
            # traceback would keep the connection.
            is_of_file = str(error).startswith(("IO Error", "Permission Error"))
            self.failed = (FilesRefused if is_of_file else RefusedByDuckDB)(_reason(error))
        except BaseException as error:
            self.failed = error

    def _collect(self) -> None:
        assert self._cursor is not None
        views = [each.register(self._cursor, name) for name, each in self._inputs.items()]
        reader = self._cursor.sql(_with_views(views, self._sql)).to_arrow_reader(BATCH_ROWS)
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


def _with_views(views: Sequence[str], sql: str) -> str:
    if not views:
        return sql
    rest = f", {sql.removeprefix('WITH ')}" if sql.startswith("WITH ") else f" {sql}"
    return f"WITH {', '.join(views)}{rest}"


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"DuckDB says: {lines[0]}"


def _in_types(table: pa.Table, types: Sequence[str]) -> pa.Table:
    arrays = [
        pa.chunked_array([pa.nulls(table.num_rows)]) if type_ == "void" else column.cast(physical_type(type_))
        for column, type_ in zip(table.columns, types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(types))])
