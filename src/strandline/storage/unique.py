"""What is found where a key of a unique index is in the table more than once."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import Key

__all__ = ["Repeats"]


@dataclass(frozen=True)
class Repeats:
    """How many keys of an index several rows have, and of the first few the entries of two of these rows: the
    first and the last."""

    count: int
    pairs: tuple[tuple[Key, Key], ...]
