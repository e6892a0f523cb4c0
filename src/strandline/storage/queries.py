"""The store's queries: in this process with DuckDB, or on Spark with DataFrames as their input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import StrandlineError
from strandline.model import State, TableSchema
from strandline.names import DATA, quote_spark
from strandline.storage import arrow
from strandline.storage.budget import COPIED, Budget
from strandline.storage.duckdb_engine import DuckDBEngine, QueryInput
from strandline.storage.duckdb_files import InputColumn, divide
from strandline.storage.files import LocalFiles
from strandline.storage.keys import Wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.storage.store import Store


class Queries:
    """The queries of one store. Thread-safe.

    Methods that take or return DataFrames start Spark if necessary.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._most_bytes = COPIED * max(store.settings.bulk_bytes, 1 << 24)
        own = store.files.own
        folder = own.path(DATA) if isinstance(own, LocalFiles) else None
        self._duckdb = DuckDBEngine(self._most_bytes, folder, store.settings.process_seconds)

    def run_here(self, sql: str, inputs: Mapping[str, QueryInput], types: Sequence[str]) -> pa.Table:
        """Run a query that was translated for DuckDB, and return its rows.

        Raises RefusedByDuckDB if the query needs Spark after all.
        """
        return self._duckdb.run(sql, inputs, types, self._most_bytes)

    def input(
        self, columns: Sequence[InputColumn], state: State, behind: State | None = None, *, files: bool = True
    ) -> QueryInput:
        """Return the rows of a state as the input of a query in this process.

        The input may have more rows than the state if the state is limited to a range of keys.

        Args:
            behind: the state of the table, if ``state`` is an index that does not have all the columns.
            files: whether DuckDB may read files itself.
        """
        names = [column.name for column in columns]
        in_files = None
        if files and behind is None:
            whole = state
            in_files, state = divide(self._store.cache, self._store.files, whole, names)
            if in_files is not None:
                in_files = replace(in_files, gone=arrow.stream.changed_keys(self._store.cache, whole))
        if not state.chain.segments:
            tables = None if in_files else lambda: iter(())
        elif behind is None and (found := self._store.scan(state, names)) is not None:
            tables = lambda: iter((found.select(names),))  # noqa: E731
        else:
            tables = lambda: (t.select(names) for t in self._store.stream(state, names, behind))  # noqa: E731
        return QueryInput(columns, tables, in_files)

    def fits_here(self, states: Sequence[State]) -> bool:
        """Return True if these states are small enough to be streamed through a query in this process."""
        budget = Budget.for_queries(self._store.settings).streamed
        segments = [s for state in states for s in state.chain.segments]
        return budget.fits(rows=sum(s.rows for s in segments), bytes=sum(s.bytes for s in segments))

    def frame(self, state: State) -> DataFrame:
        """Return a DataFrame of all rows of a table."""
        from strandline.storage import spark

        return spark.scan.scan(self._store.spark, self._store.cache, state)

    def look_up(self, state: State, keys: DataFrame) -> tuple[pa.Table, DataFrame] | None:
        """Look up rows by distinct keys in this process; return the keys and a DataFrame of the rows.

        Returns None if there are too many keys.
        """
        most = self._store.settings.bulk_rows
        found = self.values(keys.limit(most + 1))
        if found.num_rows > most or not self._store.writes_here(state, found.num_rows):
            return None
        typed = pa.schema([(column.name, column.type.arrow) for column in state.schema.key_columns])
        found = found.rename_columns(typed.names).cast(typed)
        wanted = Wanted(state.schema, [column.combine_chunks() for column in found.columns])
        _, rows = arrow.lookup.rows_at(self._store.cache, state, wanted)
        return found, self._store.spark.createDataFrame(rows)

    @contextmanager
    def keep(self, frame: DataFrame) -> Iterator[DataFrame]:
        """Keep the rows of a DataFrame on the executors until the end of the block."""
        from strandline.storage import spark

        with spark.given.persisted(frame) as kept:
            yield kept

    def increment(self, state: State) -> DataFrame:
        """Return the changes of an incremental backup; one column marks tombstones."""
        from strandline.storage import spark

        return spark.query.increment(self._store.spark, self._store.cache, state)

    def through_index(self, table: State, entries: State, *, whole: bool) -> DataFrame:
        """Return the entries of an index as rows of its table.

        Args:
            table: the state of the table.
            entries: the state of the index implementation table.
            whole: also read, from the table, the columns that the index does not have.
        """
        from strandline.storage import spark

        return spark.query.through_index(self._store.spark, self._store.cache, table, entries, whole=whole)

    def sql(self, text: str, frames: Mapping[str, DataFrame], args: Mapping[str, Any]) -> DataFrame:
        """Run a query; its text refers to frames as ``{name}`` and to values as ``:name``."""
        from strandline.storage import spark

        return spark.query.sql(self._store.spark, text, frames, args)

    def may_have_catalogs(self) -> bool:
        """Return True if a Spark session exists, or if the settings configure catalogs for a new session."""
        configured = any(name.startswith("spark.sql.catalog.") for name in self._store.settings.spark)
        return configured or self._store.present_session is not None

    def has_table(self, name: str) -> bool:
        """Return True if a Spark session exists and has a view or a table with this name."""
        session = self._store.present_session
        if session is None:
            return False
        from strandline.storage import spark

        with suppress(StrandlineError), spark.failures.spark_errors():
            return bool(session.catalog.tableExists(quote_spark(name)))
        return False

    def declare_types(self, frame: DataFrame, schema: TableSchema) -> DataFrame:
        """Return the DataFrame; columns with an ambiguous Spark type get their declared type as metadata."""
        from strandline.storage import spark

        return spark.batches.declare_types(frame, schema)

    def values(self, frame: DataFrame) -> pa.Table:
        """Return the rows of a small DataFrame as an Arrow table."""
        from strandline.storage import spark

        return spark.query.to_arrow(frame)
