"""Read a changefeed in a streaming query. Its offsets are steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from strandline.api.source.options import Place
from strandline.api.source.reader import Partition, rows_of
from strandline.api.source.warehouse_cache import open_warehouse, plainly
from strandline.api.stream import window_of
from strandline.tables.partitions import keep

_STEP = "step"


class FeedReader(DataSourceStreamReader):
    """The reader of one streaming query.

    The changefeed keeps all changes after its position. The position moves when Spark has recorded that a
    batch is done; until then, the batch can be read again.
    """

    def __init__(self, place: Place, path: str) -> None:
        self._place = place
        self._path = path

    def schema(self) -> StructType:
        """Return the columns of the records."""
        with open_warehouse(self._place) as db:
            position = db.stream(self._path).position
            window = window_of(db, self._path, position, position)
            return from_arrow_schema(db._runtime.store.feed_columns(window))

    @plainly
    def initialOffset(self) -> dict[str, int]:
        with open_warehouse(self._place) as db:
            return {_STEP: db.stream(self._path).position}

    @plainly
    def latestOffset(self) -> dict[str, int]:
        with open_warehouse(self._place) as db:
            return {_STEP: db.stream(self._path).head}

    @plainly
    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        with open_warehouse(self._place) as db:
            keep(db._runtime, db.step)
            window = window_of(db, self._path, start[_STEP], end[_STEP])
            return [Partition(rows) for rows in db._runtime.store.feed_partitions(window)]

    # Any: PySpark's type is a union of iterators of tuples and of batches.
    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if isinstance(partition, Partition):
            yield from rows_of(partition.rows)

    @plainly
    def commit(self, end: Mapping[str, int]) -> None:
        with open_warehouse(self._place) as db:
            stream = db.stream(self._path)
            if end[_STEP] > stream.position:
                stream.commit(end[_STEP])

    def stop(self) -> None:
        """Do nothing: the reader holds no resources."""
