"""What is done with the file of one segment as bytes: copying it, finding damage, describing what a job
wrote.

Each function takes nothing but ``Files`` and plain values, and a file passes through it a piece at a time: so
it runs wherever the file can be reached, in this process for a few bytes, on executors for many.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

import pyarrow as pa

from strandline.errors import Corrupted, Internal, StrandlineError
from strandline.model import Role, Segment, TableSchema, is_elsewhere
from strandline.storage.bounds import compare_bounds, compare_rows
from strandline.storage.digest import checksum_of
from strandline.storage.elsewhere import Destination, Everywhere, object_name
from strandline.storage.files import Files, checked
from strandline.storage.keys import neighbours
from strandline.storage.order import Finding
from strandline.storage.pace import Pace, Paced
from strandline.storage.segment import describe_file, read_batches

__all__ = [
    "Copies",
    "Described",
    "Form",
    "all_copied_into",
    "check_healed",
    "copied",
    "copied_into",
    "damage",
    "described",
    "has_object",
    "loss",
    "remove_parts",
    "sealed",
    "sent",
]


@dataclass(frozen=True)
class Copies:
    """Segments of which all are to be copied, or none: to names that begin with ``name``, which is fresh.
    ``schema``: that of their table; rows that come from a repository are compared with what it says of
    them."""

    segments: Sequence[Segment]
    name: str
    schema: TableSchema | None = None


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the files of one write have in common. ``once``: it matters whether a key is repeated."""

    schema: TableSchema
    role: Role
    stepped: bool
    after: int
    upto: int
    once: bool = False


@dataclass(frozen=True)
class Described:
    """The segment that a file is, and whether a key is in it more than once; not looked for if it does not
    matter."""

    segment: Segment
    repeats: bool


def copied(
    files: Files, segment: Segment, name: str, pace: Pace, schema: TableSchema | None = None
) -> Segment:
    """Return a segment with its rows under another name; the bytes are checked on the way. Durable when this
    returns; Corrupted, and no file, if they are not what was recorded. ``schema``: as in ``Copies``."""
    if segment.file is None:
        if (finding := damage(files, segment)) is not None:
            raise Corrupted(finding.message)
        return replace(segment, id=0)
    place, inside = files.found(segment.file) if isinstance(files, Everywhere) else (files, segment.file)
    with pace.room():
        files.copy(Paced(place, pace), inside, name, segment.checksum)
    made = replace(segment, id=0, file=name)
    if schema is not None and is_elsewhere(segment.file):
        try:
            compare_rows(files, schema, made, segment.file)
        except BaseException:
            files.remove(name)
            raise
    return made


def copied_into(
    files: Files, folder: str, segment: Segment, pace: Pace, schema: TableSchema | None = None
) -> Segment:
    """Return a segment with its file in a folder, under a name that no other try to copy it has."""
    return copied(files, segment, f"{folder}/{uuid4().hex}.parquet", pace, schema)


def sent(files: Everywhere, target: Destination, pace: Pace, segment: Segment) -> Segment:
    """Return a segment with its file as an object of a repository, under its name there. What the repository
    has is not sent again, unless it is damaged."""
    if segment.file is None:
        raise Internal("an inline segment was taken for a file")
    there = files.at(target.root)
    name = object_name(there, segment.checksum, target.avoided)
    if not has_object(there, target, name, segment.bytes):
        place, inside = files.found(segment.file)
        with pace.room():
            if there.exists(name):
                there.replace(name, checked(Paced(place, pace), inside, segment.checksum))
            else:
                there.copy_if_absent(Paced(place, pace), inside, name, segment.checksum)
        check_healed(there, target, name, segment.checksum)
    return replace(segment, id=0, file=name)


def has_object(files: Files, target: Destination, name: str, size: int) -> bool:
    """Return whether a repository has an object that can be shared: one of the right size that is not known
    to be damaged. Any other one may be replaced, because an object's name tells its content: whoever
    replaces it, however late, brings what everyone expects there."""
    if target.is_damaged(name):
        return False
    try:
        return files.size(name) == size
    except Corrupted:
        return False


