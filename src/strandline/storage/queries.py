"""The store's queries: in this process with DuckDB, or on Spark with DataFrames as their input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import StrandlineError
from strandline.model import State, TableSchema
from strandline.names import quote_spark
from strandline.storage import arrow
from strandline.storage.budget import COPIED, Budget
from strandline.storage.duckdb_engine import DuckDBEngine, QueryInput
from strandline.storage.keys import Wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.storage.store import Store


class Queries:
    """The queries of one store. Thread-safe. Every call but ``run_here`` needs Spark and starts it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._most_bytes = COPIED * max(store.settings.bulk_bytes, 1 << 24)
        self._duckdb = DuckDBEngine(self._most_bytes)

    def run_here(self, sql: str, inputs: Mapping[str, QueryInput], types: Sequence[str]) -> pa.Table:
        """Return the rows of a translated query; raise RefusedByDuckDB if it needs Spark after all."""
        return self._duckdb.run(sql, inputs, types, self._most_bytes)

    def fits_here(self, states: Sequence[State]) -> bool:
        """Return True if a query over these states runs in this process: its rows are streamed."""
        budget = Budget.for_queries(self._store.settings).streamed
        segments = [s for state in states for s in state.chain.segments]
        return budget.fits(rows=sum(s.rows for s in segments), bytes=sum(s.bytes for s in segments))

    def frame(self, state: State) -> DataFrame:
        """Return a DataFrame of all rows of a table."""
        from strandline.storage import spark

        return spark.scan.scan(self._store.spark, self._store.cache, state)

    def look_up(self, state: State, keys: DataFrame) -> tuple[pa.Table, DataFrame] | None:
        """Look up rows by distinct keys in this process; return the keys and a DataFrame of the rows.

        None if there are too many keys.
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
        """Keep the rows of a DataFrame on the executors for the time of the block."""
        from strandline.storage import spark

        with spark.given.persisted(frame) as kept:
            yield kept

    def increment(self, state: State) -> DataFrame:
        """Return the changes of an incremental backup, with the column that marks tombstones."""
        from strandline.storage import spark

        return spark.query.increment(self._store.spark, self._store.cache, state)

    def through_index(self, table: State, entries: State, *, whole: bool) -> DataFrame:
        """Return the entries of an index as rows of its table.

        ``whole``: also read the columns that the index does not have, from the table.
        """
        from strandline.storage import spark

        return spark.query.through_index(self._store.spark, self._store.cache, table, entries, whole=whole)

    def sql(self, text: str, frames: Mapping[str, DataFrame], args: Mapping[str, Any]) -> DataFrame:
        """Run a query; its text refers to frames as ``{name}`` and to values as ``:name``."""
        from strandline.storage import spark

        return spark.query.sql(self._store.spark, text, frames, args)

    def may_have_catalogs(self) -> bool:
        """Return True if there is a session, or if settings give it catalogs when it starts."""
        configured = any(name.startswith("spark.sql.catalog.") for name in self._store.settings.spark)
        return configured or self._store.present_session is not None

    def has_table(self, name: str) -> bool:
        """Return True if there is a session, and it has a view or a table with this name."""
        session = self._store.present_session
        if session is None:
            return False
        from strandline.storage import spark

        with suppress(StrandlineError), spark.failures.spark_errors():
            return bool(session.catalog.tableExists(quote_spark(name)))
        return False

    def declare_types(self, frame: DataFrame, schema: TableSchema) -> DataFrame:
        """Return the rows of a table; columns carry their declared type where Spark's type differs."""
        from strandline.storage import spark

        return spark.batches.declare_types(frame, schema)

    def values(self, frame: DataFrame) -> pa.Table:
        """Return the rows of a small DataFrame as an Arrow table."""
        from strandline.storage import spark

        return spark.query.to_arrow(frame)
