"""Operations on segment files as bytes: copy, upload, verify, describe.

Each function needs only ``Files`` and plain values, and streams the file. So it runs wherever the file can be
reached: in this process for few bytes, on executors for many.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from strandline.errors import Corrupted, Internal, StrandlineError
from strandline.model import Segment, TableSchema, is_elsewhere
from strandline.storage.bounds import compare_bounds, compare_rows
from strandline.storage.digest import checksum_of
from strandline.storage.file_router import Destination, FileRouter, object_name
from strandline.storage.files import Files, read_checked
from strandline.storage.order import Finding
from strandline.storage.throttle import Throttle, ThrottledSource

__all__ = [
    "Copies",
    "all_copied_into",
    "check_healed",
    "copy_into",
    "copy_segment",
    "damage",
    "has_object",
    "loss",
    "remove_parts",
    "upload_segment",
]


@dataclass(frozen=True)
class Copies:
    """Segments to copy. Either all of them are copied or none.

    Attributes:
        segments: the segments.
        name: a fresh name, with which the names of the copies begin.
        schema: the schema of the segments' table, to compare the rows of files in a repository with the
            segments' records. None: the rows are not compared.
    """

    segments: Sequence[Segment]
    name: str
    schema: TableSchema | None = None


def copy_segment(
    files: Files, segment: Segment, name: str, throttle: Throttle, schema: TableSchema | None = None
) -> Segment:
    """Copy a segment's file to another name and verify its bytes; return the new segment.

    The copy is durable when this returns. If the bytes differ from the record, raises Corrupted and leaves no
    file.

    Args:
        name: the name of the copy.
        schema: as in ``Copies``.
    """
    if segment.file is None:
        if (finding := damage(files, segment)) is not None:
            raise Corrupted(finding.message)
        return replace(segment, id=0)
    place, inside = files.locate(segment.file) if isinstance(files, FileRouter) else (files, segment.file)
    with throttle.room():
        files.copy(ThrottledSource(place, throttle), inside, name, segment.checksum)
    made = replace(segment, id=0, file=name)
    if schema is not None and is_elsewhere(segment.file):
        try:
            compare_rows(files, schema, made, segment.file)
        except BaseException:
            files.remove(name)
            raise
    return made


def copy_into(
    files: Files, folder: str, segment: Segment, throttle: Throttle, schema: TableSchema | None = None
) -> Segment:
    """Copy a segment's file into a folder, under a name that no other attempt uses."""
    return copy_segment(files, segment, f"{folder}/{uuid4().hex}.parquet", throttle, schema)


def upload_segment(files: FileRouter, target: Destination, throttle: Throttle, segment: Segment) -> Segment:
    """Upload a segment's file to a repository; return the segment under the object's name.

    An object that the repository already has is not uploaded again, unless it is damaged.
    """
    if segment.file is None:
        raise Internal("an inline segment was taken for a file")
    there = files.at(target.root)
    name = object_name(there, segment.checksum, target.avoided)
    if not has_object(there, target, name, segment.bytes):
        place, inside = files.locate(segment.file)
        with throttle.room():
            if there.exists(name):
                there.replace(name, read_checked(ThrottledSource(place, throttle), inside, segment.checksum))
            else:
                there.copy_if_absent(ThrottledSource(place, throttle), inside, name, segment.checksum)
        check_healed(there, target, name, segment.checksum)
    return replace(segment, id=0, file=name)


def has_object(files: Files, target: Destination, name: str, size: int) -> bool:
    """Return True if a repository has an object that can be shared by another backup.

    Such an object has the right size and is not known to be damaged. If the result is False, the caller may
    write the object anew at any time: the name determines the content, so every writer writes the same bytes.
    """
    if target.is_damaged(name):
        return False
    try:
        return files.size(name) == size
    except Corrupted:
        return False


def remove_parts(files: Files, target: Destination, segments: Sequence[Segment]) -> None:
    """Delete partly written objects of these segments.

    The name of such a file is the object's name with a suffix that no other program uses.
    """
    wanted = {object_name(files, segment.checksum, target.avoided) for segment in segments}
    for folder in {name.rpartition("/")[0] for name in wanted}:
        for name in list(files.names(folder)):
            object_, mark, suffix = name.rpartition(".")
            if mark and len(suffix) == 32 and object_ in wanted:
                files.remove(name)


def check_healed(files: Files, target: Destination, name: str, checksum: str) -> None:
    """Verify an object that was damaged before its upload; raise CORRUPTED if it is damaged again."""
    if target.is_damaged(name) and files.checksum(name) != checksum:
        raise Corrupted(
            f"the object {name} of {target.root} was written anew and is damaged again",
            "Check the storage of the repository; its disk or its network changes what is written.",
        )


def loss(files: Files, segment: Segment) -> Finding | None:
    """Return a finding if a segment's file is missing or has the wrong size, else None. Reads no file."""
    if segment.file is None:
        return None
    try:
        size = files.size(segment.file)
    except Corrupted as error:
        return Finding("missing_file", error.message)
    if size != segment.bytes:
        return Finding("corrupt_file", f"the file {segment.file} has {size} bytes instead of {segment.bytes}")
    return None


def all_copied_into(
    files: Files, throttle: Throttle, wanted: Sequence[tuple[str, Segment, TableSchema | None]]
) -> list[Segment | StrandlineError]:
    """Copy segments into folders concurrently; return the new segment or the error for each of them.

    Args:
        wanted: the folder, the segment and the schema (as in ``Copies``) of each copy.
    """
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        return list(pool.map(partial(_try_copy, files, throttle), *zip(*wanted, strict=True)))


def _try_copy(
    files: Files, throttle: Throttle, folder: str, segment: Segment, schema: TableSchema | None
) -> Segment | StrandlineError:
    try:
        return copy_into(files, folder, segment, throttle, schema)
    except StrandlineError as error:
        return error


def damage(files: Files, segment: Segment, schema: TableSchema | None = None) -> Finding | None:
    """Read all bytes of a segment without caches; return a finding if they are damaged, None otherwise.

    Raises Unavailable if the bytes cannot be read now: this does not count as damage.

    Args:
        schema: the schema of the table. With it, a file in a repository is also compared with the bounds in
            the segment's record. None: the bounds are not compared.
    """
    if segment.file is None:
        if segment.data is None or checksum_of(segment.data) != segment.checksum:
            return Finding("corrupt_file", f"the inline segment {segment.id} does not match its checksum")
        return None
    try:
        files.size(segment.file)
    except Corrupted as error:
        return Finding("missing_file", error.message)
    try:
        actual = files.checksum(segment.file)
    except Corrupted as error:
        return Finding("corrupt_file", error.message)
    if actual != segment.checksum:
        return Finding("corrupt_file", f"the file {segment.file} does not match its checksum")
    if schema is not None and is_elsewhere(segment.file):
        return compare_bounds(files, schema, segment)
    return None
