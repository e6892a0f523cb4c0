"""Files of an export that tasks on executors write, one per partition.

Each attempt of a task writes under its own name. Only the files of the attempts whose results Spark returns
are part of the export. Names begin with the number of the partition, so the files sorted by name have the
order of the rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Protocol

import pyarrow as pa

from strandline.storage.files import Files
from strandline.storage.outgoing.encode import Format, encode_file
from strandline.storage.partition import RowPartition
from strandline.storage.partition_plan import plan_export
from strandline.storage.task_reports import Sizes, TaskReport, report

__all__ = [
    "CountedBatches",
    "ExportedPart",
    "PartFolder",
    "SpreadRows",
    "Task",
    "group_partitions",
    "write_partitions",
]

GROUP_ROWS = 65_536
GROUP_BYTES = 32 << 20
"""Approximate limits of the rows and bytes that are encoded together, as a row group of Parquet."""


class CountedBatches:
    """Counts the rows of record batches."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.rows = 0
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


@dataclass(frozen=True)
class ExportedPart:
    """A file that a task wrote.

    Attributes:
        number: the number of the partition.
        name: the name of the file in the folder.
        rows: number of rows.
        bytes: size of the file.
    """

    number: int
    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class PartFolder:
    """The folder of an export.

    Attributes:
        files: the store of the folder.
        name: the name of the folder in the store.
        format: the format of the files.
        schema: the columns of the files.
        job: an id that is in the names of all files that the export's tasks write.
    """

    files: Files
    name: str
    format: Format
    schema: pa.Schema
    job: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def write(self, number: int, batches: Iterable[pa.RecordBatch]) -> ExportedPart | None:
        """Write the rows of a partition to a file; return None if there are no rows."""
        coming = self._encoded_together(batches)
        first = next(coming, None)
        if first is None:
            return None
        name, counted = self.fresh_name(number), CountedBatches(chain([first], coming))
        size = self.files.store(f"{self.name}/{name}", encode_file(self.format, self.schema, iter(counted)))
        return ExportedPart(number, name, counted.rows, size)

    def fresh_name(self, number: int) -> str:
        """Return a name for a file that nothing else uses."""
        return f"part-{number:05d}-{self.job}{uuid.uuid4().hex[:8]}.{self.format}"

    def is_of_job(self, name: str) -> bool:
        """Return True if a task of this export wrote the file."""
        return f"-{self.job}" in name.rpartition("/")[2]

    def _encoded_together(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the types of the files, in batches of about GROUP_ROWS or GROUP_BYTES."""
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            if batch.num_rows:
                waiting.append(batch if batch.schema.equals(self.schema) else batch.cast(self.schema))
            if (
                sum(b.num_rows for b in waiting) >= GROUP_ROWS
                or sum(b.nbytes for b in waiting) >= GROUP_BYTES
            ):
                yield _join(waiting)
                waiting = []
        if waiting:
            yield _join(waiting)


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class SpreadRows(Protocol):
    """Rows that executors export, because there are too many of them for this process."""

    @property
    def schema(self) -> pa.Schema: ...

    def write(self, folder: PartFolder) -> Sequence[ExportedPart]:
        """Let executors write the rows to files; return the files in the order of the rows."""
        ...


Task = tuple[int, Sequence[RowPartition]]
"""The number of a file, and the partitions whose rows the file gets."""


def group_partitions(partitions: Sequence[RowPartition]) -> list[Task]:
    """Group neighbouring partitions, each group for one file."""
    sizes = dict(each for partition in partitions for each in partition.sizes)
    count = plan_export(sum(size or 0 for size in sizes.values()), len(partitions))
    ends = [len(partitions) * (n + 1) // count for n in range(count)]
    return [(n, partitions[ends[n - 1] if n else 0 : end]) for n, end in enumerate(ends)]


def write_partitions(folder: PartFolder, files: Files, task: Task) -> TaskReport[ExportedPart | None]:
    """Write the rows of partitions to a file, and report the result to the driver.

    Args:
        files: the store from which the rows are read.
        task: the number of the file, and the partitions.
    """
    sizes: Sizes = [each for partition in task[1] for each in partition.sizes]
    return report(files, partial(_write, folder), (task, sizes))


def _write(folder: PartFolder, task: Task) -> ExportedPart | None:
    number, partitions = task
    rows = (
        batch
        for partition in partitions
        for table in partition.tables()
        for batch in table.combine_chunks().to_batches(max_chunksize=GROUP_ROWS)
    )
    return folder.write(number, rows)
