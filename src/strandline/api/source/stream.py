"""Following a changefeed: steps are the offsets of a streaming query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from strandline.api.source.opened import opened, plainly
from strandline.api.source.options import Place
from strandline.api.source.reader import Partition, rows_of
from strandline.api.stream import window_of
from strandline.tables.portions import keep

_STEP = "step"


class FeedReader(DataSourceStreamReader):
    """Of one streaming query. The changefeed keeps what comes after its position, which moves when Spark has
    noted that it is done with a batch: what a batch is made of can be read again until then."""

    def __init__(self, place: Place, path: str) -> None:
        self._place = place
        self._path = path

    def schema(self) -> StructType:
        """Return the columns of the records."""
        with opened(self._place) as db:
            position = db.stream(self._path).position
            window = window_of(db, self._path, position, position)
            return from_arrow_schema(db.runtime.store.feed_columns(window))

    @plainly
    def initialOffset(self) -> dict[str, int]:
        with opened(self._place) as db:
            return {_STEP: db.stream(self._path).position}

    @plainly
    def latestOffset(self) -> dict[str, int]:
        with opened(self._place) as db:
            return {_STEP: db.stream(self._path).head}

    @plainly
    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        with opened(self._place) as db:
            keep(db.runtime, db.step)
            window = window_of(db, self._path, start[_STEP], end[_STEP])
            return [Partition(portion) for portion in db.runtime.store.feed_portions(window)]

    # PySpark says "tuples or batches" of an iterator that gives either.
    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if isinstance(partition, Partition):
            yield from rows_of(partition.portion)

    @plainly
    def commit(self, end: Mapping[str, int]) -> None:
        with opened(self._place) as db:
            stream = db.stream(self._path)
            if end[_STEP] > stream.position:
                stream.commit(end[_STEP])

    def stop(self) -> None:
        """Nothing is held that would have to be given back."""
