"""Staging of bulk rows: tasks write sorted files under fresh names, then a commit writes the rows.

The commit uses only files of tasks that succeeded.

The files of one job are in one folder, ``staged/<seconds>-<id>``, whose name has the time of its creation.
Nothing refers to the files of a failed job. They are deleted when the folder is old enough (``is_old``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from strandline.model import Segment, TableSchema
from strandline.storage.files import Files
from strandline.storage.keys import firsts_and_lasts
from strandline.storage.rows import Mode
from strandline.storage.segment import write_segment
from strandline.types.arrays import array_from_user

__all__ = ["FOLDER", "Staged", "Staging", "fresh_folder", "is_old", "last_of_keys", "stage"]

FOLDER = "staged"
STAGED_SECONDS = 24 * 3600.0
"""Age at which staged files are deleted: a job must not run longer than this."""
RUN_ROWS = 500_000
RUN_BYTES = 64 << 20
"""Limits of the rows and bytes that a task holds in memory before it writes them as one file."""


@dataclass(frozen=True, kw_only=True)
class Staging:
    """Parameters of a staging task.

    Attributes:
        files: the files of the warehouse.
        folder: the folder for the staged files.
        schema: the columns of the rows, which include all key columns.
        mode: the mode of the write.
    """

    files: Files
    folder: str
    schema: TableSchema
    mode: Mode


@dataclass(frozen=True)
class Staged:
    """The files that one task wrote.

    Attributes:
        segments: the files, in the order of the rows.
        memory: size of the rows in memory, in bytes.
    """

    segments: tuple[Segment, ...]
    memory: int


def fresh_folder(now: float) -> str:
    """Return the folder for the files of a job that starts now."""
    return f"{FOLDER}/{int(now)}-{uuid.uuid4().hex[:16]}"


def is_old(name: str, now: float) -> bool:
    """Return True if a staged file belongs to a job that cannot be running any more."""
    since = name.removeprefix(f"{FOLDER}/").partition("-")[0]
    return since.isdigit() and int(since) <= now - STAGED_SECONDS


def stage(staging: Staging, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Write rows to sorted files, which are durable when this function returns.

    The columns must be those of the schema, in its order; their types may be any that can be converted.
    """
    segments: list[Segment] = []
    memory = 0
    for run in _runs(staging, batches):
        name = f"{staging.folder}/{uuid.uuid4().hex}.parquet"
        memory += run.nbytes
        segments.append(
            write_segment(
                staging.files, staging.schema, run, name=name, role="base", fresh=False, stepped=False
            )
        )
    return Staged(tuple(segments), memory)


def _runs(staging: Staging, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in the table's types, in runs that fit into memory."""
    waiting: list[pa.Table] = []
    for batch in batches:
        arrays = [
            array_from_user(column.type, batch.column(i), column.name)
            for i, column in enumerate(staging.schema.columns)
        ]
        waiting.append(pa.table(arrays, list(staging.schema.names)))
        if sum(t.num_rows for t in waiting) >= RUN_ROWS or sum(t.nbytes for t in waiting) >= RUN_BYTES:
            yield last_of_keys(staging.schema, staging.mode, pa.concat_tables(waiting))
            waiting = []
    if any(table.num_rows for table in waiting):
        yield last_of_keys(staging.schema, staging.mode, pa.concat_tables(waiting))


def last_of_keys(schema: TableSchema, mode: Mode, rows: pa.Table) -> pa.Table:
    """Return the last row of each key. For INSERT return all rows: the commit refuses duplicate keys."""
    if mode == "INSERT":
        return rows
    _, lasts = firsts_and_lasts([rows.column(name) for name in schema.key])
    return rows if len(lasts) == rows.num_rows else rows.take(lasts)
