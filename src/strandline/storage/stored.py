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
from strandline.model import Role, Segment, TableSchema
from strandline.storage.digest import checksum_of
from strandline.storage.elsewhere import Destination, Everywhere, object_name
from strandline.storage.files import Files
from strandline.storage.keys import neighbours
from strandline.storage.order import Finding
from strandline.storage.pace import Pace, Paced
from strandline.storage.segment import describe_file, read_batches

__all__ = [
    "Copies",
    "Described",
    "Form",
    "all_copied_into",
    "copied",
    "copied_into",
    "damage",
    "described",
    "has_object",
    "loss",
    "sealed",
    "sent",
]


@dataclass(frozen=True)
class Copies:
    """Segments of which all are to be copied, or none: to names that begin with ``name``, which is fresh."""

    segments: Sequence[Segment]
    name: str


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


def copied(files: Files, segment: Segment, name: str, pace: Pace) -> Segment:
    """Return a segment with its rows under another name; the bytes are checked on the way. Durable when this
    returns; Corrupted, and no file, if they are not what was recorded."""
    if segment.file is None:
        if (finding := damage(files, segment)) is not None:
            raise Corrupted(finding.message)
        return replace(segment, id=0)
    place, inside = files.found(segment.file) if isinstance(files, Everywhere) else (files, segment.file)
    with pace.room():
        files.copy(Paced(place, pace), inside, name, segment.checksum)
    return replace(segment, id=0, file=name)


def copied_into(files: Files, folder: str, segment: Segment, pace: Pace) -> Segment:
    """Return a segment with its file in a folder, under a name that no other try to copy it has."""
    return copied(files, segment, f"{folder}/{uuid4().hex}.parquet", pace)


def sent(files: Everywhere, target: Destination, pace: Pace, segment: Segment) -> Segment:
    """Return a segment with its file as an object of a repository, under its name there. What the repository
    has is not sent again, unless it is not even as long as it should be."""
    if segment.file is None:
        raise Internal("an inline segment was taken for a file")
    there = files.at(target.root)
    name = object_name(there, segment.checksum, target.avoided)
    if not has_object(there, name, segment.bytes):
        place, inside = files.found(segment.file)
        with pace.room():
            there.copy_if_absent(Paced(place, pace), inside, name, segment.checksum)
    return replace(segment, id=0, file=name)


def has_object(files: Files, name: str, size: int) -> bool:
    """Return whether a repository has an object. One that is not as long as it should be is removed."""
    from strandline.storage.sealed import SealedFiles  # Only those need it who send something.

    try:
        if files.size(name) == size:
            return True
    except Corrupted:
        # Of a sealed one that was cut there may be too little left to say how long it is.
        if not isinstance(files, SealedFiles) or not files.exists(name):
            return False
    files.remove(name)
    return False


def loss(files: Files, segment: Segment) -> Finding | None:
    """Return whether a segment's file is missing, or not as long as it should be. No byte of it is read."""
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
    files: Files, pace: Pace, wanted: Sequence[tuple[str, Segment]]
) -> list[Segment | StrandlineError]:
    """Return segments with their files in folders, as ``copied_into`` does, or why it could not be done. All
    are copied at the same time: one is read while another one is written."""
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        return list(pool.map(partial(_copied_or_not, files, pace), *zip(*wanted, strict=True)))


def _copied_or_not(files: Files, pace: Pace, folder: str, segment: Segment) -> Segment | StrandlineError:
    try:
        return copied_into(files, folder, segment, pace)
    except StrandlineError as error:
        return error


def damage(files: Files, segment: Segment) -> Finding | None:
    """Return what is wrong with the bytes of a segment. All of them are read, whatever was read before.
    Unavailable if they cannot be read now, which says nothing about them."""
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
