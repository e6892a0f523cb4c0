"""Compare what tasks report about files with what the driver finds.

Executors that do not share a folder with this process write to folders of their own, and do not find files of
this process. Spark reports no error in either case. So tasks report their results to the driver, and the job
fails if the driver finds other files than the tasks report. An empty folder is never mistaken for an empty
result. A file is not reported as damaged if only a task finds it damaged and the driver finds it intact.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import Corrupted, StrandlineError, Unavailable
from strandline.model import Segment
from strandline.names import MARKER
from strandline.storage.files import Files, MissingFile
from strandline.storage.order import Finding

__all__ = [
    "EXPORT",
    "HINT",
    "REPOSITORY",
    "WAREHOUSE",
    "Sizes",
    "TaskReport",
    "blind_readers",
    "blind_writers",
    "check_reports",
    "check_sizes",
    "check_written",
    "explain_damage",
    "is_whole",
    "report",
    "sizes_of",
]

A = TypeVar("A")
R = TypeVar("R")
Sizes: TypeAlias = Sequence[tuple[str, int | None]]
"""The names of files that a task reads, with their recorded sizes; None if no size is recorded."""

LOOKS_AT_ONCE = 8
WAREHOUSE, REPOSITORY, EXPORT = "warehouse", "repository", "export"
HINT = (
    "Mount the same folder under this path on every machine of Spark (its driver, workers and Connect "
    "server), or use an object store."
)
DATA_SOURCE_HINT = (
    "Run db.check(path) where the driver runs. If it finds no damage, executors do not see the warehouse's "
    "folder: mount the same folder under this path on every machine of Spark, or use an object store. If it "
    "finds damage, restore the table from a backup."
)
OBJECT_STORE_HINT = "Give the Spark session the endpoint and the bucket that this process uses."


def check_written(files: Files, segments: Sequence[Segment], place: str = WAREHOUSE) -> None:
    """Fail a job if one of the files that its tasks report is missing or has another size."""
    check_sizes(files, sizes_of(segments), place)


def check_sizes(files: Files, reported: Sizes, place: str) -> None:
    """Fail a job if one of the files that its tasks report is missing or has another size.

    Checks only files in folders: an object store is the same for all machines.

    Args:
        reported: the names of the files and their sizes.
        place: what the folder is, for the error message, such as ``WAREHOUSE``.
    """
    if not _is_local(files.location):
        return
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        sizes = pool.map(partial(_size, files), (name for name, _ in reported))
        for (name, told), size in zip(reported, sizes, strict=True):
            if size != told:
                found = "is not there" if size is None else f"has {size} bytes there"
                said = f"they reported {told} bytes in the file {name}, which {found}"
                raise blind_writers(files, said, place)


@dataclass(frozen=True)
class TaskReport(Generic[R]):
    """Report of one task.

    Attributes:
        result: the result of the task, or its error.
        lost: the files that the task found missing or with another size.
    """

    result: R | Corrupted
    lost: Sizes = ()


def sizes_of(segments: Sequence[Segment]) -> Sizes:
    """Return the files of segments with their recorded sizes."""
    return [(s.file, s.bytes) for s in segments if s.file is not None]


def report(files: Files, work: Callable[[A], R], task: tuple[A, Sizes]) -> TaskReport[R]:
    """Run a task on an executor, and report its result.

    If the task finds damage, the report lists the files that are missing or have another size on this
    machine.
    """
    thing, sizes = task
    try:
        result = work(thing)
    except Corrupted as error:
        if lost := [each for each in sizes if _is_lost(files, *each)]:
            return TaskReport(error, lost)
        raise
    found: Sequence[Any] = result if isinstance(result, list) else (result,)
    is_damaged = any(isinstance(each, Corrupted | Finding) for each in found)
    return TaskReport(result, [each for each in sizes if _is_lost(files, *each)] if is_damaged else ())


def check_reports(files: Files, reports: Sequence[TaskReport[R]]) -> list[R]:
    """Return the results of tasks; raise the error of a task that failed.

    Raises Unavailable if a task reports a file as lost that this process finds with the right size.
    """
    for each in reports:
        for name, size in each.lost:
            if not _is_lost(files, name, size):
                raise blind_readers(files.path(name))
    results = []
    for each in reports:
        if isinstance(each.result, Corrupted):
            raise each.result
        results.append(each.result)
    return results


def is_whole(path: str) -> bool:
    """Return True if this process can read the whole file that a Spark job could not read.

    For a Parquet file, verifies the checksums of its pages. For another file or a folder, checks only that it
    exists.
    """
    if not path.endswith(".parquet") or os.path.isdir(path):
        return os.path.exists(path)
    with suppress(pa.ArrowException, OSError), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for _ in file.iter_batches():
            pass
        return True
    return False


def explain_damage(files: Files, error: Corrupted) -> StrandlineError:
    """Return the error to raise if a task of the data source finds a damaged or missing file.

    The task cannot ask the driver whether the driver finds the file intact. If the warehouse's marker is
    missing, too, the executor does not share the folder. Otherwise the executor may have another copy of the
    folder; the hint of the error mentions this.
    """
    if not files.exists(MARKER):
        missed = error.path if isinstance(error, MissingFile) else None
        return blind_readers(missed or files.location)
    if _is_local(files.location) and error.hint == Corrupted.default_hint:
        return Corrupted(error.message, DATA_SOURCE_HINT)
    return error


def blind_writers(files: Files, difference: str, place: str = WAREHOUSE) -> Unavailable:
    """Return the error of a job whose tasks wrote files that the driver does not find."""
    hint = HINT if _is_local(files.location) else OBJECT_STORE_HINT
    return Unavailable(f"executors do not write to the {place}'s folder {files.location}: {difference}", hint)


def blind_readers(path: str) -> Unavailable:
    """Return the error of a job whose tasks do not find a file that the driver can read."""
    hint = HINT if _is_local(path) else OBJECT_STORE_HINT
    return Unavailable(f"executors do not see the file {path}, which is there for the driver", hint)


def _is_lost(files: Files, name: str, size: int | None) -> bool:
    try:
        found = files.size(name)
    except Corrupted:
        return True
    return size is not None and found != size


def _size(files: Files, name: str) -> int | None:
    try:
        return files.size(name)
    except StrandlineError:
        return None


def _is_local(path: str) -> bool:
    return path.startswith("/")
