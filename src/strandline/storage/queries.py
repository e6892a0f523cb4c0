"""The store's DataFrames: input for queries that Spark runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.model import State, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.storage.store import Store


class Queries:
    """The DataFrames of one store. Thread-safe. Every call needs Spark and starts it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def frame(self, state: State) -> DataFrame:
        """Return a DataFrame of all rows of a table."""
        from strandline.storage import spark

        return spark.scan.scan(self._store.spark, self._store.cache, state)

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

    def declare_types(self, frame: DataFrame, schema: TableSchema) -> DataFrame:
        """Return the rows of a table; columns carry their declared type where Spark's type differs."""
        from strandline.storage import spark

        return spark.batches.declare_types(frame, schema)

    def values(self, frame: DataFrame) -> pa.Table:
        """Return the rows of a small DataFrame as an Arrow table."""
        from strandline.storage import spark

        return spark.query.to_arrow(frame)
