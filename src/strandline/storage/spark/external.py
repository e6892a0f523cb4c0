"""Read external files on executors: divide files into parts, and read the parts as a DataFrame."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import StrandlineError
from strandline.storage.external.locations import File
from strandline.storage.external.parts import FilePart, HasFile, files_of
from strandline.storage.external.source import Incoming
from strandline.storage.external.typed_files import ParquetFiles
from strandline.storage.files import LocalFiles
from strandline.storage.spark.arrow_schema import to_arrow_schema
from strandline.storage.spark.columns import col, spark_type
from strandline.storage.spark.failures import CARRIED, spark_errors
from strandline.storage.spark.probe import is_local
from strandline.storage.spark.session import ship
from strandline.storage.spark.tasks import FEW, on_executors, reuse_archives
from strandline.storage.task_reports import blind_readers
from strandline.types import Type

__all__ = ["rows_of", "spread"]

PART_BYTES = 64 << 20
"""Maximum size of a part of a file that one task reads. A file that cannot be split is one part."""

A = TypeVar("A")
R = TypeVar("R")


def spread(spark: SparkSession, incoming: Incoming, most: int) -> bool:
    """Let executors read files in parts of about ``most`` bytes; return False if they cannot.

    Executors cannot read files that they do not find, or whose format needs a package that they do not have.
    """

    def over(work: Callable[[A], R], things: Sequence[A], /) -> list[R]:
        return on_executors(spark, work, things)

    def can_read(parts: Sequence[FilePart]) -> bool:
        asked: list[File | None] = [*files_of(parts)] or [None] * FEW
        return is_local(spark) or all(over(partial(_can_read, incoming.package), asked))

    if not can_read(incoming.parts):
        return False
    parts = incoming.split(over, min(most, PART_BYTES))
    if not can_read(parts):
        return False
    incoming.spread(over, parts)
    return True


def _can_read(package: str | None, file: File | None) -> bool:
    has_package = package is None or find_spec(package) is not None
    return has_package and (file is None or file.files.exists(file.at))


def rows_of(
    spark: SparkSession, incoming: Incoming, types: Mapping[str, Type], not_null: frozenset[str]
) -> DataFrame:
    """Return the rows of files as a DataFrame.

    If a value does not fit, the job fails with an error that names the file and the place in it. For Parquet
    files the error names neither, because Spark's own reader is used, which is faster. Nested values in
    Parquet files become JSON.

    Args:
        types: the columns to read, with their types.
        not_null: names of the columns that must not have NULL.
    """
    with spark_errors():
        if isinstance(incoming, ParquetFiles):
            return _parquet(spark, [file.files.path(file.at) for file in incoming.paths], types)
        ship(spark)
        fields = T.StructType([T.StructField(name, spark_type(type_)) for name, type_ in types.items()])
        read = _reader(incoming.parts, types, not_null, to_arrow_schema(fields))
        count = max(1, len(incoming.parts))
        numbers = spark.range(0, len(incoming.parts), 1, count)  # Each task reads one part.
        return numbers.mapInArrow(read, fields)


def _parquet(spark: SparkSession, paths: Sequence[str], types: Mapping[str, Type]) -> DataFrame:
    frame = spark.read.option("mode", "FAILFAST").parquet(*paths)
    chosen = []
    for name in types:
        nested = frame.schema[name].dataType.simpleString().startswith(("struct", "array", "map"))
        chosen.append((F.to_json(col(name)) if nested else col(name)).alias(name))
    return frame.select(*chosen)


def _reader(
    parts: Sequence[FilePart], types: Mapping[str, Type], not_null: frozenset[str], schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that gets batches of part numbers, and yields the rows of these parts."""
    packed = pickle.dumps((parts, dict(types), not_null))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reuse_archives()
        parts, types, not_null = pickle.loads(packed)
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _read_part(parts[number], types, not_null, schema)
        except StrandlineError as error:
            raise RuntimeError(CARRIED.format(error)) from error

    return read


def _read_part(
    part: FilePart, types: Mapping[str, Type], not_null: frozenset[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if isinstance(part, HasFile) and isinstance(part.file.files, LocalFiles):
        path = part.file.files.path(part.file.at)
        if not part.file.files.exists(part.file.at):
            raise blind_readers(path)
    for table in part.tables(types, not_null):
        yield from table.cast(schema).combine_chunks().to_batches()
