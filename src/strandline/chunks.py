"""Splits long lists into chunks and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SIZE = 500
"""Default size of a chunk. Databases limit how many values one statement may bind."""


def chunks(items: Iterable[T], size: int = SIZE) -> Iterator[Sequence[T]]:
    """Yield the items in lists of up to ``size``, by default as many as one statement may bind."""
    listed = list(items)
    for start in range(0, len(listed), size):
        yield listed[start : start + size]


def batches(
    items: Iterable[T], size: Callable[[T], int], most: int, together: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in order, in batches of limited total size.

    The sum of ``size`` over a batch is at most ``most``, except for a single item that exceeds it. A batch
    has at most ``together`` items.
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
