"""Long lists of ids in statements: a database limits how many values one statement may bind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SIZE = 500


def chunks(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """The items in lists that fit into one statement."""
    listed = list(items)
    for start in range(0, len(listed), SIZE):
        yield listed[start : start + SIZE]
