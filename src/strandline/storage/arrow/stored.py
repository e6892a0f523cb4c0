"""Files of segments as bytes, one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

from strandline.model import Segment
from strandline.storage import stored
from strandline.storage.elsewhere import Destination, Everywhere
from strandline.storage.order import Finding
from strandline.storage.shelf import Shelf
from strandline.storage.stored import Described, Form

__all__ = ["copy", "damages", "describe", "losses", "send"]

ONE_BY_ONE = 8 << 20
"""Files of up to so many bytes are copied one after the other: threads would not make it faster."""


SENDERS = 8
"""So many files at a time are on their way to a repository, or are looked at."""


def copy(shelf: Shelf, segments: Sequence[Segment], name: str) -> list[Segment]:
    """Return segments with their files under names that begin with ``name``, which must be new; the bytes are
    checked on the way. Files are durable when this returns, and gone when it raises."""
    made: list[Segment] = []

    def copied(number: int, segment: Segment) -> Segment:
        found = stored.copied(shelf.files, segment, f"{name}-{number}.parquet")
        made.append(found)
        return found

    try:
        if sum(s.bytes for s in segments) <= ONE_BY_ONE:
            return list(map(copied, count(), segments))
        with ThreadPoolExecutor(2) as pool:  # One file is written while another one's end reaches the disk.
            return list(pool.map(copied, count(), segments))
    except BaseException:
        shelf.discard(made)
        raise


def send(files: Everywhere, segments: Sequence[Segment], target: Destination) -> list[Segment]:
    """Return segments with their files as objects of a repository, under their names there."""
    with ThreadPoolExecutor(SENDERS) as pool:  # Most of the time goes by while the other side answers.
        return list(pool.map(partial(stored.sent, files, target), segments))


def damages(shelf: Shelf, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment whether it is missing or does not match its checksum."""
    if sum(s.bytes for s in segments) <= ONE_BY_ONE:
        return [stored.damage(shelf.files, segment) for segment in segments]
    with ThreadPoolExecutor(SENDERS) as pool:
        return list(pool.map(partial(stored.damage, shelf.files), segments))


def losses(files: Everywhere, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment whether its file is missing, or not as long as it should be."""
    with ThreadPoolExecutor(SENDERS) as pool:
        return list(pool.map(partial(stored.loss, files), segments))


def describe(shelf: Shelf, form: Form, names: Sequence[str]) -> list[Described]:
    """Return what files are that a job wrote, in their order, and make them durable."""
    shelf.files.seal(names)
    with ThreadPoolExecutor(4) as pool:  # The interpreter's lock is free while bytes are read.
        return list(pool.map(partial(stored.described, shelf.files, form), names))
