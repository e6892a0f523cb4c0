"""Random reads of an object, and prefetching of the chunks of an upload."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from strandline.cancellation import share_work
from strandline.storage.block_reader import BlockReader

__all__ = ["ObjectReader", "prefetch"]

BLOCK_BYTES = 256 << 10
"""Minimum read size: a request takes longer than the transfer of a block of this size."""


class Ranges(Protocol):
    """The part of ``Files`` that a reader needs."""

    def size(self, name: str) -> int: ...

    def range(self, name: str, start: int, end: int) -> bytes: ...


@contextmanager
def prefetch(chunks: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """Yield an iterator whose chunks a separate thread fetches in advance.

    The object store's client cannot be called while it requests the chunks of an upload, but reading a chunk
    may need the client, too.
    """
    line: queue.Queue[bytes | BaseException | None] = queue.Queue(16)
    stopped = threading.Event()

    def put(what: bytes | BaseException | None) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                return line.put(what, timeout=0.1)

    def fetch() -> None:
        try:
            for chunk in chunks:
                put(chunk)
                if stopped.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    def take() -> Iterator[bytes]:
        while (what := line.get()) is not None:
            if isinstance(what, BaseException):
                raise what
            yield what

    thread = threading.Thread(target=share_work(fetch), name="strandline-fetch", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        stopped.set()
        thread.join()


class ObjectReader(BlockReader):
    """Reads an object for Arrow, at random positions."""

    def __init__(self, files: Ranges, name: str) -> None:
        self._files, self._name = files, name
        super().__init__(files.size(name))

    def _fetch(self, start: int, end: int) -> tuple[int, bytes]:
        # Arrow reads the footer backwards, so a block near the end of the file ends with the file.
        first = max(0, min(start, self._size - BLOCK_BYTES))
        return first, self._files.range(self._name, first, max(end, min(self._size, first + BLOCK_BYTES)))
