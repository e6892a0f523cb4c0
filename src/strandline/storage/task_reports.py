"""Compare what tasks report about files with what the driver finds.

Executors that do not share a folder with this process write to folders of their own, and do not find files of
this process. Spark reports no error for either. So the result of a job is what its tasks report, and every
difference from what the driver finds fails the job: an empty folder is never taken for an empty result, and a
file that only a task misses is never taken for a damaged one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from strandline.errors import StrandlineError, Unavailable
from strandline.model import Segment
from strandline.names import MARKER
from strandline.storage.files import Files, MissingFile
from strandline.storage.order import Finding

__all__ = [
    "HINT",
    "REPOSITORY",
    "blind_readers",
    "blind_writers",
    "check_missing",
    "check_rows",
    "check_written",
    "explain_missing",
]

LOOKS_AT_ONCE = 8
WAREHOUSE, REPOSITORY = "warehouse", "repository"
HINT = (
    "Mount the same folder under this path on every machine of Spark (its driver, workers and Connect "
    "server), or use an object store."
)
OBJECT_STORE_HINT = "Give the Spark session the endpoint and the bucket that this process uses."


def check_rows(files: Files, reported: int, segments: Sequence[Segment]) -> None:
    """Fail a job if its files do not have as many rows as its tasks report."""
    rows = sum(s.rows for s in segments)
    if rows != reported:
        said = f"rows in the reports of tasks: {reported}, rows in its {len(segments)} new files: {rows}"
        raise blind_writers(files, said)


def check_written(files: Files, segments: Sequence[Segment], place: str = WAREHOUSE) -> None:
    """Fail a job if one of the files that its tasks report is missing or has another size.

    Checks only folders: an object store is the same for all machines.
    """
    written = [s for s in segments if s.file is not None and _is_local(files.location)]
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        for segment, size in zip(written, pool.map(partial(_size, files), written), strict=True):
            if size != segment.bytes:
                found = "is not there" if size is None else f"has {size} bytes there"
                said = f"they reported {segment.bytes} bytes in the file {segment.file}, which {found}"
                raise blind_writers(files, said, place)


def check_missing(results: Iterable[Any]) -> None:
    """Fail a job if one of its tasks did not find a file that exists for this process.

    A result is an error, a finding, or a list of these; other values are ignored.
    """
    for result in results:
        for each in result if isinstance(result, list) else (result,):
            missed = each.path if isinstance(each, MissingFile | Finding) else None
            if missed is not None and os.path.exists(missed):
                raise blind_readers(missed)


def explain_missing(files: Files, error: MissingFile) -> StrandlineError:
    """Explain a missing file on an executor, where the driver cannot be asked.

    If the warehouse's marker is missing, too, the executor does not share the folder.
    """
    return error if files.exists(MARKER) else blind_readers(error.path or files.location)


def blind_writers(files: Files, difference: str, place: str = WAREHOUSE) -> Unavailable:
    """Return the error of a job whose tasks wrote files that the driver does not find."""
    hint = HINT if _is_local(files.location) else OBJECT_STORE_HINT
    return Unavailable(f"executors do not write to the {place}'s folder {files.location}: {difference}", hint)


def blind_readers(path: str) -> Unavailable:
    """Return the error of a job whose tasks do not find a file that the driver finds."""
    return Unavailable(f"executors do not see the file {path}, which is there for the driver", HINT)


def _size(files: Files, segment: Segment) -> int | None:
    try:
        return files.size(segment.file or "")
    except StrandlineError:
        return None


def _is_local(path: str) -> bool:
    return path.startswith("/")
