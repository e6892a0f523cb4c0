"""Parts of an object: read at any place, and fetched one after the other while they are sent."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from strandline.storage.reader import BlockReader
from strandline.work import shared

__all__ = ["ObjectReader", "fetched"]

BLOCK_BYTES = 256 << 10
"""What Arrow asks for is read in blocks of at least this size: a request takes longer than such a block."""


class Ranges(Protocol):
    """What a reader needs of files."""

    def size(self, name: str) -> int: ...

    def range(self, name: str, start: int, end: int) -> bytes: ...


@contextmanager
def fetched(chunks: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """Take chunks in a thread of its own: the client asks for them where it cannot be asked for anything
    itself, and they may come from a store as well."""
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

    def coming() -> Iterator[bytes]:
        while (what := line.get()) is not None:
            if isinstance(what, BaseException):
                raise what
            yield what

    thread = threading.Thread(target=shared(fetch), name="strandline-fetch", daemon=True)
    thread.start()
    try:
        yield coming()
    finally:
        stopped.set()
        thread.join()


class ObjectReader(BlockReader):
    """An object as Arrow reads it."""

    def __init__(self, files: Ranges, name: str) -> None:
        self._files, self._name = files, name
        super().__init__(files.size(name))

    def _fetch(self, start: int, end: int) -> tuple[int, bytes]:
        # The footer is read from its end to its beginning, so near the end the block ends with the file.
        first = max(0, min(start, self._size - BLOCK_BYTES))
        return first, self._files.range(self._name, first, max(end, min(self._size, first + BLOCK_BYTES)))
