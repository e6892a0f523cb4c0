"""Read a changefeed in a streaming query. Its offsets are steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from strandline.api.source.options import Place
from strandline.api.source.reader import Partition, rows_of
from strandline.api.source.warehouse_cache import open_warehouse, plainly
from strandline.api.stream import window_of
from strandline.model import Segment
from strandline.tables.partitions import keep

_STEP = "step"


@dataclass(frozen=True)
class BatchLimits:
    """Approximate limits of a batch. A batch has whole commits, and at least one segment.

    Attributes:
        rows: Maximum number of changes. None: no limit.
        bytes: Maximum size of the segments with the changes. None: no limit.
    """

    rows: int | None = None
    bytes: int | None = None

    def end(self, logs: Sequence[Segment], head: int) -> int:
        """Return the last step of a batch that begins with the first of ``logs``."""
        rows = size = 0
        end: int | None = None
        for upto, segments in groupby(logs, key=lambda log: log.upto):
            for segment in segments:
                rows, size = rows + segment.rows, size + segment.bytes
            is_over = (self.rows is not None and rows > self.rows) or (
                self.bytes is not None and size > self.bytes
            )
            if is_over and end is not None:
                return end
            end = min(upto, head)
        return head


class FeedReader(DataSourceStreamReader):
    """The reader of one streaming query.

    The changefeed keeps all changes after its position. The position moves when Spark has recorded that a
    batch is done; until then, the batch can be read again.

    Spark asks for the end of the next batch without giving its start. The start is the end of the last batch
    that was planned. After a restart Spark first plans an empty batch at that offset.
    """

    def __init__(self, place: Place, path: str, limits: BatchLimits | None = None) -> None:
        self._place = place
        self._path = path
        self._limits = limits or BatchLimits()
        self._planned: int | None = None

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
            stream = db.stream(self._path)
            head, start = stream.head, stream.position if self._planned is None else self._planned
            if self._limits == BatchLimits() or start >= head:
                return {_STEP: head}
            return {_STEP: self._limits.end(window_of(db, self._path, start, head).logs, head)}

    @plainly
    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        self._planned = end[_STEP]
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
