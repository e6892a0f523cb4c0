"""Collect a DataFrame as Python rows with timezone-aware times in UTC.

PySpark converts timestamps to naive datetimes in local time. This loses times in the hour that a clock change
repeats, and fails for times at the ends of the calendar. So timestamps are cast to timestamps without zone,
in UTC, and the zone is added to the collected values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timezone
from itertools import islice
from typing import Any, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.cancellation import attend_work, phase
from strandline.errors import InvalidArgument
from strandline.storage.spark.batches import find_declared_type
from strandline.storage.spark.failures import spark_errors
from strandline.storage.spark.session import MEANING, settings

__all__ = ["FrameCollector"]

TOGETHER = 1000
"""Number of rows that an iterator fetches at a time."""

_Convert: TypeAlias = Callable[[Any], Any]


class FrameCollector:
    """Collects the rows of one DataFrame, with times in UTC."""

    def __init__(self, frame: DataFrame) -> None:
        with spark_errors(), settings(frame.sparkSession, MEANING):
            fields = frame.schema.fields
            zoned = [_converter(field.dataType) for field in fields]
            self._converters = [c or _whole(field) for c, field in zip(zoned, fields, strict=True)]
            self._make = Row(*(field.name for field in fields))
            self._frame = self._without_zones(frame, fields, zoned) if any(zoned) else frame

    def rows(self, limit: int | None = None) -> list[Row]:
        """Return the rows.

        Args:
            limit: maximum number of rows to compute and return. None: all rows.
        """
        with self._asking():
            return list(self._convert(self._frame.collect() if limit is None else self._frame.take(limit)))

    def __iter__(self) -> Iterator[Row]:
        """Yield all rows. Only a part of them is in memory at a time."""
        with self._asking():  # A Spark Connect server plans the query when the first row is requested.
            coming = iter(self._frame.toLocalIterator(prefetchPartitions=True))
            some = list(islice(coming, 1))
        while some:
            yield from self._convert(some)
            with self._asking():
                some = list(islice(coming, TOGETHER))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Fetch rows in this block: Ctrl-C can interrupt it, and errors of Spark are translated.

        Code of the caller must not run in the block.
        """
        with (
            attend_work(),
            phase("querying"),
            _reading(),
            settings(self._frame.sparkSession, MEANING),
        ):
            yield

    def _without_zones(
        self, frame: DataFrame, fields: list[T.StructField], zoned: list[_Convert | None]
    ) -> DataFrame:
        # Numbers as names, because two columns of a result may have the same name.
        numbered = frame.toDF(*map(str, range(len(fields))))
        columns = zip(numbered.columns, fields, zoned, strict=True)
        return numbered.select(
            *(F.col(n).cast(_zoneless(f.dataType)) if c else F.col(n) for n, f, c in columns)
        )

    def _convert(self, rows: Iterable[Row]) -> Iterable[Row]:
        if not any(self._converters):
            return rows
        return (
            self._make(*(_apply(c, value) for c, value in zip(self._converters, row, strict=True)))
            for row in rows
        )


def _whole(field: T.StructField) -> _Convert | None:
    """Return a converter to int for a Uint64 field, which Spark has as a decimal; None for other fields."""
    type_ = find_declared_type(field)
    is_wide = field.dataType == T.DecimalType(20, 0) and (type_ is None or type_.name == "Uint64")
    return int if is_wide else None


@contextmanager
def _reading() -> Iterator[None]:
    with spark_errors():
        try:
            yield
        except (ValueError, OverflowError) as error:
            if isinstance(error, PySparkException):
                raise
            raise InvalidArgument(
                f"a row has a value that Python cannot hold: {error}",
                "Dates and times of Python lie in the years 1 to 9999; CAST others to STRING in the query.",
            ) from error


def _apply(convert: _Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _zoneless(type_: T.DataType) -> T.DataType:
    """Return the type with all timestamps in it replaced by timestamps without zone."""
    match type_:
        case T.TimestampType():
            return T.TimestampNTZType()
        case T.ArrayType():
            return T.ArrayType(_zoneless(type_.elementType), type_.containsNull)
        case T.MapType():
            return T.MapType(_zoneless(type_.keyType), _zoneless(type_.valueType), type_.valueContainsNull)
        case T.StructType():
            return T.StructType(
                [T.StructField(f.name, _zoneless(f.dataType), f.nullable, f.metadata) for f in type_.fields]
            )
    return type_


def _converter(type_: T.DataType) -> _Convert | None:
    """Return a converter that sets UTC on all times in a value; None if the type has no times."""
    match type_:
        case T.TimestampType():
            return lambda value: value.replace(tzinfo=timezone.utc)
        case T.ArrayType():
            each = _converter(type_.elementType)
            return None if each is None else lambda value: [_apply(each, item) for item in value]
        case T.MapType():
            key, item = _converter(type_.keyType), _converter(type_.valueType)
            if key is None and item is None:
                return None
            return lambda value: {_apply(key, k): _apply(item, v) for k, v in value.items()}
        case T.StructType():
            parts = [_converter(field.dataType) for field in type_.fields]
            make = Row(*(field.name for field in type_.fields))
            return (lambda value: make(*map(_apply, parts, value))) if any(parts) else None
    return None
