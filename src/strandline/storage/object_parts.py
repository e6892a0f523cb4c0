"""Parts of an object: read at any place, and fetched one after the other while they are sent."""

from __future__ import annotations

import io
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

__all__ = ["Reader", "fetched"]

BLOCK_BYTES = 256 << 10
"""What Arrow asks for is read in blocks of at least this size: a request takes longer than such a block."""


class Ranges(Protocol):
    """What a reader needs of files."""

    def size(self, name: str) -> int: ...

    def range(self, name: str, start: int, end: int) -> bytes: ...


@contextmanager
def fetched(chunks: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """Takes chunks in a thread of its own: the client asks for them where it cannot be asked for anything
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

    thread = threading.Thread(target=fetch, name="strandline-fetch", daemon=True)
    thread.start()
    try:
        yield coming()
    finally:
        stopped.set()
        thread.join()


class Reader(io.RawIOBase):
    """An object as Arrow reads it: any part of it at any time."""

    def __init__(self, files: Ranges, name: str) -> None:
        self._files, self._name = files, name
        self._size = files.size(name)
        self._at = self._start = 0
        self._block = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        if not self._start <= self._at <= end <= self._start + len(self._block):
            # The footer is read from its end to its beginning, so near the end the block ends with the file.
            start = max(0, min(self._at, self._size - BLOCK_BYTES))
            self._block = self._files.range(self._name, start, max(end, min(self._size, start + BLOCK_BYTES)))
            self._start = start
        data = self._block[self._at - self._start : end - self._start]
        self._at = end
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
