"""Bytes of a file on their way to or from a disk: pieces as large as a disk likes them, in memory that it can
take them from.

A large copy goes past the operating system's own copy of files. To fill that copy first and to wait for the
disk then costs more than the disk alone, and drives out what others read.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["PIECE", "borrowed", "gathered", "pieces", "write_pieces"]

PIECE = 4 << 20
"""So many bytes are read and written at once."""
BLOCK = 4096
"""What goes to the disk by itself is a multiple of this, and so is its place in memory."""
SPARE = 16
"""So many places are kept that nobody uses now: two for each file of a copy."""
_DIRECT = getattr(os, "O_DIRECT", 0)
_spare: list[memoryview] = []


@contextmanager
def borrowed() -> Iterator[memoryview]:
    """A place for a piece, as long as the block lasts. It was used before and will be used again: to have
    new memory from the operating system takes many times as long as to fill it."""
    try:
        place = _spare.pop()
    except IndexError:
        # Not shared with processes that are forked from this one, which borrow it as well.
        place = memoryview(mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    try:
        yield place
    finally:
        if len(_spare) < SPARE:
            _spare.append(place)


def pieces(descriptor: int) -> Iterator[memoryview]:
    """Yield the content of an open file, and close it. All pieces are in the same place, so each is gone when
    the next comes."""
    try:
        with borrowed() as place:
            while size := os.readv(descriptor, [place]):
                yield place[:size]
    finally:
        os.close(descriptor)


def gathered(coming: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Yield what comes in smaller pieces, or not where a disk could take it from. All pieces are in the same
    place, so each is gone when the next comes."""
    with borrowed() as place:
        filled = 0
        for piece in coming:
            left = memoryview(piece)
            while left:
                took = min(len(left), PIECE - filled)
                place[filled : filled + took] = left[:took]
                left, filled = left[took:], filled + took
                if filled == PIECE:
                    yield place
                    filled = 0
        if filled:
            yield place[:filled]


def write_pieces(
    descriptor: int,
    coming: Iterable[bytes | memoryview],
    append: Callable[[int, memoryview], int],
    *,
    past_memory: bool,
) -> int:
    """Write what comes with ``append``, and return how much it was; it is on its way to the disk then, and
    durable after fsync. ``past_memory``: directly to the disk, where the file system can do that and there is
    more than one piece."""
    size = given = 0
    direct = False
    for piece in coming:
        left = memoryview(piece)
        if past_memory and not size:
            direct = len(left) >= PIECE and _set_direct(descriptor, True)
        while left:
            whole = len(left) // BLOCK * BLOCK if direct else len(left)
            if not whole:
                direct = _set_direct(descriptor, False)  # The end of a file is smaller than a block.
                continue
            try:
                done = append(descriptor, left[:whole])
            except OSError as error:
                if not direct or error.errno != errno.EINVAL:
                    raise
                # The file system thinks better of it, or the bytes are not where a disk can take them from.
                direct = _set_direct(descriptor, False)
                continue
            if done <= 0:
                raise OSError(errno.ENOSPC, "the disk took no more bytes")
            left = left[done:]
            size += done
        if not direct and size - given >= PIECE:
            _write_back(descriptor, given, size - given)
            given = size
    return size


def _set_direct(descriptor: int, wanted: bool) -> bool:
    """Return whether what is written from now on goes past the operating system's memory."""
    if not _DIRECT:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if wanted else flags)
    except OSError:
        return False  # This file system has no such thing.
    return wanted


def _write_back(descriptor: int, start: int, size: int) -> None:
    """Ask for bytes to be on their way to the disk, and wait for nothing. It changes no file and promises
    nothing: that is for fsync, which also hears of a write that has failed by then."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            # What is not needed soon is written at once, and stays in memory while it is.
            os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
