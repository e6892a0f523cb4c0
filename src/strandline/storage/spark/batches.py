"""Fetch the rows of a DataFrame as Arrow data, in the types of the tables that the columns come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from strandline.cancellation import attend_work, phase
from strandline.model import TableSchema
from strandline.storage.outgoing.columns import OutgoingColumns
from strandline.storage.spark.arrow_schema import to_arrow_schema
from strandline.storage.spark.columns import col
from strandline.storage.spark.failures import spark_errors
from strandline.storage.spark.session import MEANING, settings
from strandline.types import Type, parse_type
from strandline.types.arrays import outgoing_type

__all__ = ["FrameBatches", "declare_types", "find_declared_type"]

DECLARED = "strandline.type"
"""Metadata key of a DataFrame column. Its value is the type that the column has in its table.

Spark keeps the metadata of a column that is only selected or renamed.
"""


def declare_types(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """Add the table's type as metadata to columns whose Spark type is ambiguous."""
    names = [c.name for c in schema.columns if c.name in frame.columns and _is_ambiguous(c.type)]
    if not names:
        return frame
    return frame.select(
        *(
            col(name).alias(name, metadata={DECLARED: schema[name].type.name}) if name in names else col(name)
            for name in frame.columns
        )
    )


def _is_ambiguous(type_: Type) -> bool:
    return type_.name.startswith("Uint") or type_.spark == "decimal(20,0)"


def find_declared_type(field: Any) -> Type | None:
    """Return the table type in the metadata of a DataFrame field; None if there is none that fits."""
    name = field.metadata.get(DECLARED)
    found = None if name is None else parse_type(name)
    return found if found is not None and found.spark == field.dataType.simpleString() else None


class FrameBatches:
    """Fetches the rows of one DataFrame as Arrow data."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        with spark_errors(), settings(frame.sparkSession, MEANING):
            fields = frame.schema.fields
            given = to_arrow_schema(frame.schema)
        types = [find_declared_type(field) for field in fields]
        self.schema = pa.schema(
            [
                (field.name, _in_utc(field.type) if type_ is None else outgoing_type(type_))
                for field, type_ in zip(given, types, strict=True)
            ]
        )
        self.columns = OutgoingColumns(types, self.schema)

    def whole(self) -> pa.Table:
        """Return all rows."""
        with self.asking():
            return self.columns.convert(self.numbered().toArrow().columns)

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in tables. Only a part of the rows is in memory at a time."""
        with self.asking():  # A Spark Connect server plans the query when the first row is requested.
            packed = self.numbered().mapInArrow(_make_packer(), "rows binary")
            coming = iter(packed.toLocalIterator(prefetchPartitions=True))
            some = list(islice(coming, 1))
        while some:
            yield self.columns.convert(_unpack(some[0][0]).columns)
            with self.asking():
                some = list(islice(coming, 1))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Fetch rows in this block: Ctrl-C can interrupt it, and errors of Spark are translated.

        Code of the caller must not run in the block.
        """
        with (
            attend_work(),
            phase("querying"),
            spark_errors(),
            settings(self._frame.sparkSession, MEANING),
        ):
            yield

    def numbered(self) -> DataFrame:
        """Return the frame with numbers as column names: two columns of a result may have the same name."""
        return self._frame.toDF(*map(str, range(len(self.schema))))


def _in_utc(type_: pa.DataType) -> pa.DataType:
    is_zoned = pa.types.is_timestamp(type_) and type_.tz is not None
    return pa.timestamp(type_.unit, tz="UTC") if is_zoned else type_


def _unpack(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _make_packer() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for executors that packs each batch into a row of bytes.

    The function uses nothing of this package, so that executors do not need the package.
    """

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays([packed], ["rows"])

    return pack
