"""Read a table: planned on the machine of Spark's driver, executed on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.api.source.filters import constraints
from strandline.api.source.options import Place
from strandline.api.source.warehouse_cache import open_warehouse, plainly
from strandline.errors import Corrupted
from strandline.model import TableSchema
from strandline.sql.evaluate.ranges import Constraints
from strandline.sql.references import TableRef
from strandline.storage.partition import RowPartition
from strandline.storage.task_reports import explain_damage
from strandline.tables.partitions import partition_rows

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class Partition(InputPartition):
    """A partition of the rows. An executor reads it without the catalog."""

    def __init__(self, rows: RowPartition) -> None:
        self.rows = rows


class TableReader(DataSourceReader):
    """Plans reads of a table. Each query sees the table at the moment when the query is planned.

    Args:
        place: the warehouse.
        table: the table.
        schema: the columns to read, and the key.
    """

    def __init__(self, place: Place, table: TableRef, schema: TableSchema) -> None:
        self._place = place
        self._table = table
        self._schema = schema
        self._constraints = Constraints()

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        with open_warehouse(self._place) as db:
            found = partition_rows(db._runtime, self._table, self._schema, self._constraints)
        return [Partition(rows) for rows in found]

    # Any: PySpark's type is a union of iterators of tuples and of batches.
    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if isinstance(partition, Partition):
            yield from rows_of(partition.rows)


class FilteringReader(TableReader):
    """A reader with filter pushdown. Spark refuses such a reader if the session has not enabled pushdown."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use filters on key columns to read fewer rows.

        Return all filters, so that Spark applies them to the rows again.
        """
        types = {c.name: c.type for c in self._schema.columns}
        self._constraints = constraints(filters, types)
        return filters


def rows_of(rows: RowPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition on an executor."""
    try:
        for table in rows.tables():
            yield from batches(table)
    except Corrupted as error:
        raise explain_damage(rows.files, error).with_traceback(None) from None


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of Spark's default size."""
    yield from table.combine_chunks().to_batches(max_chunksize=10_000)
