"""Slices of chains: what changed in a window, folded to one row per key, or a whole state as if all of it had
just been added.

Both become log segments whose rows carry their step, cut at the table's shard boundaries, so that shard by
shard they can be applied to what was there at the window's beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import EVERYWHERE, Chain, Digest, KeyRange, Segment

__all__ = ["Slice", "Window"]


@dataclass(frozen=True)
class Window:
    """What to cut out: the changes in ``(after, upto]`` of ``logs``, or, where ``chain`` is given, its whole
    state; of keys ``within`` a range."""

    after: int
    upto: int
    logs: tuple[Segment, ...] = ()
    chain: Chain | None = None
    within: KeyRange = EVERYWHERE


@dataclass(frozen=True)
class Slice:
    """The segments of a slice, and what its rows add to the digest and the row count of the state they are
    applied to."""

    segments: tuple[Segment, ...]
    rows: int
    tombstones: int
    delta: Digest
