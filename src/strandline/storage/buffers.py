"""I/O buffers, and reading and writing files in large pieces.

Buffers are reused, page-aligned and as large as disks prefer. A large copy bypasses the page cache (direct
I/O): filling the cache and then waiting for the disk takes longer than writing to the disk, and evicts pages
that other processes read.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["PIECE", "borrow_buffer", "gather", "pieces", "write_pieces"]

PIECE = 4 << 20
"""Bytes per read or write."""
BLOCK = 4096
"""Alignment of size and address that direct I/O needs."""
SPARE = 16
"""Maximum number of unused buffers to keep: two per file being copied."""
_DIRECT = getattr(os, "O_DIRECT", 0)
_spare: list[memoryview] = []


@contextmanager
def borrow_buffer() -> Iterator[memoryview]:
    """Yield a buffer of ``PIECE`` bytes, which is reused after the block. Its content is undefined.

    Buffers are reused, because allocating memory from the operating system takes many times as long as
    filling it.
    """
    try:
        place = _spare.pop()
    except IndexError:
        # Private: forked processes must not share it.
        place = memoryview(mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    try:
        yield place
    finally:
        if len(_spare) < SPARE:
            _spare.append(place)


def pieces(descriptor: int) -> Iterator[memoryview]:
    """Yield the content of an open file, and close the file at the end.

    All pieces use the same buffer: each is valid only until the next one is requested.
    """
    try:
        with borrow_buffer() as place:
            while size := os.readv(descriptor, [place]):
                yield place[:size]
    finally:
        os.close(descriptor)


def gather(coming: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Join small or unaligned pieces into pieces that direct I/O can write.

    All pieces use the same buffer: each is valid only until the next one is requested.
    """
    with borrow_buffer() as place:
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
    """Write pieces to an open file, start their write-back, and return their total size.

    The caller has to call fsync to make the data durable.

    Args:
        append: writes bytes to the descriptor and returns how many of them it wrote.
        past_memory: use direct I/O if the file system supports it and there is more than one piece.
    """
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
                # The file system refuses direct I/O after all, or the buffer is not aligned.
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
    """Switch direct I/O on or off; return True if it is on now."""
    if not _DIRECT:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if wanted else flags)
    except OSError:
        return False  # This file system does not support direct I/O.
    return wanted


def _write_back(descriptor: int, start: int, size: int) -> None:
    """Start to write bytes back to the disk, without waiting.

    This does not make the data durable: only fsync does, and fsync also reports a failed write-back.
    """
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            # DONTNEED starts the write-back; pages stay in the cache until they are written.
            os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
