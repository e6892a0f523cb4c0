"""Long lists, a piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SIZE = 500
"""A database limits how many values one statement may bind."""


def chunks(items: Iterable[T], size: int = SIZE) -> Iterator[Sequence[T]]:
    """Yield the items in lists that fit into one statement, or of another ``size``."""
    listed = list(items)
    for start in range(0, len(listed), size):
        yield listed[start : start + size]


def batches(
    items: Iterable[T], size: Callable[[T], int], most: int, together: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in their order, in lists of which each has ``most`` by their ``size``, or one item that
    has more; and no more than so many ``together``."""
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
