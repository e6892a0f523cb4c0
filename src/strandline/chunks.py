"""Splits long lists into chunks and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SIZE = 500
"""Default size of a chunk. Databases limit how many values one statement may bind."""


def chunks(items: Iterable[T], size: int = SIZE) -> Iterator[Sequence[T]]:
    """Yield the items in lists of up to ``size``. The default fits into one SQL statement."""
    listed = list(items)
    for start in range(0, len(listed), size):
        yield listed[start : start + size]


def batches(
    items: Iterable[T], size: Callable[[T], int], most: int, together: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in order, in batches of limited total size.

    Args:
        size: returns the size of an item.
        most: maximum total size of a batch. A single item that exceeds it is a batch of its own.
        together: maximum number of items in a batch. None: no limit.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and (total + size(item) > most or len(batch) == together):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