def remove_parts(files: Files, target: Destination, segments: Sequence[Segment]) -> None:
    """Remove parts of the objects that segments were to become: files with the name of the object and a
    suffix, which no other program uses."""
    wanted = {object_name(files, segment.checksum, target.avoided) for segment in segments}
    for folder in {name.rpartition("/")[0] for name in wanted}:
        for name in list(files.names(folder)):
            object_, mark, suffix = name.rpartition(".")
            if mark and len(suffix) == 32 and object_ in wanted:
                files.remove(name)


def check_healed(files: Files, target: Destination, name: str, checksum: str) -> None:
    """Read an object that was known to be damaged, and CORRUPTED if it still is."""
    if target.is_damaged(name) and files.checksum(name) != checksum:
        raise Corrupted(
            f"the object {name} of {target.root} was written anew and is damaged again",
            "Check the storage of the repository; its disk or its network changes what is written.",
        )


def loss(files: Files, segment: Segment) -> Finding | None:
    """Return whether a segment's file is missing, or not as long as it should be. No byte of it is read."""
    if segment.file is None:
        return None
    try:
        size = files.size(segment.file)
    except Corrupted as error:
        return Finding.of_missing(error)
    if size != segment.bytes:
        return Finding("corrupt_file", f"the file {segment.file} has {size} bytes instead of {segment.bytes}")
    return None


def all_copied_into(
    files: Files, pace: Pace, wanted: Sequence[tuple[str, Segment, TableSchema | None]]
) -> list[Segment | StrandlineError]:
    """Return segments with their files in folders, as ``copied_into`` does, or why it could not be done. All
    are copied at the same time: one is read while another one is written."""
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        return list(pool.map(partial(_copied_or_not, files, pace), *zip(*wanted, strict=True)))


def _copied_or_not(
    files: Files, pace: Pace, folder: str, segment: Segment, schema: TableSchema | None
) -> Segment | StrandlineError:
    try:
        return copied_into(files, folder, segment, pace, schema)
    except StrandlineError as error:
        return error


def damage(files: Files, segment: Segment, schema: TableSchema | None = None) -> Finding | None:
    """Return what is wrong with the bytes of a segment. All of them are read, whatever was read before.
    Unavailable if they cannot be read now, which says nothing about them. ``schema``: that of its table; if
    the file is in a repository, its bounds are compared with what that says of them."""
    if segment.file is None:
        if segment.data is None or checksum_of(segment.data) != segment.checksum:
            return Finding("corrupt_file", f"the inline segment {segment.id} does not match its checksum")
        return None
    try:
        files.size(segment.file)
    except Corrupted as error:
        return Finding.of_missing(error)
    try:
        actual = files.checksum(segment.file)
    except Corrupted as error:
        return Finding("corrupt_file", error.message)
    if actual != segment.checksum:
        return Finding("corrupt_file", f"the file {segment.file} does not match its checksum")
    if schema is not None and is_elsewhere(segment.file):
        return compare_bounds(files, schema, segment)
    return None


def described(files: Files, form: Form, name: str) -> Described:
    """Return what a sorted Parquet file with the right columns is. Whether all its keys are new is for others
    to say: they count as such."""
    segment = describe_file(
        files,
        form.schema,
        name,
        role=form.role,
        fresh=True,
        stepped=form.stepped,
        after=form.after,
        upto=form.upto,
    )
    return Described(segment, form.once and _repeats(files, form.schema, segment))


def sealed(files: Files, form: Form, name: str) -> Described:
    """Return what a file is, which is durable then."""
    files.seal([name])
    return described(files, form, name)


def _repeats(files: Files, schema: TableSchema, segment: Segment) -> bool:
    """Return whether a key occurs more than once in a sorted file. Found in the keys alone, because Spark
    could only tell by handing every row to a window."""
    before: pa.Table | None = None
    for keys in read_batches(files, schema, segment, schema.key):
        if before is not None:
            keys = pa.concat_tables([before, keys])
        if neighbours(keys.columns)[1].any():
            return True
        before = keys.slice(keys.num_rows - 1)
    return False
