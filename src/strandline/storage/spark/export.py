"""Export rows on executors: tasks read, encode and write files. This process gets one row per file."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from strandline.errors import StrandlineError
from strandline.storage.files import Files
from strandline.storage.outgoing.columns import OutgoingColumns
from strandline.storage.outgoing.parts import ExportedPart, PartFolder, group_partitions, write_partitions
from strandline.storage.partition import RowPartition
from strandline.storage.spark.batches import FrameBatches
from strandline.storage.spark.failures import CARRIED
from strandline.storage.spark.probe import probe_target
from strandline.storage.spark.session import ship
from strandline.storage.spark.tasks import on_executors, reuse_archives
from strandline.storage.task_reports import EXPORT, check_reports, check_sizes

__all__ = ["export_frame", "export_partitions"]


def export_partitions(
    spark: SparkSession, files: Files, partitions: Sequence[RowPartition], folder: PartFolder
) -> list[ExportedPart]:
    """Write the rows of partitions to files, in the order of the partitions.

    Args:
        files: where the rows are read from.
        folder: where the exported files are written.
    """
    probe_target(spark, folder.files, folder.name)
    work = partial(write_partitions, folder, files)
    return _check(folder, check_reports(files, on_executors(spark, work, group_partitions(partitions))))


def export_frame(frame: DataFrame, folder: PartFolder) -> list[ExportedPart]:
    """Write each partition of a DataFrame to one file; return the files in the order of the partitions."""
    probe_target(frame.sparkSession, folder.files, folder.name)
    rows = FrameBatches(frame)
    with rows.asking():
        ship(frame.sparkSession)
        found = rows.numbered().mapInArrow(_writing(folder, rows.columns), "part binary").collect()
    return _check(folder, [pickle.loads(row[0]) for row in found])


def _check(folder: PartFolder, parts: Iterable[ExportedPart | None]) -> list[ExportedPart]:
    """Return the files that tasks wrote, in their order. Raise an error if this process does not find one."""
    found = sorted((part for part in parts if part is not None), key=lambda part: part.number)
    check_sizes(folder.files, [(f"{folder.name}/{part.name}", part.bytes) for part in found], EXPORT)
    return found


def _writing(
    folder: PartFolder, columns: OutgoingColumns
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that writes a partition to a file, and yields the pickled ``ExportedPart``."""
    packed = pickle.dumps((folder, columns))

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reuse_archives()
        folder, columns = pickle.loads(packed)
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        rows = (b for batch in batches for b in columns.convert(batch.columns).to_batches())
        try:
            part = folder.write(number, rows)
        except StrandlineError as error:
            raise RuntimeError(CARRIED.format(error)) from error
        if part is not None:
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], ["part"])

    return write
