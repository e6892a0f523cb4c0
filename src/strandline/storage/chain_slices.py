"""Slices of chains, from which backups are made.

A slice holds the changes in a window, folded to one row per key, or a whole state as if all rows were new.
Both are log segments whose rows carry their step, split at the table's shard boundaries, so that each shard
can be applied to the state at the window's beginning separately.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import EVERYWHERE, Chain, Digest, KeyRange, Segment

__all__ = ["Slice", "Window"]


@dataclass(frozen=True)
class Window:
    """What to slice: the changes in ``(after, upto]`` of ``logs``, or the whole state of ``chain``.

    ``within`` limits it to a range of keys.
    """

    after: int
    upto: int
    logs: tuple[Segment, ...] = ()
    chain: Chain | None = None
    within: KeyRange = EVERYWHERE


@dataclass(frozen=True)
class Slice:
    """The segments of a slice, and what they add to the row count and the digest of the state before."""

    segments: tuple[Segment, ...]
    rows: int
    tombstones: int
    delta: Digest
