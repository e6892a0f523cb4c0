"""Duplicate keys of a unique index."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import Key

__all__ = ["Repeats"]


@dataclass(frozen=True)
class Repeats:
    """How many keys of a unique index occur more than once, with examples.

    ``pairs`` has, for the first few of these keys, the first and the last index entry.
    """

    count: int
    pairs: tuple[tuple[Key, Key], ...]
