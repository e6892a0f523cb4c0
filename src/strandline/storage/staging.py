"""Rows on their way into a table: tasks put them into sorted files under fresh names, and a commit takes
those of the tasks that succeeded.

The files of one job are in one folder, ``staged/<seconds>-<id>``, whose name says since when. Nothing refers
to them: what a job leaves behind that came to no end is removed when it is old.
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

__all__ = ["FOLDER", "Staged", "Staging", "fresh_folder", "is_old", "stage"]

FOLDER = "staged"
STAGED_SECONDS = 24 * 3600.0
"""No job writes for longer than this."""
RUN_ROWS = 500_000
RUN_BYTES = 64 << 20
"""So many rows, with so many bytes, a task has in memory at most: they become one file."""


@dataclass(frozen=True, kw_only=True)
class Staging:
    """What tasks need to know. ``schema``: the columns that are given, all of the key among them."""

    files: Files
    folder: str
    schema: TableSchema
    mode: Mode


@dataclass(frozen=True)
class Staged:
    """What one task has written, in the order of its rows. ``memory``: how many bytes they take unpacked."""

    segments: tuple[Segment, ...]
    memory: int


def fresh_folder(now: float) -> str:
    """Return where the files of a job go that begins now."""
    return f"{FOLDER}/{int(now)}-{uuid.uuid4().hex[:16]}"


def is_old(name: str, now: float) -> bool:
    """Return whether a staged file is of a job that nobody carries on."""
    since = name.removeprefix(f"{FOLDER}/").partition("-")[0]
    return since.isdigit() and int(since) <= now - STAGED_SECONDS


def stage(staging: Staging, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Write rows whose columns are those of the schema, in its order and in any types that fit. The files are
    durable when this returns."""
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
    """Yield the rows in the types of the table, as many at a time as fit into memory."""
    waiting: list[pa.Table] = []
    for batch in batches:
        arrays = [
            array_from_user(column.type, batch.column(i), column.name)
            for i, column in enumerate(staging.schema.columns)
        ]
        waiting.append(pa.table(arrays, list(staging.schema.names)))
        if sum(t.num_rows for t in waiting) >= RUN_ROWS or sum(t.nbytes for t in waiting) >= RUN_BYTES:
            yield _run(staging, waiting)
            waiting = []
    if any(table.num_rows for table in waiting):
        yield _run(staging, waiting)


def _run(staging: Staging, tables: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables)
    if staging.mode == "INSERT":
        return rows  # Twice the same key is an error, which the commit finds.
    _, lasts = firsts_and_lasts([rows.column(name) for name in staging.schema.key])
    return rows if len(lasts) == rows.num_rows else rows.take(lasts)
