"""Files of segments as bytes, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count

from strandline.errors import StrandlineError
from strandline.model import Segment, TableSchema
from strandline.storage import stored
from strandline.storage.elsewhere import Destination, Everywhere
from strandline.storage.order import Finding
from strandline.storage.pace import Pace
from strandline.storage.shelf import Shelf
from strandline.storage.stored import Copies, Described, Form
from strandline.threads import in_parallel

__all__ = ["copy", "damages", "describe", "losses", "send"]

ONE_BY_ONE = 8 << 20
"""Files of up to so many bytes are copied one after the other: threads would not make it faster."""
SENDERS = 8
"""So many files at a time are looked at."""


def copy(shelf: Shelf, wanted: Sequence[Copies], pace: Pace) -> list[list[Segment] | StrandlineError]:
    """Return segments with their files under other names, or why it could not be done; the bytes are checked
    on the way. Files are durable when this returns, and there are none of those that failed."""
    made: list[list[Segment] | StrandlineError] = []
    for each in wanted:
        try:
            made.append(_copied(shelf, each, pace))
        except StrandlineError as error:
            made.append(error)
        except BaseException:
            for done in made:
                shelf.discard(done if isinstance(done, list) else ())
            raise
    return made


def _copied(shelf: Shelf, wanted: Copies, pace: Pace) -> list[Segment]:
    made: list[Segment] = []

    def copied(number: int, segment: Segment) -> Segment:
        name = f"{wanted.name}-{number}.parquet"
        found = stored.copied(shelf.files, segment, name, pace, wanted.schema)
        made.append(found)
        return found

    try:
        if sum(s.bytes for s in wanted.segments) <= ONE_BY_ONE:
            return list(map(copied, count(), wanted.segments))
        # While some wait for the disk, others are read.
        return in_parallel(copied, count(), wanted.segments, threads=pace.limits.copies)
    except BaseException:
        shelf.discard(made)
        raise


def send(files: Everywhere, segments: Sequence[Segment], target: Destination, pace: Pace) -> list[Segment]:
    """Return segments with their files as objects of a repository, under their names there."""
    # Most of the time goes by while the other side answers.
    return in_parallel(partial(stored.sent, files, target, pace), segments, threads=pace.limits.copies)


def damages(
    shelf: Shelf, segments: Sequence[Segment], schemas: Sequence[TableSchema] | None = None
) -> list[Finding | None]:
    """Return for each segment whether it is missing or does not match its checksum or, with the ``schemas``
    of their tables, what a repository says of it."""
    shapes: Sequence[TableSchema | None] = schemas or [None] * len(segments)
    if sum(s.bytes for s in segments) <= ONE_BY_ONE:
        return list(map(partial(stored.damage, shelf.files), segments, shapes))
    return in_parallel(partial(stored.damage, shelf.files), segments, shapes, threads=SENDERS)


def losses(files: Everywhere, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment whether its file is missing, or not as long as it should be."""
    return in_parallel(partial(stored.loss, files), segments, threads=SENDERS)


def describe(shelf: Shelf, form: Form, names: Sequence[str]) -> list[Described]:
    """Return what files are that a job wrote, in their order, and make them durable."""
    shelf.files.seal(names)
    # The interpreter's lock is free while bytes are read.
    return in_parallel(partial(stored.described, shelf.files, form), names, threads=4)
