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

try:
    # PySpark 4.2 and later. The ignore is for earlier versions.
    from pyspark.sql.streaming import datasource as spark_limits  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    spark_limits = None

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


class FeedReader(DataSourceStreamReader, getattr(spark_limits, "SupportsTriggerAvailableNow", object)):  # type: ignore[misc]
    """The reader of one streaming query.

    The changefeed keeps all changes after its position. The position moves when Spark has recorded that a
    batch is done; until then, the batch can be read again.

    PySpark 4.2 and later give the start of the next batch when they ask for its end, and announce the trigger
    ``availableNow``. Earlier versions do neither. The start is then the end of the last batch that was
    planned; after a restart Spark first plans an empty batch at that offset.

    Args:
        place: the warehouse.
        path: the changefeed.
        limits: limits of a batch.
        end_step: the last step to read. None: no limit.
    """

    def __init__(
        self, place: Place, path: str, limits: BatchLimits | None = None, end_step: int | None = None
    ) -> None:
        self._place = place
        self._path = path
        self._limits = limits or BatchLimits()
        self._end_step = end_step
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
    def latestOffset(self, start: Mapping[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        with open_warehouse(self._place) as db:
            stream = db.stream(self._path)
            position = stream.position if self._planned is None else self._planned
            after = position if start is None else start[_STEP]
            head = self._last(stream.head)
            if after >= head:
                return {_STEP: after}
            if self._limits == BatchLimits() or _is_unlimited(limit):
                return {_STEP: head}
            return {_STEP: self._limits.end(window_of(db, self._path, after, head).logs, head)}

    def getDefaultReadLimit(self) -> Any:
        """Tell PySpark 4.2 and later whether a batch has limits. ``latestOffset`` applies them."""
        if self._limits.rows is not None:
            return spark_limits.ReadMaxRows(self._limits.rows)
        if self._limits.bytes is not None:
            return spark_limits.ReadMaxBytes(self._limits.bytes)
        return spark_limits.ReadAllAvailable()

    @plainly
    def reportLatestOffset(self) -> dict[str, int]:
        """Return the last step of the changefeed, for the progress of the query (PySpark 4.2 and later)."""
        with open_warehouse(self._place) as db:
            return {_STEP: db.stream(self._path).head}

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """Read the changes that are there now, in as many batches as the limits need, and no later ones."""
        with open_warehouse(self._place) as db:
            self._end_step = self._last(db.stream(self._path).head)

    def _last(self, head: int) -> int:
        return head if self._end_step is None else min(head, self._end_step)

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


def _is_unlimited(limit: Any) -> bool:
    """Return whether Spark asks for all changes, as with ``trigger(once=True)``."""
    return limit is not None and isinstance(limit, spark_limits.ReadAllAvailable)
