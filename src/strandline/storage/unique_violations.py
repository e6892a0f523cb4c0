"""Duplicate keys of a unique index."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import Key

__all__ = ["Repeats"]


@dataclass(frozen=True)
class Repeats:
    """Number of keys of a unique index that occur more than once, with examples.

    Attributes:
        count: number of these keys.
        pairs: the first and the last index entry of each of the first few of these keys.
    """

    count: int
    pairs: tuple[tuple[Key, Key], ...]
