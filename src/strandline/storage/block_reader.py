"""Base class for files that Arrow reads at random positions, with a buffer of one block."""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from typing import Any

__all__ = ["BlockReader"]


class BlockReader(io.RawIOBase):
    """A readable file of known size.

    Args:
        size: length of the content in bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = self._start = 0
        self._block = b""

    @abstractmethod
    def _fetch(self, start: int, end: int) -> tuple[int, bytes]:
        """Read a block that covers at least ``start`` to ``end``; return its position and its bytes."""

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
            self._start, self._block = self._fetch(self._at, end)
        data = self._block[self._at - self._start : end - self._start]
        self._at = end
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
