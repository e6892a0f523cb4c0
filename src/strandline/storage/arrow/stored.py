"""Files of segments as bytes, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

from strandline.errors import StrandlineError
from strandline.model import Segment
from strandline.storage import stored
from strandline.storage.order import Finding
from strandline.storage.shelf import Shelf
from strandline.storage.stored import Copies, Described, Form

__all__ = ["copy", "damaged", "describe"]

ONE_BY_ONE = 8 << 20
"""Files of up to so many bytes are copied one after the other: threads would not make it faster."""
AT_ONCE = 4
"""So many files are copied at the same time: while some wait for the disk, others are read."""


def copy(shelf: Shelf, wanted: Sequence[Copies]) -> list[list[Segment] | StrandlineError]:
    """Return segments with their files under other names, or why it could not be done; the bytes are checked
    on the way. Files are durable when this returns, and there are none of those that failed."""
    made: list[list[Segment] | StrandlineError] = []
    for each in wanted:
        try:
            made.append(_copied(shelf, each))
        except StrandlineError as error:
            made.append(error)
        except BaseException:
            for done in made:
                shelf.discard(done if isinstance(done, list) else ())
            raise
    return made


def _copied(shelf: Shelf, wanted: Copies) -> list[Segment]:
    made: list[Segment] = []

    def copied(number: int, segment: Segment) -> Segment:
        found = stored.copied(shelf.files, segment, f"{wanted.name}-{number}.parquet")
        made.append(found)
        return found

    try:
        if sum(s.bytes for s in wanted.segments) <= ONE_BY_ONE:
            return list(map(copied, count(), wanted.segments))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(copied, count(), wanted.segments))
    except BaseException:
        shelf.discard(made)
        raise


def damaged(shelf: Shelf, segments: Sequence[Segment]) -> list[Finding]:
    """Return which segments are missing or do not match their checksums, in their order."""
    found = (stored.damage(shelf.files, segment) for segment in segments)
    return [finding for finding in found if finding is not None]


def describe(shelf: Shelf, form: Form, names: Sequence[str]) -> list[Described]:
    """Return what files are that a job wrote, in their order, and make them durable."""
    shelf.files.seal(names)
    with ThreadPoolExecutor(4) as pool:  # The interpreter's lock is free while bytes are read.
        return list(pool.map(partial(stored.described, shelf.files, form), names))
