"""Compare a manifest's record of an object with the object itself.

A checksum proves only that an object has the bytes that the manifest names. The author of a forged manifest
may also have written the object. So code that reads an object anyway also compares everything that readers
rely on: columns, number of rows, first and last key, order. Any exception that a library raises for an object
counts as damage: CORRUPTED.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import Corrupted, StrandlineError
from strandline.model import Segment, TableSchema
from strandline.storage.files import Files
from strandline.storage.order import Finding, examine_segment
from strandline.storage.segment import label, read_bounds

__all__ = ["compare_bounds", "compare_rows"]


def compare_bounds(files: Files, schema: TableSchema, segment: Segment) -> Finding | None:
    """Compare a segment's record with the footer, the first and the last row of its file.

    Returns a finding if they differ or the file is damaged; None if they match.
    """
    try:
        with _damage(segment):
            found = read_bounds(
                files,
                schema,
                segment.file or "",
                role=segment.role,
                fresh=segment.fresh,
                stepped=segment.stepped,
            )
    except Corrupted as error:
        return Finding("corrupt_file", error.message)
    recorded = (segment.rows, segment.min_key, segment.max_key)
    if found == recorded:
        return None
    said = "{} rows from {} to {}".format
    return Finding("corrupt_file", f"the {label(segment)} has {said(*found)} instead of {said(*recorded)}")


def compare_rows(files: Files, schema: TableSchema, segment: Segment, called: str) -> None:
    """Read all keys of a segment's file; raise CORRUPTED if they or their order contradict the record.

    Args:
        called: the name of the file in the error message.
    """
    with _damage(segment):
        findings = examine_segment(files, schema, segment)
    if findings:
        raise Corrupted(findings[0].message.replace(segment.file or "", called))


@contextmanager
def _damage(segment: Segment) -> Iterator[None]:
    try:
        yield
    except (StrandlineError, MemoryError):
        raise
    except Exception as error:
        raise Corrupted(f"the {label(segment)} cannot be read as it was written: {error}") from error
